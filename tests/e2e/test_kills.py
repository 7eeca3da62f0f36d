"""Client or server killed mid-transfer: no wrong byte, no late byte, no leak. Canaries watch the memory.

With --long 1000 client processes and 1000 servers are killed, spread over the lanes; a handful of each otherwise.
"""
import mmap
import os
import random
import subprocess
import sys
import threading
import time

import pytest

from harness import PYTHONPATH, SOURCE, texts
from harness.pattern import SENTINEL, crc32c, pattern
from harness.peer import LANES, Peer
from harness.resources import of_process, of_server
from harness.resp import Disconnected
from harness.server import SMALL, Server, eventually
from harness.victim import GUARD, SHARED_BYTES, SIZE

MIB = 1 << 20
SMALL_SEGMENT = 16 * MIB
KILL_LANES = ["soft-host", "soft-remote", "emulated"]
KILLS_PER_LANE = 334  # times three lanes: 1000 of either kind
BLANK = bytes([SENTINEL]) * 512
LANDED_UNDER_WAY = 0.02  # at least this part of the long run's kills must have met a landing half way


@pytest.fixture
def server():
    """Each of these tests has a server of its own: what a kill breaks must not show up elsewhere."""
    with Server({}, SMALL) as one:
        yield one


def guarded(peer):
    """A region with guard bytes on both sides of the window, all registered: only the window may change."""
    region = peer.region(SIZE + 2 * GUARD)
    return region, region.triple(GUARD, SIZE)


def check_guards(memory) -> None:
    assert bytes(memory[:GUARD]) == bytes(memory[GUARD + SIZE:]) == bytes([SENTINEL]) * GUARD, \
        "bytes outside the window changed"


def check_window(memory, values) -> bool:
    """What landed is of one value, the rest is still the sentinel; True when it is a part, neither nothing nor all."""
    window = memoryview(memory)[GUARD:GUARD + SIZE]
    candidates, landed = list(values), 0
    for at in range(0, SIZE, 512):
        piece = bytes(window[at:at + 512])
        if piece == BLANK:
            continue
        landed += 1
        # a piece may be cut anywhere: every byte is then one of the two
        candidates = [value for value in candidates if piece == value[at:at + 512] or
                      all(byte in (SENTINEL, value[at + i]) for i, byte in enumerate(piece))]
        assert candidates, f"the bytes at {at} are of no value, or of two"
    return 0 < landed < SIZE // 512


class Frontier:
    """Taken at the instant a fence returned: how far the landing had come, and what is next to it. A piece that was under
    way and is not waited for shows within microseconds of that, long before a canary could be put in place."""
    STEP, LENGTH = 32 << 10, 1 << 20

    def __init__(self, memory):
        at = GUARD + SIZE - 1
        while at > GUARD and memory[at] == SENTINEL:
            at -= self.STEP
        self.memory, self.start = memory, max(at, 0)
        self.seen = bytes(memoryview(memory)[self.start:self.start + self.LENGTH])

    def check(self) -> None:
        assert bytes(memoryview(self.memory)[self.start:self.start + self.LENGTH]) == self.seen, \
            "a piece that was under way landed after the fence had returned"


