"""BLOB.RDMA_SET: spec blob 3.3, cases 45 to 55."""
import random
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from harness import texts
from harness.pattern import P, crc32c, pattern
from harness.peer import LANES, Peer
from harness.server import Server, eventually
from harness.slow import SlowPeer, readable


@pytest.fixture
def peer(make_peer, any_lane):
    return make_peer(any_lane)


def value(server, key: str):
    return server.call("BLOB.TCP_GET", key)


def test_B045_set_stores_what_the_region_holds(server, peer):
    region = peer.region(content=P)
    assert peer.set("k", 4096, region.triple()) == "OK"
    assert value(server, "k") == P
    assert server.ok("BLOB.INFO", "k", "LEN") == 4096
    assert server.ok("BLOB.INFO", "k", "CRC") == crc32c(P)
    assert region.memory == P


def test_B045_many_sizes(server, peer):
    for length in (1, 2, 63, 64, 65, 4095, 4096, 4097, 65536, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, 8 << 20):
        content = pattern(length, seed=length)
        peer.store("k", content)
        assert value(server, "k") == content
        assert peer.fetch("k", length) == content


def test_B046_crc_right_and_wrong(server, peer):
    region, other = peer.region(content=P), peer.region(content=P[::-1])
    assert peer.set("k", 4096, region.triple(), crc=crc32c(P)) == "OK"
    server.ok("PEXPIRE", "k", 1_000_000)
    before = server.info()
    for crc in ((crc32c(other.memory) + 1) & 0xFFFFFFFF, (crc32c(other.memory) - 1) & 0xFFFFFFFF):
        assert peer.set("k", 4096, other.triple(), crc=crc) == texts.CRC_MISMATCH
        assert peer.set("new", 4096, other.triple(), crc=crc) == texts.CRC_MISMATCH
    assert value(server, "k") == P
    assert 0 < server.ok("PTTL", "k") <= 1_000_000
    assert server.ok("EXISTS", "new") == 0
    after = server.info()
    assert after["rdma_crc_mismatches"] == before["rdma_crc_mismatches"] + 4
    eventually(lambda: server.counter("dram_allocated_bytes") == before["dram_allocated_bytes"])


def test_B047_regions_shorter_and_longer_than_the_object(server, peer):
    first, second = peer.region(content=P), peer.region(content=P[::-1])
    assert peer.set("k", 4097, first.triple()) == texts.COVERAGE
    assert peer.set("k", 4097, first.triple(0, 4000), second.triple(0, 96)) == texts.COVERAGE
    assert server.ok("EXISTS", "k") == 0
    assert peer.set("k", 1000, first.triple()) == "OK"
    assert value(server, "k") == P[:1000]
    assert peer.set("k", 4100, first.triple(), second.triple()) == "OK"
    assert value(server, "k") == P + P[::-1][:4]


def test_B047_surplus_is_never_read(server, peer):
    """A surplus range with a bad key is no error, since nothing of it is read."""
    region = peer.region(content=P)
    key, addr, length = region.triple()
    assert peer.set("k", 4096, region.triple(), (key ^ 1, addr, length)) == "OK"
    assert value(server, "k") == P


def test_B048_string_key(server, peer):
    server.ok("SET", "k", "text")
    before = server.info()
    assert peer.set("k", 4096, peer.region(content=P).triple()) == texts.WRONGTYPE
    assert server.ok("GET", "k") == b"text"
    after = server.info()
    assert after["rdma_reads"] == before["rdma_reads"], "the type is checked before the source is read"


def test_B049_overwrite(server, peer):
    start = server.counter("dram_allocated_bytes")
    peer.store("k", pattern(4 << 20, seed=49))
    server.ok("PEXPIRE", "k", 1_000_000)
    size = server.ok("DBSIZE")
    peer.store("k", P)
    assert value(server, "k") == P
    assert server.ok("PTTL", "k") == -1
    assert server.ok("DBSIZE") == size
    eventually(lambda: server.counter("dram_allocated_bytes") < start + (1 << 20), what="old storage freed")


