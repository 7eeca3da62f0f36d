"""BLOB.RDMA_GET: spec blob 3.2 and 5, cases 28 to 44."""
import threading
import time

import pytest

from harness import texts
from harness.pattern import P, crc32c, pattern
from harness.server import eventually
from harness.slow import SlowPeer, readable


@pytest.fixture
def peer(make_peer, any_lane):
    return make_peer(any_lane)


def put(server, key: str, content: bytes) -> None:
    assert server.call("BLOB.TCP_SET", key, content) == "OK"


def test_B028_object_fills_region_exactly(server, peer):
    put(server, "k", P)
    region = peer.region(4096)
    assert peer.get("k", region.triple()) == [4096, crc32c(P)]
    assert region.memory == P


def test_B029_missing_key_is_nil_and_nothing_is_written(make_peer, any_lane):
    for resp, nil in ((2, b"$-1"), (3, b"_")):
        peer = make_peer(any_lane, resp=resp)
        region = peer.region(4096)
        assert peer.get("missing", region.triple()) is None
        assert peer.connection.nil == nil
        assert region.untouched()


def test_B030_string_key(server, peer):
    server.ok("SET", "k", "x" * 10)
    region = peer.region(4096)
    assert peer.get("k", region.triple()) == texts.WRONGTYPE
    assert region.untouched()


def test_B031_region_one_byte_short(server, peer):
    put(server, "k", P)
    before = server.info()
    region = peer.region(4096)
    assert peer.get("k", region.triple(0, 4095)) == texts.COVERAGE
    assert peer.get("k", region.triple(0, 1000), region.triple(1000, 3095)) == texts.COVERAGE
    assert region.untouched()
    after = server.info()
    assert after["rdma_writes"] == before["rdma_writes"] and after["rdma_write_errors"] == before["rdma_write_errors"]


def test_B032_short_object_leaves_the_rest(server, peer):
    put(server, "k", P[:2048])
    region = peer.region(4096)
    assert peer.get("k", region.triple()) == [2048, crc32c(P[:2048])]
    assert region.memory[:2048] == P[:2048] and region.untouched(2048)


def test_B033_two_regions_in_order(server, peer):
    put(server, "k", P)
    first, second = peer.region(1024), peer.region(3072)
    assert first.triple()[0] != second.triple()[0]
    assert peer.get("k", first.triple(), second.triple()) == [4096, crc32c(P)]
    assert bytes(first.memory) + bytes(second.memory) == P


def test_B034_ten_regions_fifth_partly(server, peer):
    put(server, "k", P)
    regions = [peer.region(1000) for _ in range(10)]
    assert peer.get("k", *[r.triple() for r in regions]) == [4096, crc32c(P)]
    assert b"".join(bytes(r.memory) for r in regions)[:4096] == P
    assert regions[4].untouched(96)
    assert all(r.untouched() for r in regions[5:])


@pytest.mark.parametrize("offset", [1, 64, 4095, 4096, 4097, 60000])
def test_B035_slice_of_a_larger_registration(server, peer, offset):
    put(server, "k", P)
    region = peer.region(65536)
    assert peer.get("k", region.triple(offset, 4096)) == [4096, crc32c(P)]
    assert region.memory[offset:offset + 4096] == P
    assert region.untouched(0, offset) and region.untouched(offset + 4096)


def test_B036_256_regions_of_odd_sizes():
    from harness.peer import LANES, Peer
    from harness.server import SMALL, Server
    content = pattern(1 << 20, seed=36)
    with Server({}, {**SMALL, "chunk-size": "4kb"}) as server:
        put(server, "k", content)
        for name in ("soft-host", "soft-remote", "emulated"):
            with Peer(server, LANES[name]) as peer:
                region = peer.region(2 << 20)
                sizes = [4096 + (37 * i) % 41 - 20 for i in range(255)]
                sizes.append((1 << 20) - sum(sizes) + 500)
                # every second range is skipped over, so that a byte out of place shows
                triples, at = [], 0
                for size in sizes:
                    triples.append(region.triple(at, size))
                    at += size + 7
                assert peer.get("k", *triples) == [1 << 20, crc32c(content)], name
                assert peer.set("back", 1 << 20, *triples, crc=crc32c(content)) == "OK", name
                assert server.call("BLOB.TCP_GET", "back") == content
                done, at = 0, 0
                for i, size in enumerate(sizes):
                    used = min(size, (1 << 20) - done)
                    assert region.memory[at:at + used] == content[done:done + used], (name, i)
                    assert region.untouched(at + used, at + size + 7), (name, i)
                    done, at = done + used, at + size + 7


def test_B037_range_past_the_registration(server, peer):
    put(server, "k", P)
    region, other = peer.region(4096), peer.region(4096)
    before = server.info()
    for triple in (region.triple(1, 4096), region.triple(4096, 4096), region.triple(1 << 40, 4096), region.triple(0, 1 << 40)):
        if triple == region.triple(0, 1 << 40):
            continue
        reply = peer.get("k", triple)
        assert texts.is_write_failed(reply), reply
    after = server.info()
    assert after["rdma_write_errors"] == before["rdma_write_errors"] + 3
    assert after["rdma_write_bytes"] == before["rdma_write_bytes"]
    assert peer.get("k", other.triple()) == [4096, crc32c(P)]
    assert other.memory == P


def test_B037_a_range_longer_than_the_object_may_name_more_than_is_there(server, peer):
    """Only the bytes that are written count: the surplus of a range is never touched."""
    put(server, "k", P)
    region = peer.region(4096)
    assert peer.get("k", region.triple(0, 1 << 40)) == [4096, crc32c(P)]
    assert region.memory == P


