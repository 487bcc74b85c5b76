"""The data contract: every table's columns, with type, unit and meaning, and how it is written.

Missing is null, never 0. Times with suffix `_s` are seconds; `scheduled_s`, `sent_s`,
`first_token_s`, `end_s` are CLOCK_MONOTONIC of the measuring host, which `started_at` ties to the wall clock.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from crossover.files import replacing


class Column(NamedTuple):
    """One column of a table."""

    name: str
    type: pa.DataType
    meaning: str


_WHERE = (
    Column("campaign", pa.string(), "campaign"),
    Column("variant", pa.string(), "server configuration"),
    Column("workload", pa.string(), "prompt set with its output length and sampling"),
    Column("trial", pa.int32(), "trial, from 1"),
    Column("concurrency", pa.int32(), "level: requests in flight, held constant; null: open loop"),
    Column(
        "request_rate",
        pa.float64(),
        "level: requests a second, sent on a schedule; null: closed loop",
    ),
    Column("session_id", pa.string(), "the life of the server that was measured"),
)

REQUESTS = (
    *_WHERE,
    Column("request_id", pa.int32(), "number of the request within its point, in order of sending"),
    Column("client", pa.int32(), "which of the level's clients sent it"),
    Column(
        "prompt_id",
        pa.int32(),
        "line of the prompt file, or number of the point's prompt of a supplied text, from 0",
    ),
    Column(
        "scheduled_s",
        pa.float64(),
        "when it was to be sent, which its latencies run from; null: closed loop, they run from "
        "sent_s",
    ),
    Column("sent_s", pa.float64(), "just before the first byte was sent"),
    Column("first_token_s", pa.float64(), "arrival of the first content; null: none came"),
    Column("last_token_s", pa.float64(), "arrival of the last content"),
    Column("end_s", pa.float64(), "end of the answer, or the moment it failed or was cancelled"),
    Column("in_window", pa.bool_(), "sent, or scheduled, inside the steady window"),
    Column("status", pa.string(), "ok, failed, or cancelled (still in flight at the end)"),
    Column("error_class", pa.string(), "class of a failure, e.g. http_503, truncated, timeout"),
    Column("error_message", pa.string(), "first 200 characters of what the server said"),
    Column("finish_reason", pa.string(), "as the server gave it"),
    Column("prompt_tokens", pa.int32(), "by the server's usage"),
    Column("output_tokens", pa.int32(), "by the server's usage"),
    Column("cached_tokens", pa.int32(), "prompt tokens taken from the prefix cache, by usage"),
    Column("chunks", pa.int32(), "events with content"),
    Column("first_chunk_tokens", pa.int32(), "tokens in the first chunk with content"),
    Column("merged_reads", pa.int32(), "reads that held several events, which share one stamp"),
    Column("resent", pa.int32(), "times it was sent again: a kept-alive connection was dropped"),
    Column("text_digest", pa.string(), "16 hex digits of SHA-256 of the answer's text"),
    Column(
        "looped_share",
        pa.float64(),
        "share of the text that is its end, over and over; null: no text",
    ),
)

CHUNKS = (
    Column("request_id", pa.int32(), "as in requests"),
    Column("offset_us", pa.list_(pa.int32()), "arrival of each content event, µs from its sending"),
    Column("bytes", pa.list_(pa.int32()), "content bytes of each event"),
    Column(
        "tokens", pa.list_(pa.int32()), "tokens of each event; null where the server gives none"
    ),
    Column("merged", pa.list_(pa.bool_()), "shares its read, and so its stamp, with another event"),
)

POINTS = (
    *_WHERE,
    Column("started_at", pa.float64(), "wall clock at the start of the load (Unix seconds)"),
    Column("started_s", pa.float64(), "monotonic clock at the same moment"),
    Column("window_start_s", pa.float64(), "monotonic clock at the opening of the window"),
    Column("window_s", pa.float64(), "length of the steady window"),
    Column("load_s", pa.float64(), "first connect to last response"),
    Column("valid", pa.bool_(), "may carry a verdict"),
    Column("invalid_reasons", pa.list_(pa.string()), "why not"),
    Column("warnings", pa.list_(pa.string()), "what a reader should know although it is valid"),
    Column(
        "output_throughput_tokens_per_s", pa.float64(), "tokens received in the window / its length"
    ),
    Column(
        "whole_run_tokens_per_s",
        pa.float64(),
        "tokens of all answers / load_s; ramp and drain included",
    ),
    Column(
        "cv_within", pa.float64(), "coefficient of variation of the window's mean (20 batch means)"
    ),
    Column(
        "token_times_source",
        pa.string(),
        "events: per-event counts; bytes: usage spread by content bytes",
    ),
    Column("requests", pa.int32(), "requests sent"),
    Column("completed", pa.int32(), "answers that succeeded"),
    Column("failed", pa.int32(), "requests that failed"),
    Column("cancelled", pa.int32(), "in flight at the end and cancelled"),
    Column("error_share", pa.float64(), "failed / (completed + failed)"),
    Column("errors_by_class", pa.map_(pa.string(), pa.int32()), "failures by class"),
    Column("resent", pa.int32(), "requests sent again after a dropped kept-alive connection"),
    Column("warmup_completed", pa.int32(), "answers that ended before the window"),
    Column("window_completed", pa.int32(), "answers that ended in the window"),
    Column(
        "halves_difference_se",
        pa.float64(),
        "difference of the window's halves / its standard error; null: too few arrivals",
    ),
    Column("achieved_concurrency", pa.float64(), "mean requests in flight in the window"),
    Column("in_flight_max", pa.int32(), "most requests in flight at once, whole point"),
    Column(
        "backlog_growth",
        pa.float64(),
        "(requests scheduled in the window - those that ended in it) / sqrt(1 + 2 x mean requests "
        "in flight); null: closed loop",
    ),
    Column(
        "in_flight_limit_reached",
        pa.bool_(),
        "load.arrivals.max_in_flight ended the point; null: closed loop",
    ),
    Column("prompt_tokens_mean", pa.float64(), "prompt tokens of an answer"),
    Column("output_tokens_mean", pa.float64(), "output tokens of an answer"),
    Column("output_tokens_min", pa.int32(), "output tokens of the shortest answer"),
    Column("output_tokens_max", pa.int32(), "output tokens of the longest answer"),
    Column(
        "fixed_output_tokens",
        pa.int32(),
        "output tokens that every answer was to have; null: answers end by themselves",
    ),
    Column("looped_share_mean", pa.float64(), "looped_share of an answer (see requests)"),
    Column("cached_tokens_share", pa.float64(), "cached / prompt tokens, by usage"),
    Column("distinct_prompts", pa.int32(), "different lines of the prompt set among the requests"),
    *(
        Column(f"{what}_{q}", pa.float64(), f"{meaning}, {q}")
        for what, meaning in (
            ("ttft_s", "send, or schedule, to first token; requests in_window"),
            ("tpot_s", "(last - first token) / (output tokens - tokens of the first chunk)"),
            ("itl_s", "gap between consecutive content events of a request"),
            ("e2e_s", "send, or schedule, to end of the answer"),
        )
        for q in ("mean", "p50", "p90", "p99")
    ),
    Column("decode_rate_tokens_per_s", pa.float64(), "median over requests of 1 / TPOT"),
    Column("tokens_per_chunk", pa.float64(), "output tokens / events with content"),
    Column("engine_output_tokens", pa.float64(), "tokens the engine counted over the whole point"),
    Column("received_output_tokens", pa.float64(), "tokens received over the whole point"),
    Column(
        "estimated_tokens_share",
        pa.float64(),
        "share of the window's tokens that are estimated: requests cancelled without usage",
    ),
    Column(
        "verify_steps", pa.float64(), "draft verifications over the whole point, engine's counter"
    ),
    Column("drafted_tokens", pa.float64(), "drafted tokens over the whole point, engine's counter"),
    Column("accepted_tokens", pa.float64(), "accepted drafted tokens over the whole point"),
    Column("acceptance_length", pa.float64(), "1 + accepted / verify steps"),
    Column("acceptance_rate", pa.float64(), "accepted / drafted tokens"),
    Column("tokens_per_step", pa.float64(), "generated / (generated - accepted)"),
    Column(
        "accepted_per_position",
        pa.list_(pa.float64()),
        "accepted at each draft position / verify steps",
    ),
    Column("preemptions", pa.float64(), "requests preempted over the whole point"),
    Column("running_requests_mean", pa.float64(), "running in the server, sampled in the window"),
    Column("queued_requests_mean", pa.float64(), "waiting in the server, sampled in the window"),
    Column("running_requests_p50", pa.float64(), "running, median; null: fewer than three samples"),
    Column("queued_requests_p50", pa.float64(), "waiting, median; null as above"),
    Column("kv_cache_usage_max", pa.float64(), "share of the KV cache in use, greatest sample"),
    Column(
        "server_cpu_share", pa.float64(), "CPU seconds of the server's processes / second, window"
    ),
    Column(
        "front_end_cpu_share_max",
        pa.float64(),
        "CPU seconds / second of the busiest process in front of the engine, window",
    ),
    Column("front_end_busiest", pa.string(), "name of that process"),
    Column(
        "received_share",
        pa.float64(),
        "tokens received / decoded by the engine's live counter, window; null: it has none",
    ),
    Column(
        "client_cpu_share", pa.float64(), "CPU seconds of the load client / second, whole point"
    ),
    *(
        Column(
            f"send_slip_s_{q}",
            pa.float64(),
            f"end of an answer to the same client's next send, or schedule to send, window, {q}",
        )
        for q in ("mean", "p50", "p90", "p99")
    ),
    Column(
        "send_slip_share",
        pa.float64(),
        "sum of these / (requests in flight x window): time lost before sending",
    ),
    Column(
        "client_stall_s_max",
        pa.float64(),
        "longest time by which the client's loop came round late, window; 0: never by 10 ms",
    ),
    Column("client_stalled_share", pa.float64(), "sum of such times / window"),
    Column("machine_cpu_share", pa.float64(), "busy share of all cores, window"),
    Column(
        "cache_reset", pa.bool_(), "the server confirmed an empty prefix cache; null: not asked"
    ),
    Column("stamp_source", pa.string(), "kernel or user: where arrival times come from"),
    Column("events", pa.int64(), "events with content"),
    Column("merged_events", pa.int64(), "events that share their read's stamp"),
    Column("connect_s_mean", pa.float64(), "time to open a connection; not part of TTFT"),
    Column("clock_drift_us", pa.float64(), "change of wall against monotonic clock over the point"),
    Column("gpu_power_w_mean", pa.float64(), "power of the point's GPUs; null: no GPU"),
    Column("gpu_energy_j", pa.float64(), "energy of the point's GPUs in the window"),
    Column("gpu_memory_bytes_max", pa.float64(), "memory in use on the point's GPUs"),
    Column("gpu_sm_clock_mhz_mean", pa.float64(), "SM clock of the slowest of the point's GPUs"),
    Column(
        "gpu_power_throttled_share", pa.float64(), "samples in which power held the clocks down"
    ),
    Column("gpu_heat_throttled_share", pa.float64(), "samples in which heat held the clocks down"),
    Column("server_digest", pa.string(), "digest of the server configuration"),
    Column("point_digest", pa.string(), "digest of the workload and load settings"),
    Column("protocol", pa.int32(), "number of the measuring protocol"),
    Column("commit", pa.string(), "commit of the measuring code"),
    Column("source", pa.string(), "imported: the file and place in it; null: measured here"),
)

SESSIONS = (
    Column("campaign", pa.string(), "campaign"),
    Column("variant", pa.string(), "server configuration"),
    Column("trial", pa.int32(), "trial, from 1"),
    Column("session_id", pa.string(), "sortable by time"),
    Column("rank", pa.int32(), "planned place in the campaign's order"),
    Column("engine", pa.string(), "kind of server"),
    Column(
        "command",
        pa.list_(pa.string()),
        "as started, ${NAME} not filled in; null: endpoint not ours",
    ),
    Column(
        "env",
        pa.map_(pa.string(), pa.string()),
        "variables set for the server, ${NAME} not filled in",
    ),
    Column(
        "inherited_env",
        pa.map_(pa.string(), pa.string()),
        "variables from the shell that may change its speed; credentials hidden",
    ),
    Column("devices", pa.list_(pa.string()), "devices held"),
    Column("model_name", pa.string(), "name asked for"),
    Column("model_path", pa.string(), "file or folder served"),
    Column("model_fingerprint", pa.string(), "size and digest of the model file's ends"),
    Column("speculation_method", pa.string(), "by the config"),
    Column("drafted_tokens", pa.int32(), "by the config"),
    Column("server_digest", pa.string(), "digest of the server configuration"),
    Column("protocol", pa.int32(), "number of the measuring protocol"),
    Column("commit", pa.string(), "commit of the measuring code"),
    Column("host", pa.string(), "host name"),
    Column("boot_id", pa.string(), "boot of the host"),
    Column("hardware", pa.string(), "JSON: CPU model, cores, memory, GPUs, driver, kernel"),
    Column("versions", pa.string(), "JSON: Python and packages that measured"),
    Column("started_at", pa.float64(), "start of the server (Unix seconds)"),
    Column("started_s", pa.float64(), "monotonic clock at the same moment"),
    Column("ready_after_s", pa.float64(), "start to a correct streamed answer"),
    Column("engine_version", pa.string(), "by the server's own account, or its package"),
    Column("description", pa.string(), "JSON: what the server says it runs"),
    Column("stopped_at", pa.float64(), "the server was gone (Unix seconds)"),
    Column("stop_reason", pa.string(), "teardown, owner gone, server exited, …"),
    Column("exit_code", pa.int32(), "of the server; negative: the signal that ended it"),
    Column("exit_reason", pa.string(), "the same in words, with what the kernel says of memory"),
    Column("stop_s", pa.float64(), "TERM, or the stop command, to gone"),
    Column("killed", pa.bool_(), "did not end within the grace time"),
    Column("processes_left", pa.list_(pa.int32()), "pids that outlived the stop; must be empty"),
    Column("port_closed", pa.bool_(), "nothing listens on the port after the stop"),
    Column(
        "stop_problem",
        pa.string(),
        "what went wrong with the variant's stop command; null: nothing",
    ),
    Column("gpu_memory_before_bytes", pa.list_(pa.int64()), "per GPU, before the start"),
    Column("gpu_memory_after_bytes", pa.list_(pa.int64()), "per GPU, after the stop"),
)


def arrow_schema(columns: Iterable[Column]) -> pa.Schema:
    """The Arrow schema of a table, with each column's meaning as its metadata."""
    return pa.schema([pa.field(c.name, c.type, metadata={"meaning": c.meaning}) for c in columns])


def to_table(rows: Iterable[Mapping[str, Any]], columns: tuple[Column, ...]) -> pa.Table:
    """An Arrow table of `rows`; a key that a row lacks is null, an unknown one is an error."""
    names = [c.name for c in columns]
    rows = list(rows)
    for row in rows:
        if unknown := set(row) - set(names):
            raise KeyError(f"no such column: {', '.join(sorted(unknown))}")
    return pa.table(
        {c.name: pa.array([row.get(c.name) for row in rows], c.type) for c in columns},
        schema=arrow_schema(columns),
    )


def write_parquet(table: pa.Table, path: str | os.PathLike[str]) -> None:
    """Write a table so that `path` is either absent, the old one, or whole."""
    with replacing(path) as temporary:
        pq.write_table(table, temporary, compression="zstd")
