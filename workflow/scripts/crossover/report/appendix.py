"""What stands below the results: how sessions were started, method, provenance, data."""

from __future__ import annotations

import base64
import csv
import gzip
import io
import json
import shlex
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from crossover import records
from crossover.report.wording import Row, commit_words, counted, listed, session_name

if TYPE_CHECKING:
    from crossover.campaign import Campaign, Slo


@dataclass(frozen=True)
class Download:
    """A file inside the page."""

    name: str
    label: str
    uri: str


def session_details(sessions: Sequence[Row]) -> list[tuple[str, list[tuple[str, str]]]]:
    """(sessions, [(what, text)]): sessions of one server that say the same share one entry."""
    alike: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
    for session in sessions:
        # a port may differ from start to start, and stands in no digest
        server = session["server_digest"] or _command(session)
        alike[server, *_account(session)].append(session)
    found = []
    for (_, *account), same in alike.items():
        commands = list(dict.fromkeys(filter(None, map(_command, same))))
        label = "Command" if len(commands) == 1 else "Command of the first"
        if told := [*((label, c) for c in commands[:1]), *account]:
            found.append(("; ".join(map(session_name, same)), told))
    return found


def _command(session: Row) -> str | None:
    return shlex.join(session["command"]) if session["command"] else None


def _account(session: Row) -> Iterable[tuple[str, str]]:
    if session["env"]:
        yield "Environment", "\n".join(f"{k}={v}" for k, v in sorted(session["env"]))
    for key, label in (
        ("description", "What the server says it runs"),
        ("hardware", "Hardware"),
        ("versions", "Versions"),
    ):
        if session[key]:
            yield label, _pretty(session[key])


def _pretty(text: str) -> str:
    """JSON indented; anything else as it is."""
    try:
        return json.dumps(json.loads(text), indent=1, sort_keys=True, ensure_ascii=False)
    except ValueError:
        return text


def method(campaign: Campaign, points: Sequence[Row]) -> list[str]:
    """How it was measured and judged, a paragraph each."""
    analysis = campaign.analysis
    return [
        *(_how_imported(campaign) if campaign.imports else _how_measured(campaign)),
        *([] if campaign.imports else [f"{_stamps(points)} {_token_times(points)}"]),
        "The ratio at a level is estimated from a model of all sessions (level and launch "
        "effects of log throughput). Its bounds hold for all levels at once, so that a crossing "
        "is claimed only where one side is really faster and the other really slower, each with "
        f"{(1 - analysis.alpha) * 100:g} % confidence over all levels.",
        f"A difference below ±{analysis.margin * 100:g} % counts as none. “Cannot tell” means "
        "that the data allow either sign; it does not mean equal.",
        "Where a crossing lies between two measured levels it is interpolated; its interval "
        "includes what is not known about the shape of the curve there. Nothing is said beyond the "
        "tested levels and workloads.",
        "Time to first token (TTFT) runs from sending a request to its first token. Time per "
        "output token (TPOT) is (last − first token) / (output tokens − "
        f"{'1' if campaign.imports else 'tokens of the first chunk'}). "
        "Acceptance length is 1 + accepted drafted tokens / verification steps.",
        "Ratios of latencies are turned, so that above 1 always means that the variant is better."
        + _goodput(analysis.slo),
        "Failed requests deliver no tokens. An invalid level is shown and left out of the verdict.",
    ]


def _goodput(slo: Slo | None) -> str:
    if slo is None:
        return ""
    limits = [
        f"{name} ≤ {limit * 1000:g} ms"
        for name, limit in (("TTFT", slo.ttft_s), ("TPOT", slo.tpot_s), ("whole answer", slo.e2e_s))
        if limit is not None
    ]
    return (
        f" Goodput is the number of requests a second that end in the window and meet all of: "
        f"{listed(limits)}."
    )


_STAMPS = {
    "kernel": "the kernel's receive stamps of the packets",
    "user": "the load client's, when it read the data, later than the kernel's by what it was busy with",
}
_TOKEN_TIMES = {
    "events": "Each event's tokens are the server's own count",
    "bytes": "An answer's tokens, by the server's usage, are spread over its events by their bytes",
}


def _stamps(points: Sequence[Row]) -> str:
    """Where arrival times come from, by the points' own record."""
    found = Counter(p["stamp_source"] for p in points)
    known = [
        (f"{_STAMPS.get(s, s)}" + (f" ({counted(n, 'point')})" if len(found) > 1 else ""))
        for s, n in sorted((s, n) for s, n in found.items() if s is not None)
    ]
    if not known:
        return "Where arrival times come from is not on record."
    unknown = f"; of {counted(found[None], 'point')} it is not on record" if found[None] else ""
    return f"Arrival times are {'; or '.join(known)}{unknown}."


def _token_times(points: Sequence[Row]) -> str:
    found = sorted({p["token_times_source"] for p in points} - {None})
    return " ".join(f"{_TOKEN_TIMES.get(source, source)}." for source in found)


