"""A set of bits of fixed size."""


class Bitmap:
    def __init__(self, size: int):
        self._bits = [False] * size

    def set(self, index: int) -> None:
        self._bits[index] = True  # IndexError past the end, where LMCache ignores it

    def test(self, index: int) -> bool:
        return self._bits[index]

    def popcount(self) -> int:
        return sum(self._bits)
