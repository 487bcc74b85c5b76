"""What an engine is to Crossover. One file an engine; this interface is all it has to fill."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, ClassVar

from crossover.engines import programs

if TYPE_CHECKING:
    from collections.abc import Sequence

    import httpx

    from crossover.campaign import Model, Variant, Workload


@dataclass(frozen=True)
class Description:
    """What the server itself says it runs, in words that are the same for all engines.

    An engine translates its own terms into these, so that two arms can be compared setting by
    setting (`crossover.parity`). None: the server does not say; nothing is guessed.
    """

    engine_version: str | None = None
    """name and version of the program, e.g. `vllm 0.25.1`"""
    model: str | None = None
    """name under which it serves"""
    max_running_requests: int | None = None
    """requests that run at once over all replicas, as applied rather than asked for"""
    kv_tokens: int | None = None
    """tokens that the KV cache holds"""
    memory_fraction: float | None = None
    """share of the device memory that the server may fill, 0 to 1"""
    graph_max_requests: int | None = None
    """largest batch, in requests, whose decode step runs as a captured graph; 0: graphs are off.
    Where the engine counts tokens: divided by the tokens that a request has in a step."""
    chunked_prefill_tokens: int | None = None
    """most prompt tokens that one step takes; 0: prompts are not cut into chunks"""
    prefix_cache: bool | None = None
    """whether a prompt's beginning may come from earlier requests"""
    front_end_processes: int | None = None
    """processes between the sockets and the engine: API servers, tokenizer workers"""
    speculation_method: str | None = None
    """`none`: it does not speculate; `on`: it does, and does not say how"""
    drafted_tokens: int | None = None
    """drafted in a step, without the bonus token"""
    resolved: dict[str, Any] = field(default_factory=dict)
    """the server's own account as it gives it, without credentials"""


@dataclass(frozen=True)
class Counters:
    """Monotone counts since the server's start. None: the server does not count it."""

    output_tokens: float | None = None
    decoded_tokens: float | None = None
    """as the engine makes them, whether or not its front end has sent them yet"""
    prompt_tokens: float | None = None
    cached_prompt_tokens: float | None = None
    verify_steps: float | None = None
    drafted_tokens: float | None = None
    accepted_tokens: float | None = None
    accepted_per_position: tuple[float, ...] | None = None
    preemptions: float | None = None

    def since(self, earlier: Counters) -> Counters:
        """The counts between two readings; None where either reading lacks it."""

        def delta(now: Any, then: Any) -> Any:
            if now is None or then is None:
                return None
            if isinstance(now, tuple):
                padded = then + (0.0,) * (len(now) - len(then))
                return tuple(a - b for a, b in zip(now, padded, strict=False))
            return now - then

        return Counters(
            **{f.name: delta(getattr(self, f.name), getattr(earlier, f.name)) for f in fields(self)}
        )


@dataclass(frozen=True)
class Gauges:
    """The server's load at one moment. None: the server does not say."""

    running_requests: float | None = None
    queued_requests: float | None = None
    kv_cache_usage: float | None = None


class Engine(ABC):
    """One kind of server. `http` is a client whose base URL is the server's address."""

    name: ClassVar[str]
    health_path: ClassVar[str | None] = "/health"
    core_processes: ClassVar[str | None] = None
    """Pattern of the command lines of its processes that compute; the others, in front of them,
    take requests and send tokens. None: they cannot be told apart."""
    program: ClassVar[str | None] = None
    """What is run from the PATH where the variant names no `binary`; None: `check_installed` asks."""
    takes: ClassVar[frozenset[str]] = frozenset()
    """Which of the variant's keys `command`, `binary` and `url` mean something to it."""
    speculation_settings: ClassVar[str] = "spec|draft"
    """Pattern of the flags, variables and settings that belong to speculation."""
    acceptance_settings: ClassVar[str | None] = None
    """Pattern of those that dial the acceptance and leave the cost of a step alone; None: no dial."""
    no_settings: ClassVar[str | None] = None
    """Pattern of entries of the server's account that are results of its start, not settings."""

    rehearsal: ClassVar[bool] = False
    """Whether its figures are a model's, never evidence; every page says so."""
    reads_variables: ClassVar[tuple[str, ...]] = ()
    """Beginnings of the names of environment variables that change what it does."""

    @abstractmethod
    def command(self, variant: Variant, model: Model) -> list[str] | None:
        """The command that starts the server, with `{port}` where the port goes.

        None: the server is already running at `variant.url`; nothing is started or stopped.
        """

    def check_installed(self, variant: Variant) -> None:
        """Raise EngineError, with what to install, unless `command` can be run here."""
        if self.program:
            programs.refuse_missing(
                "binary",
                variant.binary or self.program,
                "activate the environment that it is installed in, or give the path of its "
                f"`{self.program}` as `binary`",
            )

    def environment(self, variant: Variant) -> dict[str, str]:
        """Variables that the engine needs, below the variant's own `env`."""
        return {}

    def request_fields(self, workload: Workload) -> dict[str, Any]:
        """Fields of the request body that only this engine understands."""
        return {}

    def describe(self, http: httpx.Client) -> Description:
        """What the server says it runs; asked once, when it is ready."""
        return Description()

    def counters(self, http: httpx.Client) -> Counters:
        """Read before and after a point; results use the difference."""
        return Counters()

    def gauges(self, http: httpx.Client) -> Gauges:
        """Sampled at most twice a second while a point is measured."""
        return Gauges()

    def reset_cache(self, http: httpx.Client) -> bool | None:
        """Empty the prefix cache. True: the server confirms it; None: it has no such route."""
        return None

    def drafted_tokens(self, variant: Variant) -> int | None:
        """Drafted tokens a step, without the bonus token, as the variant's arguments ask for."""
        return variant.speculation.drafted_tokens if variant.speculation else None

    def policy_in_own_terms(self, ranges: Sequence[tuple[int, int, int]]) -> dict[str, Any] | None:
        """Settings with which this engine changes its number of drafted tokens with the load.

        Args:
            ranges: (first, last, drafted tokens; 0: none), from concurrency 1 without gaps.

        Returns:
            Flags by name, as a variant's `args` take them; None: it has no such switch.
        """
        return None
