"""Reports of guidellm (`benchmarks.json`): one benchmark a load, several in a file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from crossover import metrics
from crossover.imports import names
from crossover.imports.document import Document
from crossover.imports.format import Format
from crossover.imports.run import (
    Level,
    Run,
    known,
    level,
    mapping,
    number,
    positive,
    run_at,
    text,
    whole,
)

_STATISTICS = {"mean": ("mean",), "p50": ("median",), "p90": ("percentiles", "p90")}
_STATISTICS["p99"] = ("percentiles", "p99")
_STATUSES = {"successful": "ok", "errored": "failed", "incomplete": "cancelled"}
_DATA = ("kind", "source", "path", "prompt_tokens", "output_tokens")


class Guidellm(Format):
    """`benchmarks.json`."""

    name = "guidellm"

    def mismatch(self, document: Document) -> str | None:
        """Why the file holds no reports with benchmarks; None: it does."""
        if why := document.lacking("benchmarks"):
            return why
        benchmarks = [one for report in document.objects for one in _list(report["benchmarks"])]
        if not benchmarks:
            return "no benchmarks in it"
        if any(_at(one, "metrics", "output_tokens_per_second") is None for one in benchmarks):
            return "a benchmark lacks metrics.output_tokens_per_second"
        return None

    def parts(self, document: Document) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """Every benchmark, with the report that it is in."""
        for report in document.objects:
            for place, benchmark in enumerate(_list(report["benchmarks"]), start=1):
                yield f"{document.path}:{place}", {"benchmark": benchmark, "report": report}

    def run(self, found: Mapping[str, Any], path: Path, source: str) -> Run:
        """The run of a benchmark."""
        benchmark, report = found["benchmark"], found["report"]
        strategy = _at(benchmark, "config", "strategy") or _at(benchmark, "args", "strategy")
        return run_at(
            _level(mapping(strategy)),
            _figures(benchmark),
            source=source,
            tool=self.name,
            variant=names.variant_of(path),
            trial=names.trial_of(path),
            asked=_asked(report),
            server=known({"model_name": _model(report, benchmark)}),
            requests=_request_rows(benchmark),
        )


def _level(strategy: Mapping[str, Any]) -> Level:
    kind = strategy.get("type_")
    if kind == "synchronous":
        return level(1, None)
    if kind == "concurrent":
        return level(strategy.get("streams"), None)
    return level(strategy.get("max_concurrency"), strategy.get("rate"))


def _figures(benchmark: Mapping[str, Any]) -> dict[str, Any]:
    """Of successful requests. Its inter-token latency is what is called TPOT here."""
    measured = benchmark["metrics"]

    def statistics(name: str, ours: str, scale: float) -> dict[str, float | None]:
        found = {q: positive(_at(measured, name, "successful", *p)) for q, p in _STATISTICS.items()}
        return {f"{ours}_{q}": None if v is None else v * scale for q, v in found.items()}

    totals = mapping(measured.get("request_totals"))
    completed, failed = (whole(totals.get(name)) for name in ("successful", "errored"))
    tpot = statistics("inter_token_latency_ms", "tpot_s", 1e-3)
    middle = tpot["tpot_s_p50"]
    return known(
        {
            "output_throughput_tokens_per_s": _delivered(measured, "output_tokens_per_second"),
            "achieved_concurrency": _delivered(measured, "request_concurrency"),
            "load_s": number(benchmark.get("duration")),
            "started_at": positive(benchmark.get("start_time")),
            "requests": whole(totals.get("total")),
            "completed": completed,
            "failed": failed,
            "cancelled": whole(totals.get("incomplete")),
            "error_share": None
            if completed is None or failed is None
            else metrics.error_share(failed, completed),
            "prompt_tokens_mean": positive(
                _at(measured, "prompt_token_count", "successful", "mean")
            ),
            "output_tokens_mean": positive(
                _at(measured, "output_token_count", "successful", "mean")
            ),
            "decode_rate_tokens_per_s": None if middle is None else 1 / middle,
            **statistics("time_to_first_token_ms", "ttft_s", 1e-3),
            **tpot,
            **statistics("request_latency", "e2e_s", 1.0),
        }
    )


def _delivered(measured: Mapping[str, Any], name: str) -> float | None:
    """The rate of successful requests and of those that the end of the run cut off: where a run ends
    by the clock, all of the level are cut off, and what they had received is a share of the rate.
    """
    parts = [positive(_at(measured, name, s, "mean")) for s in ("successful", "incomplete")]
    return None if parts[0] is None else parts[0] + (parts[1] or 0.0)


def _asked(report: Mapping[str, Any]) -> dict[str, Any]:
    data = _at(report, "config", "spec", "data") or _at(report, "args", "data")
    first = data[0] if isinstance(data, list) and data else data
    if isinstance(first, Mapping):
        return known({key: first.get(key) for key in _DATA})
    return known({"data": first})


def _model(report: Mapping[str, Any], benchmark: Mapping[str, Any]) -> str | None:
    found = (
        _at(report, "config", "spec", "backend", "model")
        or _at(report, "args", "model")
        or _at(benchmark, "config", "backend", "model")
    )
    return text(found)


def _request_rows(benchmark: Mapping[str, Any]) -> tuple[dict[str, Any], ...]:
    """Rows of records.REQUESTS, where the report keeps requests; times are Unix seconds."""
    saved = mapping(benchmark.get("requests"))
    return tuple(
        {
            "request_id": place,
            "sent_s": positive(_at(request, "info", "timings", "request_start")),
            "first_token_s": positive(_at(request, "info", "timings", "first_token_iteration")),
            "last_token_s": positive(_at(request, "info", "timings", "last_token_iteration")),
            "end_s": positive(_at(request, "info", "timings", "request_end")),
            "status": ours,
            "error_message": text(_at(request, "info", "error")),
            "prompt_tokens": whole(_at(request, "input_metrics", "text_tokens")),
            "output_tokens": whole(_at(request, "output_metrics", "text_tokens")),
            "chunks": whole(_at(request, "info", "timings", "token_iterations")),
        }
        for place, (ours, request) in enumerate(
            (ours, request)
            for theirs, ours in _STATUSES.items()
            for request in _list(saved.get(theirs))
        )
    )


def _at(value: Any, *keys: str) -> Any:
    for key in keys:
        if not isinstance(value, Mapping):
            return None
        value = value.get(key)
    return value


def _list(value: Any) -> list[Mapping[str, Any]]:
    return value if isinstance(value, list) else []
