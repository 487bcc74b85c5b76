"""What stands below the results: how sessions were started, method, provenance, data."""

from __future__ import annotations

import base64
import csv
import io
import json
import shlex
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from crossover import records
from crossover.report.wording import Row, counted, listed, session_name

if TYPE_CHECKING:
    from crossover.campaign import Campaign


@dataclass(frozen=True)
class Download:
    """A file inside the page."""

    name: str
    label: str
    uri: str


def session_details(sessions: Sequence[Row]) -> list[tuple[str, list[tuple[str, str]]]]:
    """(sessions, [(what, text)]): sessions that were started alike share one entry."""
    alike: dict[tuple[tuple[str, str], ...], list[str]] = defaultdict(list)
    for session in sessions:
        if account := tuple(_account(session)):
            alike[account].append(session_name(session))
    return [("; ".join(names), list(account)) for account, names in alike.items()]


def _account(session: Row) -> Iterable[tuple[str, str]]:
    if session["command"]:
        yield "Command", shlex.join(session["command"])
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


def method(campaign: Campaign) -> list[str]:
    """How it was measured and judged, a paragraph each."""
    load, analysis = campaign.load, campaign.analysis
    return [
        "Closed loop: a level keeps its number of requests in flight; an answer that ends is "
        "replaced by a new request at once. Latencies hold for that load, not for a given "
        "arrival rate.",
        f"A session is one life of one server, started afresh and warmed up at the level's own "
        f"concurrency ({load.warmup.completions_per_client:g} answers a client, at most "
        f"{load.warmup.max_s:g} s). Throughput is the number of tokens received in a steady window "
        f"of at least {load.steady.min_s:g} s and {load.steady.completions_per_client:g} answers a "
        f"client (at most {load.steady.max_s:g} s), divided by its length. Ramp and drain do not "
        "count.",
        f"A trial is one session of every variant; {counted(load.trials, 'trial')} were planned, "
        "each in another order. Sessions, not requests, are the independent units of every "
        "interval: levels of one session share its launch effect.",
        "The ratio at a level is estimated from a model of all sessions (level and launch "
        "effects of log throughput). Its bounds hold for all levels at once, so that a crossing "
        "is claimed only where one side is really faster and the other really slower, each with "
        f"{analysis.confidence * 100:g} % confidence over all levels.",
        f"A difference below ±{analysis.margin * 100:g} % counts as none. “Cannot tell” means "
        "that the data allow either sign; it does not mean equal.",
        "Where a crossing lies between two measured levels it is interpolated; its interval "
        "includes what is not known about the shape of the curve there. Nothing is said beyond the "
        "tested levels and workloads.",
        "Time to first token (TTFT) runs from sending a request to its first token. Time per "
        "output token (TPOT) is (last − first token) / (output tokens − tokens of the first "
        "chunk). Acceptance length is 1 + accepted drafted tokens / verification steps.",
        "Failed requests deliver no tokens. An invalid level is shown and left out of the verdict.",
    ]


def provenance_items(provenance: Row) -> list[tuple[str, Any]]:
    """(label, value): commands as a list of strings, other structures flattened to lines."""
    result = []
    for key, value in provenance.items():
        if value is None or key == "config_text":
            continue
        label = {"config_sha256": "Config SHA-256"}.get(key, key.replace("_", " ").capitalize())
        if key == "commands":
            value = [c if isinstance(c, str) else shlex.join(c) for c in value]
        elif isinstance(value, Mapping):
            value = "\n".join(f"{k}: {_plain(v)}" for k, v in value.items())
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


def downloads(
    points: Sequence[Row], verdicts: Row, policy: Row, provenance: Row, campaign: Campaign
) -> list[Download]:
    """The files that the page carries inside."""
    found = [
        Download(
            f"{campaign.name}-points.csv",
            f"points as CSV ({counted(len(points), 'row')})",
            _data_uri("text/csv", _csv(points)),
        ),
        Download(
            f"{campaign.name}-verdicts.json",
            "verdicts as JSON",
            _data_uri("application/json", json.dumps(verdicts, indent=1)),
        ),
        Download(
            f"{campaign.name}-policy.json",
            "policy as JSON",
            _data_uri("application/json", json.dumps(policy, indent=1)),
        ),
    ]
    if text := provenance.get("config_text"):
        found.append(
            Download(
                f"{campaign.name}.yaml", "the campaign as it was read", _data_uri("text/yaml", text)
            )
        )
    return found


def _csv(points: Sequence[Row]) -> str:
    """Points as CSV: missing is empty, lists and maps are JSON."""
    out = io.StringIO()
    writer = csv.DictWriter(out, [c.name for c in records.POINTS], lineterminator="\n")
    writer.writeheader()
    for p in points:
        cells = {**p, "errors_by_class": p["errors_by_class"] and dict(p["errors_by_class"])}
        writer.writerow(
            {k: json.dumps(v) if isinstance(v, (list, dict)) else v for k, v in cells.items()}
        )
    return out.getvalue()


def _data_uri(media_type: str, text: str) -> str:
    return f"data:{media_type};charset=utf-8;base64,{base64.b64encode(text.encode()).decode()}"