PAUSES = (1500, 6000, 20000)


def paused_set(server, peer, action, content=P):
    """SET "k" paused before commit while `action` runs; the reply. Repeats with a longer pause on a slow machine."""
    for pause in PAUSES:
        server.ok("FLUSHALL")
        with server.config(largeobj__test_pause_before_finalize_set_ms=str(pause)):
            reads = server.counter("rdma_reads")
            region = peer.region(content=content)
            peer.send_set("k", len(content), region.triple())
            eventually(lambda: server.counter("rdma_reads") > reads, what="source read")
            server.ok("CONFIG", "SET", "largeobj.test-pause-before-finalize-set-ms", "0")
            action()
            in_time = not readable(peer.connection)
        reply = peer.connection.read()
        peer.forget(region)
        if in_time:
            return reply
    raise AssertionError("the commit never waited for the action")


def test_B050_delete_during_a_paused_set(server, peer):
    def delete():
        server.ok("DEL", "k")

    server.ok("BLOB.TCP_SET", "k", P[::-1])
    assert paused_set(server, peer, delete) == "OK"
    assert value(server, "k") == P


def test_B050_delete_of_the_old_value_during_a_paused_set(server, peer):
    def store_and_delete():
        server.ok("DEL", "k")
        assert value(server, "k") is None

    assert paused_set(server, peer, store_and_delete) == "OK"
    assert value(server, "k") == P


def test_B051_the_set_that_started_last_wins(server, peer, make_peer, lane):
    other = make_peer(lane)
    stale = []

    def overtake():
        stale.append(server.counter("set_finalize_stale"))
        other.store("k", P[::-1])

    assert paused_set(server, peer, overtake) == "OK"
    assert value(server, "k") == P[::-1]
    assert server.counter("set_finalize_stale") == stale[-1] + 1


def test_B052_key_becomes_a_string_during_a_paused_set(server, peer):
    start = server.counter("dram_allocated_bytes")
    assert paused_set(server, peer, lambda: server.ok("SET", "k", "text")) == texts.WRONGTYPE
    assert server.ok("GET", "k") == b"text"
    eventually(lambda: server.counter("dram_allocated_bytes") <= start)


def test_B053_bad_rkey(server, peer):
    region = peer.region(content=P)
    key, addr, length = region.triple()
    before = server.info()
    for triple in ((key ^ 1, addr, length), (key, addr + 1, length), (key, addr + (1 << 40), length)):
        reply = peer.set("k", 4096, triple)
        assert texts.is_read_failed(reply), reply
    assert server.ok("EXISTS", "k") == 0
    after = server.info()
    assert after["rdma_read_errors"] == before["rdma_read_errors"] + 3
    assert after["rdma_read_bytes"] == before["rdma_read_bytes"]
    eventually(lambda: server.counter("dram_allocated_bytes") == before["dram_allocated_bytes"], what="memory returned")
    peer.store("k", P)


def test_B053_write_only_registration(server, peer):
    reply = peer.set("k", 4096, peer.region(content=P, access="w").triple())
    assert texts.is_read_failed(reply), reply
    assert server.ok("EXISTS", "k") == 0


B054_SIZE = 4 << 20


def b054_values():
    return [pattern(B054_SIZE, seed=540 + i) for i in range(3)]


def b054_kills(server, lane) -> None:
    """100 connections that die while the server reads their memory. Runs in a process of its own: libfabric's tcp provider
    may take the client down with it, or never come back from closing an endpoint, and neither must end the test run."""
    rng = random.Random(54)
    values = b054_values()
    for i in range(100):
        peer = Peer(server, lane)
        region = peer.region(content=values[1 + i % 2])
        peer.send_set("k", B054_SIZE, region.triple())
        time.sleep(rng.random() * 0.004)
        if i % 3 == 0:
            server.ok("CLIENT", "KILL", "ID", _id_of(server, peer))
        peer.cut()
        if i % 10 == 9:
            assert value(server, "k") in values


