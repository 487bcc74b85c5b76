import pytest

from crossover.credentials import is_secret, without_secrets


@pytest.mark.parametrize(
    "name",
    [
        *("api_key", "api_keys", "api-key", "admin_api_key", "HF_TOKEN", "AWS_SECRET_ACCESS_KEY"),
        *("ssl_keyfile_password", "keypassword", "Authorization", "credentials"),
    ],
)
def test_names_of_credentials(name):
    assert is_secret(name)


@pytest.mark.parametrize(
    "name", ["max_total_num_tokens", "tokenizer", "ssl_keyfile", "author", "token_usage", "keys"]
)
def test_names_of_other_settings(name):
    assert not is_secret(name)


def test_settings_lose_their_credentials_however_deep_they_stand():
    settings = {"a": 1, "api_key": "x", "deep": [{"password": "y", "kept": [1, None]}], 5: "n"}
    assert without_secrets(settings) == {"a": 1, "deep": [{"kept": [1, None]}], 5: "n"}
