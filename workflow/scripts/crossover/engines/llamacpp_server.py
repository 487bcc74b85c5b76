"""llama.cpp's own HTTP server from the xllamacpp wheel, under llama-server's own flag names.

The same arguments start a native `llama-server`, so a variant measured without a compiler runs
unchanged on a build made for the machine. Flags that the wheel's launcher does not know are
refused, never dropped: a variant that is not what it says would be worse than none.

Exit status: 0 after TERM or INT, 2 for arguments that cannot be served.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from functools import reduce
from pathlib import Path
from typing import Any

Setter = Callable[[Any, Any], None]
"""Puts one flag's value into xllamacpp's `CommonParams`."""


def _into(*paths: str) -> Setter:
    """Store the value under each dotted path of the parameters."""

    def set_value(params: Any, value: Any) -> None:
        for path in paths:
            *owners, name = path.split(".")
            setattr(reduce(getattr, owners, params), name, value)

    return set_value


def _enum(path: str, enum: str, prefix: str) -> Setter:
    """Store the member of an xllamacpp enum that the value names, as llama-server spells it."""

    def set_value(params: Any, value: str) -> None:
        import xllamacpp

        _into(path)(params, getattr(getattr(xllamacpp, enum), prefix + value.upper()))

    return set_value


def _speculation_types(params: Any, value: str) -> None:
    import xllamacpp

    params.speculative.types = [
        getattr(
            xllamacpp.common_speculative_type,
            "COMMON_SPECULATIVE_TYPE_" + name.upper().replace("-", "_"),
        )
        for name in value.split(",")
    ]


def _alias(params: Any, value: str) -> None:
    params.model_alias = {value}


def _host(params: Any, value: str) -> None:
    params.hostnames = [value]


def _numbers(text: str) -> list[float]:
    return [float(part) for part in text.split(",")]


SPECULATION_TYPES = (
    "none",
    "draft-simple",
    "draft-eagle3",
    "draft-mtp",
    "draft-dflash",
    "draft-dspark",
    "ngram-simple",
    "ngram-map-k",
    "ngram-map-k4v",
    "ngram-mod",
    "ngram-cache",
)


def _speculation_type(text: str) -> str:
    for name in text.split(","):
        if name not in SPECULATION_TYPES:
            raise argparse.ArgumentTypeError(
                f"{name!r} is no kind of speculation; known: {', '.join(SPECULATION_TYPES)}"
            )
    return text


def _flash_attention(text: str) -> str:
    names = {"on": "enabled", "off": "disabled", "auto": "auto"}
    if text not in names:
        raise argparse.ArgumentTypeError(f"{text!r} is none of {', '.join(names)}")
    return names[text]


VALUES: dict[tuple[str, ...], tuple[Callable[[str], Any], Setter]] = {
    ("--model", "-m"): (str, _into("model.path")),
    ("--alias", "-a"): (str, _alias),
    ("--host",): (str, _host),
    ("--port",): (int, _into("port")),
    ("--parallel", "-np"): (int, _into("n_parallel")),
    ("--ctx-size", "-c"): (int, _into("n_ctx")),
    ("--batch-size", "-b"): (int, _into("n_batch")),
    ("--ubatch-size", "-ub"): (int, _into("n_ubatch")),
    # As in llama-server, prompts and drafts use the same number of threads unless told.
    ("--threads", "-t"): (
        int,
        _into(
            "cpuparams.n_threads",
            "cpuparams_batch.n_threads",
            "speculative.draft.cpuparams.n_threads",
            "speculative.draft.cpuparams_batch.n_threads",
        ),
    ),
    ("--threads-batch", "-tb"): (
        int,
        _into("cpuparams_batch.n_threads", "speculative.draft.cpuparams_batch.n_threads"),
    ),
    ("--threads-http",): (int, _into("n_threads_http")),
    ("--cache-ram", "-cram"): (int, _into("cache_ram_mib")),
    ("--cache-type-k", "-ctk"): (str, _enum("cache_type_k", "ggml_type", "GGML_TYPE_")),
    ("--cache-type-v", "-ctv"): (str, _enum("cache_type_v", "ggml_type", "GGML_TYPE_")),
    ("--flash-attn", "-fa"): (
        _flash_attention,
        _enum("flash_attn_type", "llama_flash_attn_type", "LLAMA_FLASH_ATTN_TYPE_"),
    ),
    ("--gpu-layers", "-ngl", "--n-gpu-layers"): (int, _into("n_gpu_layers")),
    ("--log-verbosity", "-lv", "--verbosity"): (int, _into("verbosity")),
    ("--spec-type",): (_speculation_type, _speculation_types),
    ("--spec-draft-model", "-md", "--model-draft"): (str, _into("speculative.draft.mparams.path")),
    ("--spec-draft-n-max",): (int, _into("speculative.draft.n_max")),
    ("--spec-draft-n-min",): (int, _into("speculative.draft.n_min")),
    ("--spec-draft-p-min",): (float, _into("speculative.draft.p_min")),
    **{
        (f"--spec-{kind}-{name}",): (int, _into(f"speculative.{kind}.{name}".replace("-", "_")))
        for kind in ("ngram-simple", "ngram-map-k", "ngram-map-k4v")
        for name in ("size-n", "size-m", "min-hits")
    },
    **{
        (f"--spec-ngram-mod-{name}",): (
            int,
            _into("speculative.ngram_mod." + name.replace("-", "_")),
        )
        for name in ("n-match", "n-min", "n-max")
    },
    ("--spec-synth-len",): (float, _into("speculative.synth_len")),
    ("--spec-synth-rates",): (_numbers, _into("speculative.synth_rates")),
}
"""Flags with a value, in the order of setting: --threads before --threads-batch."""

SWITCHES: dict[tuple[str, ...], tuple[bool, Setter]] = {
    ("--metrics",): (True, _into("endpoint_metrics")),
    ("--slots",): (True, _into("endpoint_slots")),
    ("--no-slots",): (False, _into("endpoint_slots")),
    ("--props",): (True, _into("endpoint_props")),
    ("--cont-batching", "-cb"): (True, _into("cont_batching")),
    ("--no-cont-batching", "-nocb"): (False, _into("cont_batching")),
    ("--cache-prompt",): (True, _into("cache_prompt")),
    ("--no-cache-prompt",): (False, _into("cache_prompt")),
    ("--kv-unified", "-kvu"): (True, _into("kv_unified")),
    ("--no-kv-unified", "-no-kvu"): (False, _into("kv_unified")),
    ("--warmup",): (True, _into("warmup")),
    ("--no-warmup",): (False, _into("warmup")),
    ("--jinja",): (True, _into("use_jinja")),
    ("--no-jinja",): (False, _into("use_jinja")),
    ("--webui", "--ui"): (True, _into("ui")),
    ("--no-webui", "--no-ui"): (False, _into("ui")),
}
"""Flags without a value, and what each stores."""


def _key(names: tuple[str, ...]) -> str:
    return names[0].lstrip("-")


def parser() -> argparse.ArgumentParser:
    """The parser of the command line; a flag that was not given is absent from its result."""
    result = argparse.ArgumentParser(
        prog="llamacpp_server.py",
        description="llama.cpp's HTTP server from the xllamacpp wheel.",
        allow_abbrev=False,
        add_help=False,
        argument_default=argparse.SUPPRESS,
    )
    for names, (convert, _) in VALUES.items():
        result.add_argument(*names, dest=_key(names), type=convert, required=_key(names) == "model")
    for names, (stored, _) in SWITCHES.items():
        result.add_argument(*names, dest=_key(names), action="store_const", const=stored)
    return result


def parse(argv: Sequence[str]) -> dict[str, Any]:
    """The given flags and their values.

    Raises:
        SystemExit: status 2 and a message, for a flag or value that cannot be used.
    """
    arguments = parser()
    values = _known(arguments, argv)
    for key in ("model", "spec-draft-model"):
        if key in values and not Path(values[key]).is_file():
            arguments.error(
                f"--{key}: there is no file {values[key]!r}; give the path of a GGUF file"
            )
    return values


def _known(arguments: argparse.ArgumentParser, argv: Sequence[str]) -> dict[str, Any]:
    given, unknown = arguments.parse_known_args(argv)
    if unknown:
        arguments.error(
            f"cannot pass {' '.join(unknown)} to the xllamacpp wheel; known flags: "
            f"{', '.join(names[0] for names in [*VALUES, *SWITCHES])}; a native llama-server "
            "takes all of its own: name it as `binary:` of the variant"
        )
    return vars(given)


def problem(argv: Sequence[str]) -> str | None:
    """What is wrong with a command line, before there is a model file; None: nothing."""
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
            _known(parser(), argv)
    except SystemExit:
        return said.getvalue().strip().rpartition("error: ")[2]
    return None


def parameters(values: dict[str, Any]) -> Any:
    """The given flags as xllamacpp's `CommonParams`, with llama.cpp's defaults for all others."""
    import xllamacpp

    params = xllamacpp.CommonParams()
    for names, (_, set_value) in {**VALUES, **SWITCHES}.items():
        if _key(names) in values:
            set_value(params, values[_key(names)])
    return params


def stop_at_signal() -> None:
    """End the process at TERM or INT, from a thread of its own.

    A Python handler would wait for the main thread, which is inside C++ while a model loads; the
    default action does nothing in the first process of a PID namespace; and the wheel's server
    blocks for over a minute in its destructor while streams are open.
    """
    signals = {signal.SIGTERM, signal.SIGINT}
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)

    def wait() -> None:
        signal.sigwait(signals)
        os._exit(0)

    threading.Thread(target=wait, daemon=True).start()


def main(argv: Sequence[str]) -> None:
    """Serve until TERM or INT."""
    values = parse(argv)
    try:
        import xllamacpp
    except ImportError as error:
        sys.stderr.write(
            f"llamacpp_server.py: cannot import xllamacpp ({error}); "
            "install it with: pip install 'crossover[llamacpp]'\n"
        )
        sys.exit(2)
    stop_at_signal()
    try:
        server = xllamacpp.Server(parameters(values))
    except Exception as error:
        sys.stderr.write(f"llamacpp_server.py: llama.cpp did not start: {error}\n")
        sys.stderr.flush()
        os._exit(2)
    print(f"xllamacpp {xllamacpp.__version__} serves at {server.listening_address}", flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    main(sys.argv[1:])