@pytest.mark.parametrize("flip", [1, 1 << 31, 1 << 63])
def test_B038_unknown_rkey(server, peer, flip):
    put(server, "k", P)
    region = peer.region(4096)
    key, addr, length = region.triple()
    before = server.counter("rdma_write_errors")
    reply = peer.get("k", (key ^ flip, addr, length))
    assert texts.is_write_failed(reply), reply
    assert region.untouched()
    assert server.counter("rdma_write_errors") == before + 1
    assert peer.get("k", region.triple()) == [4096, crc32c(P)] and region.memory == P


def test_B038_closed_registration(server, peer):
    put(server, "k", P)
    closed, region = peer.region(4096), peer.region(4096)
    triple = closed.triple()
    closed.close()
    assert texts.is_write_failed(peer.get("k", triple))
    assert closed.untouched()
    assert peer.get("k", region.triple()) == [4096, crc32c(P)]


def test_B038_another_peers_rkey_opens_nothing_here(server, make_peer):
    """A key is good only at the endpoint's own domain."""
    from harness.peer import LANES
    put(server, "k", P)
    mine, theirs = make_peer(LANES["soft-host"]), make_peer(LANES["soft-remote"])
    region = theirs.region(4096)
    assert texts.is_write_failed(mine.get("k", region.triple()))
    assert region.untouched()


def test_B039_read_only_registration(server, peer):
    put(server, "k", P)
    region = peer.region(4096, access="r")
    reply = peer.get("k", region.triple())
    assert texts.is_write_failed(reply), reply
    assert region.untouched()
    good = peer.region(4096)
    assert peer.get("k", good.triple()) == [4096, crc32c(P)]


def test_B040_endpoint_gone_but_connection_alive(server, peer, lane, make_peer):
    put(server, "k", P)
    region = peer.region(4096)
    peer.target.close()
    neighbour = make_peer(lane)
    peer.send_get("k", region.triple())
    started = time.monotonic()
    while not readable(peer.connection, 0.01):
        assert time.monotonic() - started < 30, "no reply for an endpoint that is gone"
        assert server.ok("PING") == "PONG"
        assert neighbour.fetch("k", 4096) == P
    assert texts.is_write_failed(peer.connection.read())
    assert region.untouched()


LONG = 256 << 20


@pytest.fixture(scope="module")
def long_value():
    content = pattern(LONG, seed=41)
    return content, crc32c(content)


def mid_way(peer, region) -> None:
    """Starts GET of "k" and returns when some but not all of it has landed."""
    peer.send_get("k", region.triple())
    peer.step_until(lambda: not region.untouched(0, 64))
    assert region.untouched(LONG - 64), "all of it landed in one step; the test says nothing"
    assert not readable(peer.connection)


def on_every_lane(server, long_value, disturb) -> None:
    """disturb() the key while its 256 MiB travel: the old bytes arrive whole, and their storage is freed after."""
    from harness.peer import LANES
    content, crc = long_value
    put(server, "master", content)
    start = server.counter("dram_allocated_bytes")
    for name in ("soft-host", "soft-remote", "soft-virtual", "emulated"):
        assert server.ok("COPY", "master", "k") == 1
        with SlowPeer(server, LANES[name]) as peer:
            region = peer.region(LONG)
            mid_way(peer, region)
            disturb()
            assert peer.finish() == [LONG, crc], name
            assert region.memory == content, name
            peer.forget(region)
            del region
            after = peer.region(4096)
            peer.send_get("k", after.triple())
            yield name, peer.finish(), after
        server.ok("DEL", "k")
        eventually(lambda: server.counter("dram_allocated_bytes") == start, what="storage freed")


def test_B041_delete_while_256_MiB_travel(big_server, long_value):
    def delete() -> None:
        assert big_server.ok("DEL", "k") == 1
        assert big_server.ok("EXISTS", "k") == 0

    lanes = 0
    for name, reply, after in on_every_lane(big_server, long_value, delete):
        assert reply is None and after.untouched(), name
        lanes += 1
    assert lanes == 4


def test_B042_overwrite_while_256_MiB_travel(big_server, long_value):
    lanes = 0
    for name, reply, after in on_every_lane(big_server, long_value, lambda: put(big_server, "k", P)):
        assert reply == [4096, crc32c(P)] and after.memory == P, name
        lanes += 1
    assert lanes == 4


def test_B043_reply_means_landed(server, peer):
    """1000 times: at the instant of the reply the whole value is there."""
    size = 192 * 1024
    values = [pattern(size, seed=430), pattern(size, seed=431)]
    for i, value in enumerate(values):
        put(server, f"k{i}", value)
    crcs = [crc32c(value) for value in values]
    region = peer.region(size)
    triple = region.triple()
    for i in range(1000):
        reply = peer.get(f"k{i % 2}", triple)
        landed = bytes(region.memory)
        assert reply == [size, crcs[i % 2]]
        assert landed == values[i % 2], f"repeat {i}: the reply overtook the bytes"


def test_B044_two_connections_at_once(server, make_peer, any_lane):
    size = 4 << 20
    content = pattern(size, seed=44)
    put(server, "k", content)
    failures = []

    def reader(peer) -> None:
        for _ in range(10):
            region = peer.region(size)
            reply = peer.get("k", region.triple())
            if reply != [size, crc32c(content)] or region.memory != content:
                failures.append(reply)
            peer.forget(region)

    threads = [threading.Thread(target=reader, args=(make_peer(any_lane),)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
