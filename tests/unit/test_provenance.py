from __future__ import annotations

from crossover import provenance


def test_a_fingerprint_tells_files_apart_and_is_none_for_what_is_no_file(tmp_path):
    file = tmp_path / "model"
    file.write_bytes(b"a" * 3_000_000)
    before = provenance.fingerprint(str(file))
    assert before.startswith("3000000:")
    with file.open("r+b") as opened:
        opened.seek(-1, 2)
        opened.write(b"b")
    assert provenance.fingerprint(str(file)) != before
    assert provenance.fingerprint(None) is None
    assert provenance.fingerprint(str(tmp_path)) is None
    assert provenance.fingerprint("org/model") is None


def test_this_machine_and_its_versions_are_named():
    assert provenance.hardware()["cores"] >= 1
    assert provenance.versions()["snakemake"].startswith("9.")
    assert set(provenance.machine(["cpu0"])) == {
        "commit",
        "host",
        "boot_id",
        "hardware",
        "versions",
    }
