"""Read a server's /metrics."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from crossover.errors import EngineError

if TYPE_CHECKING:
    import httpx

Labels = Mapping[str, str]


@dataclass(frozen=True)
class Metrics:
    """One reading of all samples: for each sample name its values by label set."""

    samples: Mapping[str, tuple[tuple[Labels, float], ...]]

    @property
    def totals(self) -> dict[str, float]:
        """The value of every name, summed over its labels."""
        return {name: sum(v for _, v in rows) for name, rows in self.samples.items()}

    def total(self, *names: str) -> float | None:
        """The sum over the labels of the first of `names` that is there; None if none is."""
        for name in names:
            if name in self.samples:
                return sum(value for _, value in self.samples[name])
        return None

    def largest(self, *names: str) -> float | None:
        """As `total`, for shares such as cache usage, which cannot be summed."""
        for name in names:
            if name in self.samples:
                return max(value for _, value in self.samples[name])
        return None

    def by_label(self, name: str, label: str) -> dict[str, float]:
        """The values of `name` by the value of `label`, summed over the other labels."""
        values: dict[str, float] = {}
        for labels, value in self.samples.get(name, ()):
            if label in labels:
                values[labels[label]] = values.get(labels[label], 0.0) + value
        return values

    def by_position(self, *names: str) -> tuple[float, ...] | None:
        """The counts by label `position` (0, 1, …) of the first of `names` that is there."""
        for name in names:
            counts = {int(p): v for p, v in self.by_label(name, "position").items()}
            if counts:
                return tuple(counts.get(p, 0.0) for p in range(max(counts) + 1))
        return None


def parse(text: str) -> Metrics:
    """The samples of a text in Prometheus format; values that are no number are left out.

    Raises:
        EngineError: the text has another format.
    """
    # with it come an HTTP server and more, which no job waits for whose server has no metrics
    from prometheus_client.parser import text_string_to_metric_families

    samples: dict[str, list[tuple[Labels, float]]] = {}
    try:
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                if not math.isnan(sample.value):
                    samples.setdefault(sample.name, []).append((sample.labels, sample.value))
    except (ValueError, KeyError, IndexError) as error:
        raise EngineError(
            f"/metrics: not in Prometheus text format ({error}); it begins {text[:60]!r}"
        ) from None
    return Metrics({name: tuple(rows) for name, rows in samples.items()})


def fetch(http: httpx.Client, path: str = "/metrics") -> Metrics | None:
    """One reading of the server's metrics; None if it has no such route.

    Raises:
        EngineError: the route answers with an error, or in another format.
        httpx.TransportError: the server does not answer.
    """
    response = http.get(path)
    # llama.cpp answers 501 when it was started without --metrics
    if response.status_code in (404, 405, 501):
        return None
    if response.is_error:
        raise EngineError(f"{response.url}: HTTP {response.status_code}; see the server's log")
    return parse(response.text)