class Canary:
    """Memory that is ours again, filled with sentinels: a byte that lands there now is late."""

    def __init__(self, memory):
        self.memory = memory
        memory[:] = bytes([SENTINEL]) * len(memory)

    def check(self) -> None:
        seen = bytes(self.memory)
        assert seen.count(SENTINEL) == len(seen), "a byte landed in memory that was free"

    def watch(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        self.check()
        while time.monotonic() < until:
            self.check()


def some_moment(rng, memory=None, spread=0.002) -> None:
    """A moment in a transfer: at random or, with its memory, at random after the first byte has landed."""
    if memory is not None:
        eventually(lambda: memory[GUARD] != SENTINEL, 30, "the landing begins", first_pause=0.0)
    time.sleep(rng.choice([0, rng.random() * spread]))


@pytest.mark.parametrize("lane_name", ["soft-host", "soft-remote", "soft-virtual", "emulated"])
def test_client_leaves_mid_get(server, lane_name, long_run, rounds):
    """The endpoint closes (the fence of last resort) while the server writes: not one byte later."""
    rng = random.Random(1)
    content = pattern(SIZE, seed=700)
    server.ok("BLOB.TCP_SET", "k", content)
    allocated = server.counter("dram_allocated_bytes")
    cut_short = 0
    for i in rounds(250 if long_run else 15):
        peer = Peer(server, LANES[lane_name])
        region, triple = guarded(peer)
        peer.send_get("k", triple)
        some_moment(rng, region.memory if i % 4 else None)
        if i % 2 == 0:
            peer.connection.close()
        peer.target.close()
        frontier = Frontier(region.memory)
        peer.close()
        after_close = bytes(region.memory)
        frontier.check()
        Canary(region.memory).watch(0.02)
        check_guards(after_close)
        cut_short += check_window(after_close, [content])
    assert server.ok("BLOB.TCP_GET", "k") == content
    eventually(lambda: server.counter("rdma_sessions") == 0, what="bindings gone")
    server.ok("DEL", "k")
    eventually(lambda: server.counter("dram_allocated_bytes") <= allocated - SIZE, what="no pin is left")
    assert cut_short > 0, "no transfer was under way when it was cut"


@pytest.mark.parametrize("lane_name", ["soft-host", "soft-remote"])
def test_registration_closed_mid_get(server, lane_name, long_run, rounds):
    """On soft closing the registration is a fence of its own (fence_mode mr)."""
    rng = random.Random(2)
    content = pattern(SIZE, seed=701)
    server.ok("BLOB.TCP_SET", "k", content)
    with Peer(server, LANES[lane_name]) as peer:
        cut_short = 0
        for i in rounds(250 if long_run else 15):
            region, triple = guarded(peer)
            peer.send_get("k", triple)
            some_moment(rng, region.memory if i % 4 else None)
            region.close()
            frontier = Frontier(region.memory)
            frozen = bytes(region.memory)
            frontier.check()
            canary = Canary(region.memory)
            reply = peer.connection.read()
            canary.watch(0.005)
            if isinstance(reply, list):
                assert frozen[GUARD:GUARD + SIZE] == content
            check_guards(frozen)
            cut_short += check_window(frozen, [content])
        assert cut_short > 0, "no transfer was under way when it was cut"


@pytest.fixture
def full_server():
    """Room for one more value of SIZE, and no more segments: whatever is stored next gets the memory that was given back
    last."""
    with Server({}, {**SMALL, "scaling-poll-ms": "60000"}) as one:
        one.ok("CONFIG", "SET", "maxmemory", one.info("memory")["used_memory"] + 14 * MIB)
        for i in range(SMALL_SEGMENT // SIZE - 1):
            one.ok("BLOB.TCP_SET", f"filler{i}", pattern(SIZE, seed=760 + i))
        one.ok("BLOB.TCP_SET", "last", bytes(SIZE))
        assert one.call("BLOB.TCP_SET", "more", bytes(SIZE)) == texts.OOM, "there is room that the test does not know of"
        one.ok("DEL", "last")
        yield one


@pytest.mark.parametrize("lane_name", KILL_LANES)
def test_connection_lost_mid_set(full_server, lane_name, long_run, rounds):
    """Only the RESP connection is lost: the server may still be reading when it learns of that. Its buffer is nobody
    else's until it has stopped, or a late piece would land in the value that is stored next."""
    server, rng = full_server, random.Random(6)
    lost, value = pattern(SIZE, seed=740), pattern(SIZE, seed=760)
    writer = server.connect()
    start = server.counter("dram_allocated_bytes")
    peers = []
    for i in rounds(250 if long_run else 15):
        eventually(lambda: writer.ok("DEL", "lost") in (0, 1) and server.counter("dram_allocated_bytes") == start, 60,
                   "no buffer is kept")
        peers.append(Peer(server, LANES[lane_name]))
        region = peers[-1].region(content=lost)
        peers[-1].get("absent", region.triple())
        peers[-1].send_set("lost", SIZE, region.triple())
        some_moment(rng, spread=0.002)
        peers[-1].connection.close()

        def stored() -> bool:
            # a short command: it takes the memory at once, and fills it
            reply = writer.call("COPY", "filler0", "next")
            assert reply in (1, texts.COPY_FAILED), reply
            if reply != 1:
                writer.ok("DEL", "lost")  # it was committed
            return reply == 1

        eventually(stored, 60, "room for the next value", first_pause=0.0)
        assert writer.ok("BLOB.TCP_GET", "next") == value, f"round {i}: a piece of another value landed in it"
        writer.ok("DEL", "lost", "next")
        while len(peers) > 3:
            peers.pop(0).close()
    for peer in peers:
        peer.close()
    for i in range(SMALL_SEGMENT // SIZE - 1):
        assert writer.ok("BLOB.TCP_GET", f"filler{i}") == pattern(SIZE, seed=760 + i)


class Victim:
    """harness/victim.py, and the memory that it shares with us."""

    def __init__(self, server, lane_name, key, seeds, long_lived=False):
        self.descriptor = os.memfd_create("farlift-victim")
        os.ftruncate(self.descriptor, SHARED_BYTES)
        self.memory = mmap.mmap(self.descriptor, SHARED_BYTES)
        self.memory[:] = bytes([SENTINEL]) * SHARED_BYTES
        self.process = subprocess.Popen(
            [sys.executable, "-m", "harness.victim", str(server.port), lane_name, str(self.descriptor), key,
             ",".join(map(str, seeds))],
            stdout=subprocess.PIPE, stderr=None if long_lived else subprocess.DEVNULL, pass_fds=[self.descriptor],
            env={**os.environ, "PYTHONPATH": os.pathsep.join([PYTHONPATH, str(SOURCE / "tests/e2e")])})

    def wait_ready(self) -> None:
        assert self.process.stdout.readline() == b"ready\n"

    def kill(self) -> None:
        """SIGKILL; it must have lived until now, since it ends by itself only on a wrong byte."""
        assert self.process.poll() is None, f"the client ended by itself: {self.process.returncode}"
        self.end()

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()

    def close(self) -> None:
        self.end()
        self.memory.close()
        os.close(self.descriptor)


@pytest.mark.parametrize("lane_name", KILL_LANES)
def test_client_process_killed(server, lane_name, long_run, rounds):
    """SIGKILL, two clients a round: nobody says goodbye. The server neither dies nor stores a mixture, nor keeps anything;
    a client that lives reads and writes what it should all the while, in the memory that the dead give back."""
    rng = random.Random(3)
    seeds = [710, 711, 712]
    values = [pattern(SIZE, seed=seed) for seed in seeds]
    # A client that died early may be taken for one of libfabric. That rail opens once, and stays.
    for name in ("emulated", "soft-host", "soft-remote"):
        with Peer(server, LANES[name]) as peer:
            peer.store("k", values[0])
    start = at_rest(server)
    kills = under_way = 0
    victims, graves = [], []
    keeper = Victim(server, lane_name, "keeper", [720, 721], long_lived=True)
    try:
        keeper.wait_ready()
        with Peer(server, LANES["soft-host"]) as watcher:
            for i in rounds(KILLS_PER_LANE // 2 if long_run else 3):
                victims = [Victim(server, lane_name, "k", seeds[n:n + 2]) for n in range(2)]
                for victim in victims:
                    victim.wait_ready()
                while victims:
                    some_moment(rng, victims[-1].memory, spread=0.005)
                    victim = victims.pop()
                    graves.append((victim, None))
                    victim.kill()
                    kills += 1
                    under_way += check_window(victim.memory, values)
                    check_guards(victim.memory)
                    graves[-1] = (victim, Canary(victim.memory))
                    if watcher.connection.ok("BLOB.INFO", "k", "LEN") is not None:
                        assert watcher.fetch("k", SIZE) in values
                for _, canary in graves:
                    canary.check()
                while len(graves) > 4:  # each is watched through two more rounds
                    graves.pop(0)[0].close()
                assert keeper.process.poll() is None, "the client that was not killed met a wrong byte"
        keeper.kill()
    finally:
        for victim in [keeper, *victims, *(grave[0] for grave in graves)]:
            victim.close()
    end = eventually(lambda: back_at(start, server), 60, "the server holds what it held")
    print(f"{lane_name}: {kills} kills, {under_way} with a landing under way; server before: {start}; after: {end}")
    assert under_way >= (LANDED_UNDER_WAY * kills if long_run else 0)


def at_rest(server):
    """What the server holds without clients and keys."""
    server.forget_connections()
    eventually(lambda: server.counter("rdma_sessions") == 0, 60, "bindings gone")
    server.ok("FLUSHALL")
    eventually(lambda: server.counter("dram_allocated_bytes") == 0, 60, "every buffer is back")
    return of_server(server)


def back_at(start, server):
    end = at_rest(server)
    assert end.is_back_at(start, rss_slack=16 * MIB, heap_slack=2 * MIB), f"before: {start}; now: {end}"
    return end


@pytest.mark.parametrize("lane_name", KILL_LANES)
def test_server_killed_mid_transfer(lane_name, long_run, rounds):
    """The client's memory: only bytes of the value, only inside the window, and none once the endpoint is closed. What a
    SET sends never changes."""
    rng = random.Random(4)
    content, source = pattern(SIZE, seed=720), pattern(SIZE, seed=721)
    under_way, start = 0, None
    with Server({}, SMALL) as server:
        for i in rounds(KILLS_PER_LANE if long_run else 5):
            server.ok("BLOB.TCP_SET", "k", content)
            getter, setter = (Peer(server, LANES[lane_name]) for _ in range(2))
            region, triple = guarded(getter)
            sent = setter.region(content=source)
            getter.send_get("k", triple)
            if i % 2 == 0:
                setter.send_set("n", SIZE, sent.triple())
            some_moment(rng, region.memory if i % 4 else None)
            server.kill()
            try:
                assert getter.connection.read() == [SIZE, crc32c(content)]
                assert region.memory[GUARD:GUARD + SIZE] == content
            except (Disconnected, ConnectionError):
                pass
            getter.target.close()
            frontier = Frontier(region.memory)
            setter.target.close()
            frozen = bytes(region.memory)
            frontier.check()
            assert sent.memory == source, "the server wrote into what it was to read"
            canaries = [Canary(region.memory), Canary(sent.memory)]
            check_guards(frozen)
            under_way += check_window(frozen, [content])
            canaries[0].watch(0.01)
            for peer in (getter, setter):
                peer.close()
            for canary in canaries:
                canary.check()
            server.forget_connections()
            server.start()
            if i == 4:
                start = of_process(os.getpid())
    # our own process is the client here: it must not hold anything of servers that are gone
    end = of_process(os.getpid())
    print(f"{lane_name}: {under_way} kills with a landing under way; client before: {start}; after: {end}")
    assert end.is_back_at(start, rss_slack=48 * MIB, heap_slack=0), f"before: {start}; after: {end}"
    assert under_way >= (LANDED_UNDER_WAY * KILLS_PER_LANE if long_run else 0)


def test_neighbours_of_a_leaving_client_carry_on(server, long_run, rounds):
    """One client after the other vanishes; a neighbour on each lane sees exact bytes all the time."""
    content = pattern(1 << 20, seed=730)
    server.ok("BLOB.TCP_SET", "k", content)
    stop, failures, fetched = threading.Event(), [], []

    def neighbour(name: str) -> None:
        try:
            with Peer(server, LANES[name]) as peer:
                while not stop.is_set():
                    if peer.fetch("k", len(content)) != content:
                        failures.append(f"{name}: wrong bytes")
                    fetched.append(name)
        except BaseException as error:  # noqa: B902 - reported by the main thread
            failures.append(f"{name}: {error!r}")

    threads = [threading.Thread(target=neighbour, args=(name,)) for name in KILL_LANES]
    for thread in threads:
        thread.start()
    rng = random.Random(5)
    try:
        for i in rounds(400 if long_run else 25):
            leaver = Peer(server, LANES[["soft-host", "soft-remote", "soft-virtual", "emulated"][i % 4]])
            region = leaver.region(len(content))
            leaver.send_get("k", region.triple())
            time.sleep(rng.random() * 0.002)
            leaver.cut()
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert failures == [] and len(set(fetched)) == 3