B054_CHILD = """
import sys
sys.path[:0] = {path!r}
import test_rdma_set
from harness.peer import LANES
from harness.server import Attached
test_rdma_set.b054_kills(Attached({port}), LANES[{lane!r}])
"""


def test_B054_connection_killed_mid_set_100_times(any_lane):
    """On a server of its own: what the kills break must not show up in other tests."""
    values = b054_values()
    with Server() as server:
        start = server.counter("dram_allocated_bytes")
        server.ok("BLOB.TCP_SET", "k", values[0])
        code = B054_CHILD.format(path=[str(Path(__file__).parent)], port=server.port, lane=any_lane.name)
        child = subprocess.run([sys.executable, "-c", code], timeout=90, capture_output=True, text=True)
        assert child.returncode == 0, (child.returncode, child.stderr[-2000:])
        assert server.ok("PING") == "PONG"
        final = value(server, "k")
        assert final in values and server.ok("BLOB.INFO", "k", "CRC") == crc32c(final)
        server.ok("DEL", "k")
        eventually(lambda: server.counter("dram_allocated_bytes") == start, what="no leak")
        eventually(lambda: server.counter("rdma_sessions") == 0, what="no binding left")
        with Peer(server, any_lane, timeout=30) as peer:  # and the next client is served as ever
            peer.store("k", values[0])
            assert peer.fetch("k", B054_SIZE) == values[0]


def _id_of(server, peer) -> str:
    local = "%s:%d" % peer.connection.sock.getsockname()
    for line in server.ok("CLIENT", "LIST").decode().splitlines():
        fields = dict(word.split("=", 1) for word in line.split(" ") if "=" in word)
        if fields["addr"] == local:
            return fields["id"]
    raise AssertionError("the connection is not in CLIENT LIST")


def test_B055_source_changes_while_it_is_read(server, any_lane):
    """With the CRC of the original: mismatch, or OK with the original. Never a mixture under OK."""
    size = 8 << 20
    original, changed = pattern(size, seed=55), pattern(size, seed=56)
    with SlowPeer(server, any_lane) as peer:
        for share in (0.0, 0.1, 0.5, 0.9):
            server.ok("DEL", "k")
            region = peer.region(content=original)
            peer.send_set("k", size, region.triple(), crc=crc32c(original))
            for _ in range(int(share * 8)):
                if not readable(peer.connection):
                    peer.step(1)
            region.memory[:] = changed
            reply = peer.finish()
            if reply == "OK":
                assert value(server, "k") == original
            else:
                assert reply == texts.CRC_MISMATCH
                assert server.ok("EXISTS", "k") == 0
            peer.forget(region)


def test_B055_source_changes_all_the_time(server, make_peer, any_lane):
    size = 2 << 20
    original = pattern(size, seed=57)
    crc = crc32c(original)
    peer = make_peer(any_lane)
    region = peer.region(content=original)
    stop = threading.Event()

    def scribble() -> None:
        while not stop.is_set():
            region.memory[size // 2] ^= 0xFF
            time.sleep(0)

    thread = threading.Thread(target=scribble)
    thread.start()
    try:
        for _ in range(50):
            server.ok("DEL", "k")
            reply = peer.set("k", size, region.triple(), crc=crc)
            if reply == "OK":
                assert value(server, "k") == original
            else:
                assert reply == texts.CRC_MISMATCH
                assert server.ok("EXISTS", "k") == 0
    finally:
        stop.set()
        thread.join()


def test_sets_from_many_lanes_at_once(server):
    """Every lane stores and reads at the same time; nobody sees a neighbour's bytes."""
    failures = []

    def worker(name: str, number: int) -> None:
        try:
            with Peer(server, LANES[name]) as peer:
                for i in range(20):
                    content = pattern(300_000 + number, seed=number * 1000 + i)
                    peer.store(f"{name}{number}", content)
                    if peer.fetch(f"{name}{number}", len(content)) != content:
                        failures.append((name, i))
        except BaseException as error:  # noqa: B902 - reported by the main thread
            failures.append((name, repr(error)))

    threads = [threading.Thread(target=worker, args=(name, i)) for i, name in enumerate(list(LANES) * 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
