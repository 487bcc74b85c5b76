"""GPU code of other architectures is blanked in place: benchmarks/gpu/fatbin.py."""

from __future__ import annotations

import importlib.util
import struct
from pathlib import Path

import pytest

FILE = Path(__file__).parents[2] / "benchmarks/gpu/fatbin.py"
spec = importlib.util.spec_from_file_location("fatbin", FILE)
fatbin = importlib.util.module_from_spec(spec)
spec.loader.exec_module(fatbin)

PTX, CUBIN = 1, 2
ENTRIES = [(CUBIN, 80, b"ampere.."), (CUBIN, 90, b"hopper.."), (PTX, 90, b"assembly")]
OTHER_CODE = b"not of a GPU...."


def entry(kind: int, architecture: int, code: bytes) -> bytes:
    header = struct.pack("<HHIQ", kind, 0, 64, len(code)).ljust(28, b"\0")
    return (header + struct.pack("<I", architecture)).ljust(64, b"\0") + code


def library(section: bytes, fat: bytes) -> bytes:
    """An ELF file of two sections: their names, and `fat` under the name `section`."""
    names = b"\0" + section + b"\0"
    fat_at, names_at = 64 + len(OTHER_CODE), 64 + len(OTHER_CODE) + len(fat)
    table_at = names_at + len(names)
    head = b"\x7fELF\x02".ljust(0x28, b"\0") + struct.pack("<Q", table_at)
    head = head.ljust(0x3A, b"\0") + struct.pack("<HHH", 64, 2, 1)

    def described(name: int, offset: int, size: int) -> bytes:
        return struct.pack("<IIQQQQ", name, 1, 0, 0, offset, size).ljust(64, b"\0")

    table = described(1, fat_at, len(fat)) + described(0, names_at, len(names))
    return head + OTHER_CODE + fat + names + table


def fat_binary() -> bytes:
    body = b"".join(entry(*e) for e in ENTRIES)
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(body)) + body


def hopper(found, code: bytes) -> bool:
    return (found.kind, found.architecture) == (CUBIN, 90)


@pytest.mark.parametrize("section", [b".nv_fatbin", b"__nv_relfatbin"])
def test_what_is_not_kept_becomes_zeros_and_nothing_moves(tmp_path, section: bytes):
    path = tmp_path / "kernels.so"
    before = library(section, fat_binary() * 2)
    path.write_bytes(before)
    assert fatbin.blank(path, hopper) == (16, 32)
    expected = before.replace(b"ampere..", bytes(8)).replace(b"assembly", bytes(8))
    assert path.read_bytes() == expected


def test_the_code_itself_can_decide(tmp_path):
    path = tmp_path / "kernels.so"
    path.write_bytes(library(b".nv_fatbin", fat_binary()))
    fatbin.blank(path, lambda found, code: code == b"ampere..")
    assert b"ampere.." in path.read_bytes()
    assert b"hopper.." not in path.read_bytes()


def test_other_sections_are_left_alone(tmp_path):
    path = tmp_path / "kernels.so"
    before = library(b".text", fat_binary())
    path.write_bytes(before)
    assert fatbin.blank(path, hopper) == (0, 0)
    assert path.read_bytes() == before


def test_an_entry_that_reaches_beyond_its_container_is_refused(tmp_path):
    path = tmp_path / "kernels.so"
    broken = bytearray(fat_binary())
    struct.pack_into("<Q", broken, 16 + 8, 1 << 40)
    path.write_bytes(library(b".nv_fatbin", bytes(broken)))
    with pytest.raises(ValueError, match="no fat binary entry"):
        fatbin.blank(path, hopper)


def test_a_file_that_is_no_library_is_refused(tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("no library, but long enough to be one")
    with pytest.raises(ValueError, match="no 64-bit ELF"):
        fatbin.blank(path, hopper)
