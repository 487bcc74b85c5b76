"""The clients that are measured: how each is called, and where it says what it saw."""

from __future__ import annotations

import importlib.metadata
import json
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np

from crossover import revision
from load.crossover_point import CrossoverPoint, closed_loop, open_loop
from load.install_peers import PEERS
from load.score import Reported
from load.truth import ARRIVAL, SOURCES


class Load(NamedTuple):
    """What a client is asked to do, on a ground-truth server at `port`.

    request_rate: of an open loop, whose `concurrency` is None; None: closed loop.
    """

    folder: Path
    port: int
    concurrency: int | None
    requests: int
    tokens: int
    request_rate: float | None

    @property
    def url(self) -> str:
        """The server's address without /v1."""
        return f"http://127.0.0.1:{self.port}"


class Client(ABC):
    """One client; `command` comes first, and `reported` when the command has ended."""

    name: ClassVar[str]
    environment: Mapping[str, str] = {}

    @abstractmethod
    def version(self) -> str | None:
        """Its version; None: it is not installed."""

    @abstractmethod
    def command(self, load: Load) -> list[str]:
        """The command of one run."""

    @abstractmethod
    def reported(self, load: Load, printed: str) -> Reported:
        """What it says of the run; `printed` is its standard output."""


# ---------------------------------------------------------------- ours, and the limit


class Crossover(Client):
    """The whole `measure_point` job: start, load, decoding, Parquet."""

    name = "crossover"

    def version(self) -> str | None:
        return revision.commit() or "outside git"

    def command(self, load: Load) -> list[str]:
        plan = (
            closed_loop(load.concurrency, load.requests)
            if load.request_rate is None
            else open_loop(load.request_rate, load.requests / load.request_rate)
        )
        self._point = CrossoverPoint(load.folder, load.port, plan, load.tokens)
        words, self.environment = self._point.command()
        return words

    def reported(self, load: Load, printed: str) -> Reported:
        self.point = self._point.point()
        return self._point.reported()


class _Recording(Client):
    """A program of this folder, which records arrivals and prints the run's CPU seconds."""

    def words(self, load: Load) -> list[str]:
        numbers = (load.port, load.concurrency, load.requests, load.tokens)
        return [*map(str, numbers), str(load.folder / "arrivals")]

    def reported(self, load: Load, printed: str) -> Reported:
        arrivals = np.fromfile(load.folder / "arrivals", ARRIVAL)
        return Reported(arrivals=arrivals, run_cpu_s=float(printed))


class Floor(_Recording):
    """floor.c"""

    name = "floor"

    def version(self) -> str | None:
        return revision.commit() or "outside git"

    def command(self, load: Load) -> list[str]:
        return [str(load.folder / "floor"), *self.words(load)]


class Httpx(_Recording):
    """http_client.py with httpx's own transport."""

    name = "httpx"

    def version(self) -> str | None:
        return _version(self.name)

    def command(self, load: Load) -> list[str]:
        return [sys.executable, str(SOURCES / "http_client.py"), self.name, *self.words(load)]


class HttpxAiohttp(Httpx):
    """http_client.py with aiohttp as httpx's transport."""

    name = "httpx-aiohttp"


# ---------------------------------------------------------------- peers


class _Peer(Client):
    """A tool in .peers/<package>, offline, with a tokenizer of our own."""

    package: ClassVar[str]
    environment: Mapping[str, str] = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}

    @property
    def bin(self) -> Path:
        """Programs of its environment."""
        return PEERS / self.package / "bin"

    @property
    def packages(self) -> Path | None:
        """Its site-packages; None: it is not installed."""
        return next((PEERS / self.package).glob("lib/python3*/site-packages"), None)

    def version(self) -> str | None:
        return _version(self.package, str(self.packages)) if self.packages else None


class VllmPython(_Peer):
    """`vllm bench serve`"""

    name = "vllm"
    package = "vllm"

    def program(self) -> list[str]:
        return [str(self.bin / "vllm")]

    def command(self, load: Load) -> list[str]:
        return [
            *self.program(),
            *("bench", "serve", "--backend", "openai-chat", "--base-url", load.url),
            *("--endpoint", "/v1/chat/completions", "--model", "truth"),
            *("--tokenizer", _tokenizer(load.folder), "--dataset-name", "random"),
            *("--random-input-len", "100", "--random-output-len", str(load.tokens)),
            *("--num-prompts", str(load.requests), "--max-concurrency", str(load.concurrency)),
            *("--ready-check-timeout-sec", "0", "--disable-tqdm", "--save-result"),
            *("--result-dir", str(load.folder), "--result-filename", "result.json"),
        ]

    def reported(self, load: Load, printed: str) -> Reported:
        return _means(json.loads((load.folder / "result.json").read_text()))


class VllmRust(VllmPython):
    """The `bench serve` of the Rust program in vLLM's wheel."""

    name = "vllm-rust"

    def program(self) -> list[str]:
        return [str(self.packages / "vllm" / "vllm-rs")]


