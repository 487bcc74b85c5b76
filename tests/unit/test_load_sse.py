import itertools

from hypothesis import given
from hypothesis import strategies as st

from crossover.load.sse import events


def cut(data: bytes, places: list[int]) -> list[bytes]:
    edges = [0, *sorted(p % (len(data) + 1) for p in places), len(data)]
    return [data[a:b] for a, b in itertools.pairwise(edges)]


def test_event_gets_the_read_that_completed_it():
    assert list(events([b"data: a\n", b"\ndata: b\n\nda", b"ta: c\n\n"])) == [
        (1, b"a"),
        (1, b"b"),
        (2, b"c"),
    ]


def test_lines_are_joined_and_comments_and_other_fields_left_out():
    stream = b": ping\n\nevent: x\nid: 3\ndata: one\ndata:two\ndata\n\nretry: 5\n\n"
    assert list(events([stream])) == [(0, b"one\ntwo\n")]


def test_only_one_space_is_taken_off():
    assert list(events([b"data:  a\n\ndata:b\n\n"])) == [(0, b" a"), (0, b"b")]


def test_event_without_blank_line_is_left_out():
    assert list(events([b"data: a\n\ndata: b\n"])) == [(0, b"a")]


@given(
    st.lists(st.text(st.characters(blacklist_characters="\r\n", codec="utf-8"), min_size=1)),
    st.sampled_from([b"\n", b"\r\n"]),
    st.lists(st.integers(min_value=0)),
)
def test_cuts_anywhere_give_the_same_events(texts, newline, places):
    stream = b"".join(b"data: " + text.encode() + 2 * newline for text in texts)
    reads = cut(stream, places)
    found = list(events(reads))
    assert [data.decode() for _, data in found] == texts
    assert [read for read, _ in found] == sorted(read for read, _ in found)
    ends = [sum(len(r) for r in reads[: read + 1]) for read, _ in found]
    expected_end = 0
    for text, end in zip(texts, ends, strict=True):
        expected_end += len(b"data: " + text.encode() + 2 * newline)
        assert end >= expected_end
