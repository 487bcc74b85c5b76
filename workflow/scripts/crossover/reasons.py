"""What the reasons of points and verdicts mean, in words."""

from __future__ import annotations

import re

CODES = {
    # of points: validity.INVALID and validity.WARNINGS
    "errors": "more than 1 % of the requests failed",
    "no_tokens": "no tokens arrived in the window",
    "too_short": "too few answers before or in the window",
    "not_stationary": "the throughput drifted over the window",
    "overloaded": "requests arrived faster than the server answered: the number in flight kept growing",
    "concurrency_not_held": "fewer requests were in flight than the level says",
    "queue_limited": "requests waited in the server: fewer ran than the level says",
    "front_end_limited": "the processes in front of the engine were the limit, not the engine",
    "front_end_busy": "a process in front of the engine used a whole core",
    "client_limited": "the load client, not the server, held the load back",
    "stationarity_unknown": "too few arrivals to tell whether the throughput was steady",
    "tokens_estimated": "many tokens are estimated: their requests were cancelled without usage",
    "token_counts_differ": "the engine counted other numbers of tokens than arrived",
    "events_merged": "many tokens arrived in one read and share a time stamp",
    "lengths_vary": "answers were to have a fixed length and have not: the server ignores ignore_eos",
    "answers_looped": "more than a fifth of the text is answers that repeat themselves, which is easy "
    "to draft",
    "queue_unknown": "the server does not tell how many requests run or wait",
    "cache_not_reset": "the server did not confirm that its prefix cache was emptied",
    "prompts_cached": "most prompt tokens came from a cache although all prompts are unique",
    "prompts_repeated": "the prompt set was gone through more than four times",
    "user_stamps": "arrival times are the client's, not the kernel's",
    "clock_set": "the host's clock was set during the point",
    # of imported runs: imports
    "run_incomplete": "the load tool says that the run did not end as planned",
    "whole_run": "throughput of the whole run: ramp and tail are in it",
    "few_requests": "fewer than four requests per client: ramp and tail are a large part of the run",
    "concurrency_below_level": "on average clearly fewer requests were in flight than the level says",
    "rate_limited": "requests arrived at a fixed rate below a cap, which is no closed loop",
    "peak_below_average": "the tool's peak throughput is below its average: it counts chunks, not tokens",
    "lengths_requested": "output lengths are those that were asked for, not counted ones",
    "acceptance_of_server": "the acceptance length is the server's own average, which may reach beyond the run",
    "not_stated": "the file does not say",
    "columns_unused": "columns that were not used",
    "left_out": "left out of the import",
    "files_left_out": "in no format that can be imported (why: see the log of import_points)",
    "restarts_unknown": "the files do not say whether the server was restarted between repeats: if it "
    "was not, the intervals are too narrow",
    "repeats_differ": "repeats of this level have other mean lengths: they may not be the same work",
    "tool_differs": "measured with another tool than the baseline",
    "model_name_differs": "another model name than the baseline's",
    "settings_differ": "server settings other than the baseline's",
    "workload_differs": "another workload than the baseline's",
    "prompt_length_differs": "mean prompt lengths other than the baseline's",
    # of verdicts
    "crossing_within_margin": "the sign changes, but within the margin",
    "fewer_than_2_common_levels": "fewer than two levels in common",
    "levels_unresolved": "some levels are not resolved",
    "no_significant_level": "no level shows a difference beyond the noise",
    "operational_law_violated": "throughput changes more than concurrency explains",
    "single_repeat": "one trial only",
    # of the arms: parity
    "cap_differs": "one server ran fewer requests at once than the level says, the other did not",
    "running_differs": "the engines did not have the same number of requests, though the clients did",
    "hardware_differs": "the arms ran on different processors",
    "model_file_differs": "the model's file is not the same in both arms, though its path is",
    "speculation_not_applied": "an arm that is to speculate does not, by its server's own account",
    # of what_if
    "acceptance_unknown": "no count of accepted drafts is on record",
    "baseline_speculates": "the baseline speculates too: there is no plain step to count in",
    "drafts_from_text": "it drafts only where the text repeats itself, so another text drafts less",
    "drafting_varies": "not every step drafts the same number of tokens",
    "drafting_unknown": "the engine does not count what it drafts and verifies",
    "output_lengths_unknown": "the length of the answers is not known",
    "acceptance_too_far": "it is too far from the acceptances that were measured",
    "acceptance_as_measured": "it is the acceptance that was measured: the verdict is the answer",
}
"""What reasons mean; an unknown one is printed as it is, without its underscores."""

REMEDIES = {
    "errors": "see their classes under “Failed requests”, and the cause in the session's server log",
    "no_tokens": "see “Failed requests” and the session's server log; if none failed, no answer came in "
    "time: raise load.warmup and load.steady",
    "too_short": "raise load.warmup.max_s and load.steady.max_s, or ask for fewer max_tokens; if other "
    "work slowed the server down, end that first",
    "not_stationary": "look for other work on the machine, and for a server that slows down as it heats up "
    "or its cache fills; if there is none, raise load.warmup and load.steady",
    "overloaded": "leave the request rate out, or raise load.steady if the server only just keeps up; "
    "see backlog_growth and in_flight_max in points.parquet",
    "concurrency_not_held": "see “Failed requests”: clients wait after one; if none failed, something else "
    "held the load client up: end other work on its machine",
    "queue_limited": "raise the server's limit of running requests to the level and give it the memory "
    "for them, or leave the level out",
    "front_end_limited": "give the server more processes in front of the engine (API servers, "
    "tokenizer workers)",
    "front_end_busy": "nothing where received_share in points.parquet is about 1; else give the server more "
    "processes in front of the engine",
    "client_limited": "keep a core free for the load client: end other work on its machine, give the "
    "server fewer threads, or measure from another machine; see client_cpu_share, send_slip_share and "
    "client_stalled_share in points.parquet",
    "stationarity_unknown": "raise load.steady.min_s",
    "tokens_estimated": "raise load.steady, so that fewer answers are cut off at its end",
    "token_counts_differ": "make sure that nobody else uses the server; compare engine_output_tokens "
    "and received_output_tokens in points.parquet",
    "events_merged": "keep a core free for the load client, which read too late to tell them apart",
    "lengths_vary": "set ignore_eos: false, or use an engine that obeys it",
    "answers_looped": "use prompts whose answers are as long as max_tokens, or ignore_eos: false",
    "cache_not_reset": "switch the server's prefix cache off, or see its log for why it did not",
    "prompts_cached": "switch the server's prefix cache off, or shorten what all prompts begin with",
    "prompts_repeated": "use a longer prompt set: the interval says nothing of other prompts",
}
"""What to do about a reason of a point, where something can be done."""


def words(code: str) -> str:
    """A reason in words: known codes are explained, `code: detail` keeps its detail."""
    head, colon, detail = code.partition(":")
    if not re.fullmatch(r"[a-z0-9_]+", head):
        return code
    return CODES.get(head, head.replace("_", " ")) + colon + detail


def remedy(code: str) -> str | None:
    """What to do about a reason of a point; None: there is nothing to do, or to know."""
    return REMEDIES.get(code.partition(":")[0])
