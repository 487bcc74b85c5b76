"""Blank the GPU code of a shared library that one kind of GPU does not run.

A CUDA library holds its kernels once for every architecture: in sections of fat binaries, each with
entries of machine code (cubins) or of PTX. What is not kept becomes zeros in place, so that no
offset changes; zeros pack to nothing.
"""

from __future__ import annotations

import mmap
import struct
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SECTIONS = (".nv_fatbin", "__nv_relfatbin")
MAGIC = 0xBA55ED50
CUBIN = 2
NO_BITS = 8


class Entry(NamedTuple):
    """One piece of code in a fat binary: where it lies in the file, in bytes."""

    kind: int
    architecture: int
    start: int
    size: int


def blank(library: Path, keep: Callable[[Entry, bytes], bool]) -> tuple[int, int]:
    """Zero all entries but those that `keep(entry, code)` wants; bytes (kept, blanked).

    Raises:
        ValueError: the file is no 64-bit ELF, or a fat binary is not as expected.
    """
    kept = blanked = 0
    with library.open("r+b") as file, mmap.mmap(file.fileno(), 0) as content:
        for entry in list(_entries(content)):
            span = slice(entry.start, entry.start + entry.size)
            if keep(entry, content[span]):
                kept += entry.size
            else:
                content[span] = bytes(entry.size)
                blanked += entry.size
    return kept, blanked


def _entries(content: mmap.mmap) -> Iterator[Entry]:
    for position, end in _fat_sections(content):
        while position < end - 16:
            magic, _, header, length = struct.unpack_from("<IHHQ", content, position)
            if magic != MAGIC:
                position += 8
                continue
            position += header
            container_end = position + length
            while position < container_end:
                kind, _, header, size = struct.unpack_from("<HHIQ", content, position)
                if header < 48 or position + header + size > container_end:
                    raise ValueError(f"no fat binary entry at {position:#x}")
                (architecture,) = struct.unpack_from("<I", content, position + 28)
                yield Entry(kind, architecture, position + header, size)
                position += header + size
            position = (container_end + 7) & ~7


def _fat_sections(content: mmap.mmap) -> Iterator[tuple[int, int]]:
    if content[:5] != b"\x7fELF\x02":
        raise ValueError("no 64-bit ELF file")
    (table,) = struct.unpack_from("<Q", content, 0x28)
    size, count, names = struct.unpack_from("<HHH", content, 0x3A)
    headers = [struct.unpack_from("<IIQQQQ", content, table + i * size) for i in range(count)]
    for name, kind, _, _, offset, length in headers:
        start = headers[names][4] + name
        text = content[start : content.find(b"\0", start)].decode()
        if text in SECTIONS and kind != NO_BITS:
            yield offset, offset + length
