"""Server-sent events out of a stream that was cut into reads anywhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

DONE = b"[DONE]"


def events(reads: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
    """The data of each event with the number of the read that completed it.

    Events end at a blank line, LF or CRLF; several `data:` lines are joined by LF; comments and
    other fields are left out, as is what no blank line has ended (HTML standard, §9.2.6).

    Args:
        reads: the body, read by read, from 0.
    """
    rest: list[bytes] = []
    data: list[bytes] = []
    for number, piece in enumerate(reads):
        if (
            piece.startswith(b"data: ")
            and piece.endswith(b"\n\n")
            and piece.find(b"\n") == len(piece) - 2
            and not (rest or data)
        ):  # most reads: one event of one line, as below it would come out, in half the time
            yield number, piece[6:-2].removesuffix(b"\r")
            continue
        *lines, last = piece.split(b"\n")
        if lines and rest:
            lines[0] = b"".join([*rest, lines[0]])
            rest.clear()
        if last:
            rest.append(last)
        for line in lines:
            if line[-1:] == b"\r":
                line = line[:-1]
            if line[:5] == b"data:":
                data.append(line[6:] if line[5:6] == b" " else line[5:])
            elif line == b"data":
                data.append(b"")
            elif not line and data:
                yield number, data[0] if len(data) == 1 else b"\n".join(data)
                data.clear()
