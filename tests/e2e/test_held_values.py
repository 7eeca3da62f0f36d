"""The value of a command is the server's memory: a thread of the module that copies it must not be surprised.

When a command returns, the server gives back what its arguments have too much of, and the allocator may move them then.
The usual allocators never do so with large blocks; tests/allocator does it every time and spoils the old place."""
import mmap
from pathlib import Path

import pytest

from harness import MODULE
from harness.pattern import crc32c, pattern
from harness.resources import SANITIZED
from harness.server import Server

MIB = 1 << 20
MOVING_REALLOC = Path(MODULE).resolve().parent / "libmoving_realloc.so"
MODULE_SETTINGS = {"segment-size": "256mb", "max-object-size": "32mb", "fabric-interfaces": "lo"}


class Moves:
    """The allocator's count of moved blocks."""

    def __init__(self, folder):
        self.path = folder / "moves"
        self.path.write_bytes(bytes(8))

    def count(self) -> int:
        with open(self.path, "r+b") as file, mmap.mmap(file.fileno(), 8) as memory:
            return int.from_bytes(memory[:8], "little")


@pytest.mark.skipif(SANITIZED, reason="the sanitizer's allocator moves by itself: R40 shows the same there")
def test_a_value_does_not_move_while_it_is_copied(tmp_path, long_run):
    """A query buffer sized for a value of 31 MiB holds the next one, of 24, so the rest is given back when its command
    returns (or earlier, by a periodic task of the server; hz 1 makes that rare). It is above 256 KiB: copied by another
    thread, which has begun by then."""
    moves = Moves(tmp_path)
    environment = {"LD_PRELOAD": str(MOVING_REALLOC), "FARLIFT_MOVES": str(moves.path)}
    with Server({"hz": "1"}, MODULE_SETTINGS, environment=environment) as server:
        connections = [server.connect() for _ in range(2)]
        big = pattern(31 * MIB, seed=800)
        turns = 100 if long_run else 8
        for turn in range(turns):
            value = pattern(24 * MIB + turn, seed=810 + turn)
            for n, connection in enumerate(connections):
                assert connection.ok("BLOB.TCP_SET", "big", big) == "OK"
                assert connection.ok("BLOB.TCP_SET", f"k{n}", value) == "OK"
            for n, connection in enumerate(connections):
                assert connection.ok("BLOB.INFO", f"k{n}", "CRC") == crc32c(value), f"turn {turn}"
                assert connection.ok("BLOB.TCP_GET", f"k{n}") == value, f"turn {turn}"
    assert moves.count() >= turns, "too little was given back: this test shows nothing"