def _how_measured(campaign: Campaign) -> list[str]:
    load = campaign.load
    return [
        "Closed loop: a level keeps its number of requests in flight; an answer that ends is "
        "replaced by a new request at once. Latencies hold for that load, not for a given "
        "arrival rate."
        if load.arrivals is None
        else "Open loop: a level sends requests at its rate "
        f"({'equal' if load.arrivals.process == 'constant' else 'independent'} gaps), whatever has been "
        "answered; both variants get the same schedule. Latencies run from when a request was due, "
        "not from when the client came to send it. A client is what has one request in flight.",
        f"A session is one life of one server, started afresh and warmed up at the level itself "
        f"(answers a client: {load.warmup.completions_per_client:g}; at most "
        f"{load.warmup.max_s:g} s). Throughput is the number of tokens received in a steady window "
        f"of at least {load.steady.min_s:g} s and {load.steady.completions_per_client:g} answers a "
        f"client (at most {load.steady.max_s:g} s), divided by its length. Ramp and drain do not "
        f"count.{_of_refinement(campaign)}",
        f"A trial is one session of every variant; {counted(load.trials, 'trial')} were planned, "
        "each in another order. Sessions, not requests, are the independent units of every "
        "interval: levels of one session share its launch effect.",
    ]


def _of_refinement(campaign: Campaign) -> str:
    long_s = campaign.load.with_long_windows.steady.min_s
    if not campaign.refine.rounds or long_s == campaign.load.steady.min_s:
        return ""
    return f" Refinement measures unresolved levels in windows of at least {long_s:g} s."


def _how_imported(campaign: Campaign) -> list[str]:
    return [
        f"Nothing was measured here: the figures are those of other tools, imported from "
        f"{campaign.imports}. A level is a run with a cap on its requests in flight; runs at a fixed "
        "rate without one are left out. Throughput is mostly that of the whole run.",
        "Repeated runs of a level are its trials. The intervals take the runs of one trial of a "
        "variant for one start of a server, and different trials for different ones; the files "
        "do not say whether that is so.",
    ]


LABELS = {
    "config_sha256": "Config SHA-256",
    "dates": "Sessions started",
    "memory_gib": "memory, GiB",
}


def provenance_items(provenance: Row) -> list[tuple[str, Any]]:
    """(label, value): commands as a list of strings, other structures flattened to lines."""
    result = []
    for key, value in provenance.items():
        if value is None or key == "config_text":
            continue
        label = LABELS.get(key, key.capitalize())
        if not value:
            value = "not on record"
        elif key == "commands":
            value = [c if isinstance(c, str) else shlex.join(c) for c in value]
        elif isinstance(value, Mapping):
            value = "\n".join(f"{LABELS.get(k, k)}: {_plain(v)}" for k, v in value.items())
        elif key == "commits":
            value = listed(map(commit_words, value))
        elif key == "dates":
            value = " to ".join(dict.fromkeys(value))
        else:
            value = _plain(value)
        result.append((label, value))
    if text := provenance.get("config_text"):
        result.append(("Campaign as it was read", [text]))
    return result


def _plain(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, (list, tuple)) and all(isinstance(v, str) for v in value):
        return listed(value)
    return json.dumps(value, sort_keys=True, ensure_ascii=False)


PLAIN_BYTES = 150_000
"""Largest file that the page carries as it is; a larger one is compressed."""


def downloads(
    points: Sequence[Row], verdicts: Row, policy: Row, provenance: Row, campaign: Campaign
) -> list[Download]:
    """The files that the page carries inside."""
    found = [
        _download(
            f"{campaign.name}-points.csv",
            f"points as CSV ({counted(len(points), 'row')})",
            "text/csv",
            _csv(points),
        ),
        _download(
            f"{campaign.name}-verdicts.json",
            "verdicts as JSON",
            "application/json",
            json.dumps(verdicts, indent=1),
        ),
        _download(
            f"{campaign.name}-policy.json",
            "policy as JSON",
            "application/json",
            json.dumps(policy, indent=1),
        ),
    ]
    if text := provenance.get("config_text"):
        found.append(
            _download(f"{campaign.name}.yaml", "the campaign as it was read", "text/yaml", text)
        )
    return found


def _download(name: str, label: str, media_type: str, text: str) -> Download:
    content = text.encode()
    if len(content) <= PLAIN_BYTES:
        return Download(name, label, _data_uri(f"{media_type};charset=utf-8", content))
    packed = gzip.compress(content, mtime=0)  # no time stamp: the same input, the same page
    return Download(f"{name}.gz", f"{label}, compressed", _data_uri("application/gzip", packed))


def _csv(points: Sequence[Row]) -> str:
    """Points as CSV: missing is empty, lists and maps are JSON."""
    out = io.StringIO()
    names = [c.name for c in records.POINTS]
    writer = csv.DictWriter(out, names, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    for p in points:
        cells = {**p, "errors_by_class": p["errors_by_class"] and dict(p["errors_by_class"])}
        writer.writerow(
            {k: json.dumps(v) if isinstance(v, (list, dict)) else v for k, v in cells.items()}
        )
    return out.getvalue()


def _data_uri(media_type: str, content: bytes) -> str:
    return f"data:{media_type};base64,{base64.b64encode(content).decode()}"