class SglangPython(_Peer):
    """`sglang.benchmark.serving`, which `sglang.bench_serving` is the old name of"""

    name = "sglang"
    package = "sglang"

    def program(self) -> list[str]:
        return [str(self.bin / "python"), "-m", "sglang.benchmark.serving"]

    def command(self, load: Load) -> list[str]:
        (load.folder / "result.jsonl").unlink(missing_ok=True)
        return [
            *self.program(),
            *("--backend", "sglang-oai-chat", "--base-url", load.url, "--model", "truth"),
            *("--tokenizer", _tokenizer(load.folder), "--dataset-name", "random-ids"),
            *("--random-input-len", "100", "--random-output-len", str(load.tokens)),
            *("--random-range-ratio", "1", "--warmup-requests", "0", "--disable-tqdm"),
            *("--num-prompts", str(load.requests), "--max-concurrency", str(load.concurrency)),
            *("--output-file", str(load.folder / "result.jsonl")),
        ]

    def reported(self, load: Load, printed: str) -> Reported:
        return _means(json.loads((load.folder / "result.jsonl").read_text()))


class SglangRust(SglangPython):
    """SGLang's Rust client, loaded without the imports of the package around it, which cost more
    than the client does.
    """

    name = "sglang-rust"

    def program(self) -> list[str]:
        folder = self.packages / "sglang" / "srt" / "rust_extensions"
        load = f"import sys; sys.path.insert(0, {str(folder)!r}); import _bench"
        return [
            str(self.bin / "python"),
            *("-c", f"{load}; _bench.run_argv(['sglang-bench', *sys.argv[1:]])"),
        ]


class Aiperf(_Peer):
    """`aiperf profile`"""

    name = "aiperf"
    package = "aiperf"
    environment: Mapping[str, str] = {}  # offline it does not find a tokenizer in a folder

    def command(self, load: Load) -> list[str]:
        return [
            *(str(self.bin / "aiperf"), "profile", "--model", "truth", "--url", load.url),
            *("--endpoint-type", "chat", "--streaming", "--tokenizer", _tokenizer(load.folder)),
            *("--concurrency", str(load.concurrency), "--request-count", str(load.requests)),
            *("--synthetic-input-tokens-mean", "100", "--output-tokens-mean", str(load.tokens)),
            *("--output-tokens-stddev", "0", "--ui", "none", "--no-server-metrics"),
            *("--no-gpu-telemetry", "--output-artifact-dir", str(load.folder / "aiperf")),
        ]

    def reported(self, load: Load, printed: str) -> Reported:
        result = json.loads((load.folder / "aiperf" / "profile_export_aiperf.json").read_text())
        return Reported(
            ttft_ms=result["time_to_first_token"]["avg"],
            itl_ms=result["inter_token_latency"]["avg"],
        )


class Guidellm(_Peer):
    """`guidellm run`"""

    name = "guidellm"
    package = "guidellm"

    def command(self, load: Load) -> list[str]:
        return [
            *(str(self.bin / "guidellm"), "run", "--disable-console"),
            *("--backend", f"kind=openai_http,target={load.url},model=truth"),
            *("--profile", f"kind=concurrent,streams={load.concurrency}"),
            *("--constraint", f"kind=max_requests,count={load.requests}"),
            *("--tokenizer", f"kind=hf_auto,model={_tokenizer(load.folder)}"),
            *("--data", f"kind=synthetic_text,prompt_tokens=100,output_tokens={load.tokens}"),
            *("--output", f"kind=json,path={load.folder / 'result.json'}"),
        ]

    def reported(self, load: Load, printed: str) -> Reported:
        result = json.loads((load.folder / "result.json").read_text())
        metrics = result["benchmarks"][0]["metrics"]
        return Reported(
            ttft_ms=metrics["time_to_first_token_ms"]["successful"]["mean"],
            itl_ms=metrics["inter_token_latency_ms"]["successful"]["mean"],
        )


CLIENTS: tuple[type[Client], ...] = (
    Crossover,
    Floor,
    Httpx,
    HttpxAiohttp,
    VllmRust,
    SglangRust,
    VllmPython,
    Aiperf,
    SglangPython,
    Guidellm,
)
"""In the order of a round: what a quick run may have no time for comes last."""


def _means(result: Mapping[str, Any]) -> Reported:
    return Reported(
        ttft_ms=result["mean_ttft_ms"],
        itl_ms=result["mean_itl_ms"],
        itl_p99_ms=result["p99_itl_ms"],
    )


def _version(name: str, *path: str) -> str | None:
    found = importlib.metadata.distributions(name=name, path=list(path) or sys.path)
    return next((distribution.version for distribution in found), None)


def _tokenizer(folder: Path) -> str:
    """A folder with a tokenizer of 512 words, so that no peer needs a model."""
    tokenizer = folder / "tokenizer"
    tokenizer.mkdir(exist_ok=True)
    words = ["<unk>", "hello", *(f"word{i}" for i in range(510))]
    unknown = {"id": 0, "content": "<unk>", "special": True, "normalized": False}
    unknown |= dict.fromkeys(("single_word", "lstrip", "rstrip"), False)
    vocabulary = {word: i for i, word in enumerate(words)}
    contents = {
        "tokenizer.json": {
            "version": "1.0",
            "added_tokens": [unknown],
            "pre_tokenizer": {"type": "WhitespaceSplit"},
            "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": "<unk>"},
        },
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "unk_token": "<unk>",
            "model_max_length": 100_000,
        },
        "config.json": {"model_type": "gpt2", "vocab_size": len(words)},
    }
    for name, content in contents.items():
        (tokenizer / name).write_text(json.dumps(content))
    return str(tokenizer)
