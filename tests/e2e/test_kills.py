"""Client or server killed mid-transfer: no wrong byte, no late byte, no leak. Canaries watch the memory.

60 kills in the ordinary run, 1000 with --long.
"""
import random
import subprocess
import sys
import threading
import time

import pytest

from harness import PYTHONPATH, SOURCE
from harness.pattern import SENTINEL, crc32c, pattern
from harness.peer import LANES, Peer
from harness.resp import Disconnected
from harness.server import SMALL, Server, eventually

SIZE = 4 << 20
GUARD = 4096


@pytest.fixture
def server():
    """Each of these tests has a server of its own: what a kill breaks must not show up elsewhere."""
    with Server({}, SMALL) as one:
        yield one


def guarded(peer):
    """A region with guard bytes on both sides of the window, all registered: only the window may change."""
    region = peer.region(SIZE + 2 * GUARD)
    return region, region.triple(GUARD, SIZE)


def check_guards(region) -> None:
    assert region.untouched(0, GUARD) and region.untouched(GUARD + SIZE), "bytes outside the window changed"


def check_window(region, values) -> None:
    """Each landed chunk is of the one value or still the sentinel: never of something else."""
    window = memoryview(region.memory)[GUARD:GUARD + SIZE]
    for at in range(0, SIZE, 512):
        piece = bytes(window[at:at + 512])
        if piece == bytes([SENTINEL]) * 512:
            continue
        if any(piece == value[at:at + 512] for value in values):
            continue
        # a piece may be cut anywhere: every byte is then one of the two
        for i, byte in enumerate(piece):
            assert byte == SENTINEL or any(byte == value[at + i] for value in values), f"foreign byte at {at + i}"


@pytest.mark.parametrize("lane_name", ["soft-host", "soft-remote", "soft-virtual", "emulated"])
def test_client_leaves_mid_get(server, lane_name, long_run):
    """The endpoint closes (the fence of last resort) while the server writes: not one byte later."""
    rng = random.Random(1)
    content = pattern(SIZE, seed=700)
    server.ok("BLOB.TCP_SET", "k", content)
    allocated = server.counter("dram_allocated_bytes")
    cut_short = 0
    for i in range(250 if long_run else 15):
        peer = Peer(server, LANES[lane_name])
        region, triple = guarded(peer)
        peer.send_get("k", triple)
        time.sleep(rng.random() * 0.003)
        if i % 2 == 0:
            peer.connection.close()
        peer.target.close()
        peer.close()
        after_close = bytes(region.memory)
        cut_short += after_close[GUARD:GUARD + SIZE] != content
        region.memory[:] = bytes([SENTINEL]) * len(region.memory)  # the memory is ours again: canaries
        check = time.monotonic() + 0.02
        while time.monotonic() < check:
            assert region.untouched(), "a byte landed after the endpoint had closed"
        assert after_close[:GUARD] == bytes([SENTINEL]) * GUARD == after_close[-GUARD:]
    assert server.ok("BLOB.TCP_GET", "k") == content
    eventually(lambda: server.counter("rdma_sessions") == 0, what="bindings gone")
    server.ok("DEL", "k")
    eventually(lambda: server.counter("dram_allocated_bytes") <= allocated - SIZE, what="no pin is left")
    assert cut_short > 0, "no transfer was under way when it was cut"


@pytest.mark.parametrize("lane_name", ["soft-host", "soft-remote"])
def test_registration_closed_mid_get(server, lane_name, long_run):
    """On soft closing the registration is a fence of its own (fence_mode mr)."""
    rng = random.Random(2)
    content = pattern(SIZE, seed=701)
    server.ok("BLOB.TCP_SET", "k", content)
    with Peer(server, LANES[lane_name]) as peer:
        for _ in range(100 if long_run else 15):
            region, triple = guarded(peer)
            peer.send_get("k", triple)
            time.sleep(rng.random() * 0.003)
            region.close()
            frozen = bytes(region.memory)
            reply = peer.connection.read()
            assert bytes(region.memory) == frozen, "a byte landed after the registration had closed"
            if isinstance(reply, list):
                assert frozen[GUARD:GUARD + SIZE] == content
            check_guards(region)


