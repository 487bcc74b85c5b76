import itertools
from array import array
from pathlib import Path

import httptools
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sse_server import content, event, usage

from crossover import records
from crossover.load.decode import chunk_row, decode, request_row
from crossover.load.exchange import Exchange

TRANSCRIPTS = sorted((Path(__file__).parents[1] / "data" / "sse").glob("*.sse"))
TRUTH = {  # usage's output tokens, events with content, finish reason, cached tokens
    "llamacpp_base": (82, 81, "stop", 0),
    "llamacpp_draft_q4_1": (82, 81, "stop", 0),
    "llamacpp_ngram_simple": (82, 81, "stop", 0),
    "llamacpp_ngram_timings_per_token": (40, 40, "length", 77),
    "sglang_base": (24, 24, "length", None),
    "sglang_base_completions": (24, 24, "length", None),
    "sglang_eagle3": (24, 11, "length", None),
    "sglang_eagle3_completions": (24, 9, "length", None),
    "vllm_ngram4": (82, 59, "stop", None),
}


class Body:
    def __init__(self):
        self.data = b""

    def on_body(self, data):
        self.data += data


def body_of(path: Path) -> bytes:
    raw = path.read_bytes()
    if not raw.startswith(b"HTTP/"):
        return raw
    body = Body()
    httptools.HttpResponseParser(body).feed_data(raw)
    return body.data


def exchange(*reads: bytes, **more) -> Exchange:
    stamps = array("q", (1_000_000 * (i + 1) for i in range(len(reads))))
    return Exchange(0, 0, 0, stamps=stamps, bodies=list(reads), end_ns=10**9, **more)


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda p: p.stem)
@given(places=st.lists(st.integers(min_value=0), max_size=40))
@settings(max_examples=25)
def test_recorded_streams_cut_anywhere(path, places):
    data = body_of(path)
    edges = [0, *sorted(p % (len(data) + 1) for p in places), len(data)]
    answer = decode(exchange(*(data[a:b] for a, b in itertools.pairwise(edges))))
    whole = decode(exchange(data))
    output_tokens, events, finish, cached = TRUTH[path.stem]
    assert answer.status == "ok", answer.error_message
    assert (answer.output_tokens, len(answer.sizes)) == (output_tokens, events)
    assert (answer.finish_reason, answer.cached_tokens) == (finish, cached)
    assert sum(answer.event_tokens()) == pytest.approx(output_tokens)
    assert answer.text_digest == whole.text_digest
    assert [*answer.stamps_ns] == sorted(answer.stamps_ns)
    assert all(whole.merged)


def test_every_transcript_is_covered():
    assert {p.stem for p in TRANSCRIPTS} == set(TRUTH)


def test_tokens_are_spread_by_bytes_where_events_hold_several():
    answer = decode(
        exchange(
            event(content("ab")),
            event(content("abcdef")),
            event(content(None, "stop")) + event(usage(4)),
        )
    )
    assert answer.event_tokens() == [1.0, 3.0]
    assert not answer.has_event_counts
    assert request_row(answer, None)["first_chunk_tokens"] == 1


def test_one_token_an_event_is_recognised_and_a_silent_end_counted_last():
    answer = decode(
        exchange(
            event(content("a")),
            event(content("bcdefgh")),
            event(content(None, "stop")) + event(usage(3)),
        )
    )
    assert answer.event_tokens() == [1.0, 2.0]
    assert answer.has_event_counts
    assert chunk_row(answer)["tokens"] is None  # inferred, not told


def test_running_usage_gives_tokens_of_each_event():
    def chunk(text, total):
        return event(content(text, usage=usage(total)["usage"]))

    answer = decode(
        exchange(
            event(content("", usage=usage(0)["usage"])),
            chunk("aaaa", 3),
            chunk("b", 4),
            chunk("cc", 8),
            event(content(None, "stop", usage=usage(9)["usage"])) + event(usage(9)),
        )
    )
    assert [*answer.counts] == [3, 1, 4]
    assert answer.event_tokens() == [3.0, 1.0, 5.0]
    assert chunk_row(answer)["tokens"] == [3, 1, 4]


def test_reasoning_and_tool_calls_are_content():
    def delta(**fields):
        return event({"choices": [{"delta": fields}]})

    answer = decode(
        exchange(
            delta(reasoning_content="hm", content=None),
            delta(reasoning="hm"),
            delta(tool_calls=[{"index": 0, "function": {"name": "f", "arguments": "{"}}]),
            event(content(None, "tool_calls")) + event(usage(9)),
        )
    )
    assert answer.status == "ok"
    assert [*answer.sizes] == [2, 2, 2]


