"""Position-dependent bytes, and an independent CRC-32C to judge them by."""
import random
from functools import lru_cache
from typing import List

SENTINEL = 0xA5


@lru_cache(maxsize=64)
def _cached(length: int, seed: int) -> bytes:
    return random.Random(seed).randbytes(length)


def pattern(length: int, seed: int = 1) -> bytes:
    """Bytes in which every position can be told from every other (to all practical purposes)."""
    return _cached(length, seed) if length <= (1 << 20) else random.Random(seed).randbytes(length)


P = pattern(4096)


def _table() -> List[int]:
    out = []
    for i in range(256):
        value = i
        for _ in range(8):
            value = (value >> 1) ^ (0x82F63B78 if value & 1 else 0)
        out.append(value)
    return out


_TABLE = _table()


def slow_crc32c(data: bytes) -> int:
    """Bit by the book, in Python: the judge of the fast one."""
    value = 0xFFFFFFFF
    for byte in data:
        value = (value >> 8) ^ _TABLE[(value ^ byte) & 0xFF]
    return value ^ 0xFFFFFFFF


def crc32c(data) -> int:
    """The fast one (judged by slow_crc32c in test_harness.py) for anything long."""
    if len(data) <= 4096:
        return slow_crc32c(bytes(data))
    from farlift import _fabric
    return _fabric.crc32c(data)
