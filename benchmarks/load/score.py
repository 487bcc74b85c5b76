"""What a client reported against what was true."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Reported:
    """What a client says of a run. None: it does not say.

    arrivals: see `truth.ARRIVAL`; the other times follow from it where it is there.
    itl_p99_ms: of single gaps; None where a tool has only a mean per request.
    run_cpu_s: CPU seconds between the first connect and the last answer.
    connect_ms: mean time to open a connection, where it is no part of TTFT.
    scheduled: a record of when each request was to be sent, where a schedule says so.
    """

    arrivals: np.ndarray | None = None
    ttft_ms: float | None = None
    itl_ms: float | None = None
    itl_p99_ms: float | None = None
    run_cpu_s: float | None = None
    connect_ms: float | None = None
    scheduled: np.ndarray | None = None


def errors(reported: Reported, truth: np.ndarray) -> dict[str, float | None]:
    """Errors of stamps, TTFT and inter-token latency, and the share of merged events."""
    if reported.arrivals is None:
        true = _ordered(truth)
        return {
            "stamp_error_p50_us": None,
            "stamp_error_p99_us": None,
            "merged_share": None,
            "ttft_error_ms": _minus(reported.ttft_ms, _ttft_ms(true).mean()),
            "itl_error_us": _minus(reported.itl_ms, _itl_ms(true).mean(), 1000),
            "itl_p99_error_ms": _minus(reported.itl_p99_ms, np.percentile(_itl_ms(true), 99)),
        }
    seen, true = _common(reported.arrivals, truth)
    tokens = seen["event"] > 0
    stamp_errors_us = np.abs(seen["ns"] - true["ns"])[tokens] / 1000
    gaps_ms, true_gaps_ms = _itl_ms(seen), _itl_ms(true)
    return {
        "stamp_error_p50_us": float(np.percentile(stamp_errors_us, 50)),
        "stamp_error_p99_us": float(np.percentile(stamp_errors_us, 99)),
        "merged_share": _merged_share(seen),
        "ttft_error_ms": float(_ttft_ms(seen).mean() - _ttft_ms(true).mean()),
        "itl_error_us": float(gaps_ms.mean() - true_gaps_ms.mean()) * 1000,
        "itl_p99_error_ms": float(np.percentile(gaps_ms, 99) - np.percentile(true_gaps_ms, 99)),
    }


def send_slips(reported: Reported, truth: np.ndarray) -> dict[str, float | None]:
    """How late requests arrived at the server by their schedule."""
    if reported.scheduled is None:
        return {"send_slip_p50_ms": None, "send_slip_p99_ms": None}
    due, arrived = _common(reported.scheduled, truth)
    slips_ms = (arrived["ns"] - due["ns"]) / 1e6
    return {f"send_slip_p{p}_ms": float(np.percentile(slips_ms, p)) for p in (50, 99)}


def _minus(reported: float | None, true: float, scale: float = 1) -> float | None:
    return None if reported is None else float(reported - true) * scale


def _ordered(arrivals: np.ndarray) -> np.ndarray:
    return np.sort(arrivals, order=["request", "event"])


def _common(seen: np.ndarray, truth: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The events that both know, in the same order."""

    def keys(arrivals: np.ndarray) -> np.ndarray:
        return arrivals["request"].astype(np.int64) << 32 | arrivals["event"]

    _, of_seen, of_truth = np.intersect1d(keys(seen), keys(truth), return_indices=True)
    return seen[of_seen], truth[of_truth]


def _ttft_ms(ordered: np.ndarray) -> np.ndarray:
    first = np.flatnonzero(ordered["event"] == 1)
    return (ordered["ns"][first] - ordered["ns"][first - 1]) / 1e6


def _itl_ms(ordered: np.ndarray) -> np.ndarray:
    later = np.flatnonzero(ordered["event"] > 1)
    return (ordered["ns"][later] - ordered["ns"][later - 1]) / 1e6


def _merged_share(ordered: np.ndarray) -> float:
    """Share of token events that have the same stamp as a neighbour of their request."""
    same = (np.diff(ordered["ns"]) == 0) & (np.diff(ordered["request"]) == 0)
    shared = np.append(same, False) | np.insert(same, 0, False)
    return float(shared.sum() / (ordered["event"] > 0).sum())
