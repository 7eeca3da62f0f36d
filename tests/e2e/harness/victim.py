"""A client that is made to be killed, in a process of its own.

    python3 -m harness.victim PORT LANE DESCRIPTOR KEY SEED,SEED...

It stores one value after the other under KEY and reads them back, and says "ready" once it has begun. What it reads lands in
memory it shares with the test by DESCRIPTOR: that memory outlives it, so the test sees what was there when it died, and that
nothing comes later. Ends by itself only on a wrong byte: status 3, and the reason on stderr."""
import mmap
import sys

from .pattern import SENTINEL, crc32c, pattern
from .peer import LANES, Peer
from .resp import RespError
from .server import Attached

SIZE = 4 << 20
GUARD = 4096
SHARED_BYTES = SIZE + 2 * GUARD


def main() -> int:
    port, lane, descriptor, key, seeds = sys.argv[1:6]
    values = [pattern(SIZE, seed=int(seed)) for seed in seeds.split(",")]
    shared = mmap.mmap(int(descriptor), SHARED_BYTES)
    blank = bytes([SENTINEL]) * SIZE
    peer = Peer(Attached(int(port)), LANES[lane])
    landing = peer.lane.domain.register(memoryview(shared), "rw")
    sources = [peer.region(content=value) for value in values]
    print("ready", flush=True)
    turn = 0
    while True:
        reply = peer.set(key, SIZE, sources[turn % len(sources)].triple())
        if reply != "OK":
            print(f"SET answered {reply!r}", file=sys.stderr)
            return 3
        reply = peer.get(key, (landing.key, landing.addr + GUARD, SIZE))
        read = bytes(memoryview(shared)[GUARD:GUARD + SIZE])
        if isinstance(reply, RespError) or reply != [SIZE, crc32c(read)]:
            print(f"GET answered {reply!r}", file=sys.stderr)
            return 3
        shared[GUARD:GUARD + SIZE] = blank
        turn += 1


if __name__ == "__main__":
    sys.exit(main())
