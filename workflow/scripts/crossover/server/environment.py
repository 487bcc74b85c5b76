"""The variables that a server gets: those that are set for it, and those that it inherits."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

from crossover import engines, gpu
from crossover.campaign import Variant, from_shell, names_from_shell, secret_names
from crossover.credentials import is_secret
from crossover.engines.flags import fill

_MATTERS = (
    *("CUDA_", "NVIDIA_", "NCCL_", "UCX_", "HIP_", "HSA_", "ROCR_"),
    *("OMP_", "GOMP_", "KMP_", "MKL_", "OPENBLAS_", "MALLOC_"),
    *("PYTORCH_", "TORCH", "TRITON_", "XLA_", "HF_", "TRANSFORMERS_"),
    *("LD_PRELOAD", "LD_LIBRARY_PATH", "PYTHONPATH", "PYTHONMALLOC"),
)
"""Beginnings of the names of variables that change how fast a server is, whatever its engine."""

_LEAST_HIDDEN = 8
"""Characters from which any value is hidden; shorter ones only under the name of a secret."""


def command_line(variant: Variant, port: int | None, session_id: str) -> list[str] | None:
    """The variant's command with all placeholders filled; None: nothing is started."""
    command = engines.get(variant.engine).command(variant, variant.model)
    return command and _filled(command, variant, port, session_id)


def stop_command(variant: Variant, port: int | None, session_id: str) -> list[str] | None:
    """The variant's `stop`, filled in like its command; None: it has none."""
    return variant.stop and _filled(variant.stop, variant, port, session_id)


def _filled(
    command: list[str] | tuple[str, ...], variant: Variant, port: int | None, session_id: str
) -> list[str]:
    return fill(
        command,
        port=port,
        model=variant.model.path or variant.model.name,
        model_name=variant.model.name,
        python=sys.executable,
        engines=Path(engines.__file__).parent,
        name=f"crossover-{session_id}",
    )


def own(variant: Variant) -> dict[str, str]:
    """Variables that the server gets besides ours: the engine's, the variant's, the devices'.

    Values are as written in the config: `${NAME}` is not replaced yet.
    """
    variables = {**engines.get(variant.engine).environment(variant), **variant.env}
    if gpus := gpu.of(variant.devices):
        numbers = ",".join(str(gpu.index(device)) for device in gpus)
        variables.setdefault("CUDA_VISIBLE_DEVICES", numbers)
        # as NVML counts; CUDA's own order is the fastest first
        variables.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    return variables


def whole(own_variables: dict[str, str]) -> dict[str, str]:
    """Our own environment with a server's own variables, `${NAME}` filled in.

    Raises:
        KeyError: a NAME is not set.
    """
    filled = {name: from_shell(value) for name, value in own_variables.items()}
    return {**os.environ, **filled}


def inherited(variant: Variant) -> dict[str, str]:
    """What the shell gives a server that may change its speed, credentials hidden.

    Variables that are set for the server itself are left out, those that the campaign names as
    `${NAME}` are not. A server that runs already gets nothing: what is named is the client's.
    """
    if variant.url:
        return {}
    beginnings = (*_MATTERS, *engines.get(variant.engine).reads_variables)
    names = {name for name in os.environ if name.startswith(beginnings)} - set(own(variant))
    names |= names_from_shell(variant) & set(os.environ)
    secret = secret_names(variant)
    return {
        name: "(hidden)" if is_secret(name) or name in secret else os.environ[name]
        for name in sorted(names)
    }


def hider(variant: Variant) -> Callable[[str], str] | None:
    """A function that puts `${NAME}` where a text holds the value that the shell has for it.

    None: the campaign takes no value that could be a secret from the shell.
    """
    secret = secret_names(variant)
    values = {
        value: f"${{{name}}}"
        for name in names_from_shell(variant)
        if (value := os.environ.get(name)) and (name in secret or len(value) >= _LEAST_HIDDEN)
    }
    if not values:
        return None

    def hide(text: str) -> str:
        for value in sorted(values, key=len, reverse=True):
            text = text.replace(value, values[value])
        return text

    return hide