CHILD = """
import sys, os
sys.path[:0] = {path!r}
from harness.peer import LANES, Peer
from harness.pattern import pattern
class At: pass
server = At(); server.port = {port}
from harness.resp import Connection
server.connect = lambda resp=2, timeout=60.0: Connection(server.port, resp=resp, timeout=timeout)
peer = Peer(server, LANES[{lane!r}])
region = peer.region(content=pattern({size}, seed={seed}))
print("ready", flush=True)
while True:
    peer.set("k", {size}, region.triple())
    peer.get("k", region.triple())
"""


@pytest.mark.parametrize("lane_name", ["soft-host", "soft-remote", "emulated"])
def test_client_process_killed(server, lane_name, long_run):
    """SIGKILL: nobody says goodbye. The server neither dies nor stores a mixture, nor keeps anything."""
    rng = random.Random(3)
    values = [pattern(SIZE, seed=710 + i) for i in range(2)]
    start = server.counter("dram_allocated_bytes")
    with Peer(server, LANES["soft-host"]) as watcher:
        for i in range(60 if long_run else 4):
            code = CHILD.format(path=[PYTHONPATH, str(SOURCE / "tests/e2e")], port=server.port, lane=lane_name, size=SIZE,
                                seed=710 + i % 2)
            child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
            assert child.stdout.readline() == b"ready\n"
            time.sleep(0.01 + rng.random() * 0.05)
            child.kill()
            child.wait()
            child.stdout.close()
            length = watcher.connection.ok("BLOB.INFO", "k", "LEN")
            if length is not None:
                assert watcher.fetch("k", SIZE) in values
    eventually(lambda: server.counter("rdma_sessions") == 0, 60, "bindings gone")
    server.ok("DEL", "k")
    eventually(lambda: server.counter("dram_allocated_bytes") == start, 60, "no leak")


@pytest.mark.parametrize("lane_name", ["soft-host", "soft-remote", "emulated"])
def test_server_killed_mid_transfer(lane_name, long_run):
    """The client's memory: only bytes of the value, only inside the window, and none once the endpoint is closed."""
    rng = random.Random(4)
    content = pattern(SIZE, seed=720)
    with Server({}, SMALL) as server:
        for _ in range(60 if long_run else 5):
            peers = [Peer(server, LANES[lane_name]) for _ in range(2)]
            server.ok("BLOB.TCP_SET", "k", content)
            regions = []
            for peer in peers:
                region, triple = guarded(peer)
                regions.append(region)
                peer.send_get("k", triple)
            time.sleep(rng.random() * 0.004)
            server.kill()
            for peer, region in zip(peers, regions):
                try:
                    reply = peer.connection.read()
                    assert reply == [SIZE, crc32c(content)]
                    assert region.memory[GUARD:GUARD + SIZE] == content
                except (Disconnected, ConnectionError):
                    pass
                peer.target.close()
                frozen = bytes(region.memory)
                check_guards(region)
                check_window(region, [content])
                assert bytes(region.memory) == frozen
                peer.close()
            server.start()


def test_neighbours_of_a_leaving_client_carry_on(server, long_run):
    """One client after the other vanishes; a neighbour on each lane sees exact bytes all the time."""
    content = pattern(1 << 20, seed=730)
    server.ok("BLOB.TCP_SET", "k", content)
    stop, failures, rounds = threading.Event(), [], []

    def neighbour(name: str) -> None:
        try:
            with Peer(server, LANES[name]) as peer:
                while not stop.is_set():
                    if peer.fetch("k", len(content)) != content:
                        failures.append(f"{name}: wrong bytes")
                    rounds.append(name)
        except BaseException as error:  # noqa: B902 - reported by the main thread
            failures.append(f"{name}: {error!r}")

    threads = [threading.Thread(target=neighbour, args=(name,)) for name in ("soft-host", "soft-remote", "emulated")]
    for thread in threads:
        thread.start()
    rng = random.Random(5)
    try:
        for i in range(200 if long_run else 25):
            leaver = Peer(server, LANES[["soft-host", "soft-remote", "soft-virtual", "emulated"][i % 4]])
            region = leaver.region(len(content))
            leaver.send_get("k", region.triple())
            time.sleep(rng.random() * 0.002)
            leaver.cut()
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert failures == [] and len(set(rounds)) == 3
