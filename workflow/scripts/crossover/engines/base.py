"""What an engine is to Crossover. One file an engine; this interface is all it has to fill."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    import httpx

    from crossover.campaign import Model, Variant, Workload


@dataclass(frozen=True)
class Description:
    """What the server itself says it runs. None: it does not say."""

    engine_version: str | None = None
    model: str | None = None
    max_running_requests: int | None = None
    kv_tokens: int | None = None
    speculation_method: str | None = None
    drafted_tokens: int | None = None
    prefix_cache: bool | None = None
    front_end_processes: int | None = None
    resolved: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Counters:
    """Monotone counts since the server's start. None: the server does not count it."""

    output_tokens: float | None = None
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
    takes: ClassVar[frozenset[str]] = frozenset()
    """Which of the variant's keys `command`, `binary` and `url` mean something to it."""

    @abstractmethod
    def command(self, variant: Variant, model: Model) -> list[str] | None:
        """The command that starts the server, with `{port}` where the port goes.

        None: the server is already running at `variant.url`; nothing is started or stopped.
        """

    def check_installed(self, variant: Variant) -> None:
        """Raise EngineError, with what to install, unless `command` can be run here."""

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