def test_answer_that_was_not_streamed():
    body = (
        b'{"choices":[{"message":{"role":"assistant","content":"hi"},"finish_reason":"stop"}],'
        b'"usage":{"prompt_tokens":3,"completion_tokens":2,'
        b'"prompt_tokens_details":{"cached_tokens":1}}}'
    )
    answer = decode(exchange(b"\n", b"\n ", body[:20], body[20:]))
    assert (answer.status, answer.output_tokens, answer.cached_tokens) == ("ok", 2, 1)
    assert [*answer.stamps_ns] == [4_000_000]
    assert answer.event_tokens() == [2.0]


@pytest.mark.parametrize(
    ("reads", "error_class", "said"),
    [
        ([event(content("a"))], "truncated", "finish reason"),
        ([event(content("a", "stop"))], "no_usage", "usage"),
        ([event(content(None, "stop")), event(usage(0))], "empty", "content"),
        ([], "truncated", "finish reason"),
        ([event(content("a")), event({"error": {"message": "boom"}})], "stream_error", "boom"),
        ([event({"object": "error", "message": "boom"})], "stream_error", "boom"),
        ([event({"error": "boom"})], "stream_error", "boom"),
        ([event(content("a")), event("{nonsense")], "bad_json", "malformed"),
        ([b'data: {"choices":[{"text":"\xff"}]}\n\n'], "bad_json", "utf-8"),
        ([b'data: {"con\xeetent":0,"choices":[]}\n\n'], "bad_json", "utf-8"),
        ([b'data: {"error":' + 100_000 * b"[" + b"\n\n"], "bad_json", "recursion"),
        ([event(content("a", usage={"completion_tokens": -1}))], "bad_json", ">= 0"),
        (
            [event(content("a", usage={"completion_tokens": 10**20}))],
            "bad_json",
            "completion_tokens",
        ),
    ],
)
def test_failures_have_a_class(reads, error_class, said):
    answer = decode(exchange(*reads))
    assert (answer.status, answer.error_class) == ("failed", error_class)
    assert said in answer.error_message


def test_error_of_the_connection_wins():
    failed = exchange(event(content("a")), error_class="reset", error_message="gone")
    answer = decode(failed)
    assert (answer.status, answer.error_class, answer.error_message) == ("failed", "reset", "gone")
    assert len(answer.sizes) == 1


def test_cancelled_is_no_failure():
    answer = decode(exchange(event(content("a")), cancelled=True))
    assert (answer.status, answer.error_class) == ("cancelled", None)


def test_merged_are_events_with_content_that_share_a_read():
    answer = decode(
        exchange(
            event(content(None)) + event(content("a")),
            event(content("b")) + event(content("c")),
            event(content("d")),
            event(content(None, "stop")) + event(usage(4)),
        )
    )
    assert [*answer.merged] == [False, True, True, False]
    assert request_row(answer, None)["merged_reads"] == 1


def test_rows_fit_the_records():
    answer = decode(exchange(event(content("a", "stop")), event(usage(1)), sent_ns=500_000))
    table = records.to_table([request_row(answer, (0, 10**6))], records.REQUESTS)
    assert table["in_window"].to_pylist() == [True]
    assert table["first_token_s"].to_pylist() == [0.001]
    chunks = records.to_table([chunk_row(answer)], records.CHUNKS)
    assert chunks["offset_us"].to_pylist() == [[500]]


DAMAGE = [b"", b"data:", b"\n\n", b"\r", b"{", b'"', b"null", b"-1", b"1e400", b"\xff", b"\\ud800"]
DAMAGE += [b'"error":"boom",', b"[DONE]", b"[" * 3000]


@given(
    edits=st.lists(
        st.tuples(
            st.integers(min_value=0),
            st.integers(0, 20),
            st.sampled_from(DAMAGE),
        ),
        max_size=6,
    )
)
@settings(max_examples=300)
def test_damaged_streams_are_good_or_have_a_class(edits):
    data = b"".join(event(content(f"tok{i} é", usage=usage(i + 1)["usage"])) for i in range(4))
    data += event(content(None, "stop")) + event(usage(4)) + event("[DONE]")
    for place, length, new in edits:
        at = place % len(data)
        data = data[:at] + new + data[at + length :]
    answer = decode(exchange(*(data[i : i + 40] for i in range(0, len(data), 40))))
    assert (answer.error_class is None) == (answer.status == "ok")
    assert len(answer.sizes) == len(answer.stamps_ns) == len(answer.merged)
    if answer.status == "ok":
        assert sum(answer.event_tokens()) == pytest.approx(answer.output_tokens)
