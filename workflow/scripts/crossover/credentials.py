"""Which names are those of credentials, and settings without them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_SECRET = re.compile(
    r"(^|[-_])(\w*key|\w*api_keys|token|secret|\w*password|passwd|auth|authorization|credentials?)$",
    re.IGNORECASE,
)


def is_secret(name: str) -> bool:
    """Whether a variable, flag or setting of this name holds a credential."""
    return _SECRET.search(name) is not None


def without_secrets(settings: Any) -> Any:
    """A server's own account of its settings without credentials, however deep they stand."""
    if isinstance(settings, Mapping):
        return {
            name: without_secrets(value)
            for name, value in settings.items()
            if not is_secret(str(name))
        }
    return [without_secrets(one) for one in settings] if isinstance(settings, list) else settings
