"""Position-dependent bytes, and an independent CRC-32C to judge them by."""
import random
from functools import lru_cache
from typing import List

SENTINEL = 0xA5


# A long pattern repeats a random block of a length that is no multiple of any chunk, segment or page size.
_BLOCK = (1 << 20) + 7


@lru_cache(maxsize=64)
def _block(length: int, seed: int) -> bytes:
    return random.Random(seed).randbytes(length)


def pattern(length: int, seed: int = 1) -> bytes:
    """Bytes in which a piece that is missing, doubled or out of place shows."""
    if length <= _BLOCK:
        return _block(length, seed)
    return (_block(_BLOCK, seed) * (length // _BLOCK + 1))[:length]


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
