"""What a person sees on a terminal, and what lands in a file."""

from __future__ import annotations

import os
import pty
from collections.abc import Iterator

import pytest

from crossover.progress import Terminal, duration


def until_hung_up(main: int) -> Iterator[bytes]:
    """All that reaches a terminal whose other side is closed: one read may hold a part of it."""
    while True:
        try:
            yield os.read(main, 4096)
        except OSError:  # EIO: nothing is left, and nobody writes any more
            return


def test_on_a_terminal_the_line_is_rewritten_and_gone_at_the_end(capsys):
    main, tty = pty.openpty()
    with Terminal(tty) as terminal:
        terminal.show("first")
        terminal.show("second")
        terminal.say("done")
    os.close(tty)
    shown = b"".join(until_hung_up(main)).decode()
    os.close(main)
    assert "\r\x1b[2Kfirst\r\x1b[2Ksecond" in shown
    assert shown.endswith("\r\x1b[2K")
    assert "done" in shown
    assert capsys.readouterr().out == "done\n"


def test_in_a_file_there_is_what_was_said_and_no_control_character(tmp_path, capsys):
    with (tmp_path / "log").open("w") as log, Terminal(log.fileno()) as terminal:
        terminal.show("moving")
        terminal.say("done")
    assert (tmp_path / "log").read_text() == "done\n"
    assert capsys.readouterr().out == "done\n"


def test_without_a_terminal_to_write_to_only_the_log_is_written(capsys):
    with Terminal(1_000_000) as terminal:
        terminal.show("moving")
        terminal.say("done")
    assert capsys.readouterr().out == "done\n"


@pytest.mark.parametrize(
    ("seconds", "said"), [(45, "45 s"), (600, "10 min"), (10_000, "2.8 h"), (0, "0 s")]
)
def test_durations_read_as_people_say_them(seconds, said):
    assert duration(seconds) == said
