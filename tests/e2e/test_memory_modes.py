"""Memory limits, reclaim and configuration: spec blob 8 and 9, cases 73 to 78. Tiered mode (79 to 83) is refused for now."""
import time

import pytest

from harness import texts
from harness.pattern import P, crc32c, pattern
from harness.peer import LANES, Peer
from harness.resp import RespError
from harness.server import SMALL, Server, eventually

MIB = 1 << 20


def cap(server, extra: int) -> None:
    server.ok("CONFIG", "SET", "maxmemory", server.info("memory")["used_memory"] + extra)


def test_B073_no_room_under_noeviction():
    with Server({"maxmemory-policy": "noeviction"}) as server, Peer(server, LANES["soft-host"]) as peer:
        values = {}
        cap(server, 12 * MIB)
        for i in range(10):
            content = pattern(3 * MIB, seed=730 + i)
            reply = server.call("BLOB.TCP_SET", f"k{i}", content)
            if reply != "OK":
                break
            values[f"k{i}"] = content
        assert reply == texts.OOM and values, reply
        before = server.info()
        region = peer.region(content=pattern(3 * MIB, seed=739))
        assert peer.set("n", 3 * MIB, region.triple()) == texts.OOM
        assert server.call("BLOB.TCP_SET", "n", bytes(3 * MIB)) == texts.OOM
        after = server.info()
        assert after["dram_pool_exhausted"] == before["dram_pool_exhausted"] + 2
        assert after["rdma_reads"] == before["rdma_reads"], "memory is admitted before the source is read"
        assert after["dram_allocated_bytes"] == before["dram_allocated_bytes"]
        assert server.ok("EXISTS", "n") == 0
        # an overwrite that does not fit leaves the old value
        assert server.call("BLOB.TCP_SET", "k0", bytes(3 * MIB)) == texts.OOM
        for key, content in values.items():
            assert server.ok("BLOB.TCP_GET", key) == content
            assert peer.fetch(key, len(content)) == content
        # small ones still fit, and room comes back with a DEL
        assert server.ok("DEL", "k0") == 1
        eventually(lambda: server.call("BLOB.TCP_SET", "n", bytes(2 * MIB)) == "OK", what="room after DEL")


RECLAIM = {"segment-size": "4mb", "max-object-size": "1mb", "chunk-size": "256kb", "fabric-interfaces": "lo",
           "scaling-poll-ms": "1000", "reclaim-poll-ms": "10"}


def fill(server, count: int):
    values = {f"k{i}": pattern(700 * 1024, seed=7400 + i) for i in range(count)}
    for key, content in values.items():
        assert server.call("BLOB.TCP_SET", key, content) == "OK"
    return values


def press(server) -> None:
    """maxmemory so that use lies between the shrink watermark (90 %) and the limit itself."""
    used = server.info("memory")["used_memory"]
    server.ok("CONFIG", "SET", "maxmemory", int(used / 0.95))


@pytest.mark.parametrize("policy", ["allkeys-lru", "allkeys-lfu", "allkeys-random"])
def test_B074_reclaim_under_pressure(policy):
    with Server({"maxmemory-policy": policy}, RECLAIM) as server:
        from test_keyspace import Events
        events = Events(server)
        values = fill(server, 30)
        events.so_far()
        before = server.info()
        assert before["dram_segments"] >= 5
        press(server)
        eventually(lambda: server.counter("dram_segments") < before["dram_segments"], 30, "a segment returned")
        eventually(lambda: server.counter("pending_reclaims") == 0 and server.counter("dram_draining_segments") == 0, 30)
        server.ok("CONFIG", "SET", "maxmemory", 0)
        after = server.info()
        alive = [key for key in values if server.ok("EXISTS", key) == 1]
        gone = [key for key in values if key not in alive]
        evicted = [key for name, key in events.so_far() if name == "evicted"]
        assert sorted(evicted) == sorted(gone) and gone
        core = server.info("stats")["evicted_keys"]
        assert after["reclaims"] - before["reclaims"] == len(gone) - core
        assert after["dram_scaling_shrinks"] > before["dram_scaling_shrinks"]
        with Peer(server, LANES["soft-host"]) as peer:
            for key in alive:
                assert peer.fetch(key, len(values[key])) == values[key]
        for key in gone:
            assert server.ok("BLOB.TCP_GET", key) is None


@pytest.mark.parametrize("policy,limit", [("allkeys-lru", False), ("noeviction", False), ("noeviction", True)])
def test_B075_no_shrink(policy, limit):
    with Server({"maxmemory-policy": policy}, RECLAIM) as server:
        values = fill(server, 12)
        before = server.info()
        if limit:
            press(server)
        time.sleep(2.5)  # two polls of the scaling task and more: what must not happen has no event to wait for
        after = server.info()
        assert after["dram_segments"] == before["dram_segments"] and after["reclaims"] == before["reclaims"]
        assert server.ok("DBSIZE") == len(values)


def test_B076_victim_in_the_reclaim_gap():
    with Server({"maxmemory-policy": "allkeys-lru"}, {**RECLAIM, "reclaim-poll-ms": "60000"}) as server, \
            Peer(server, LANES["soft-host"]) as peer:
        values = fill(server, 12)
        press(server)
        eventually(lambda: server.counter("pending_reclaims") > 0, 30, "victims chosen")
        server.ok("CONFIG", "SET", "maxmemory", 0)
        pending = server.counter("pending_reclaims")
        victims = [key for key in values if server.ok("EXISTS", key) == 1 and server.ok("BLOB.TCP_GET", key) is None]
        assert len(victims) == pending and victims
        victim = victims[0]
        region = peer.region(MIB)
        assert server.ok("BLOB.INFO", victim) is None
        assert peer.get(victim, region.triple()) is None and region.untouched()
        assert server.call("COPY", victim, "copy") == texts.COPY_FAILED
        assert server.ok("EXISTS", "copy") == 0 and server.ok("EXISTS", victim) == 1
        reclaims = server.counter("reclaims")
        assert server.ok("DEL", victim) == 1
        assert server.counter("reclaims") == reclaims, "a user's DEL is no reclaim"
        if len(victims) > 1:  # a SET in the gap stores a new object, which is no victim
            assert server.call("BLOB.TCP_SET", victims[1], P) == "OK"
            assert server.ok("BLOB.TCP_GET", victims[1]) == P
        for key in set(values) - set(victims):
            assert server.ok("BLOB.TCP_GET", key) == values[key]


@pytest.mark.parametrize("module,text", [
    ({"segment-size": "4mb", "max-object-size": "5mb", "chunk-size": "1mb"}, "segment-size is insufficient for max-object-size"),
    ({"segment-size": "4mb", "max-object-size": "1mb", "chunk-size": "8mb"}, "segment-size must be >= chunk-size"),
    ({"segment-size": "4mb", "max-object-size": "1mb", "chunk-size": "1mb", "max-buffers-per-op": "2",
      "min-buffers-per-op": "3"}, "max-buffers-per-op must be >= min-buffers-per-op"),
    ({"segment-size": "4mb", "max-object-size": "1mb", "chunk-size": "1mb", "operating-mode": "Tiered"},
     "segment-size is insufficient for max-promote-size"),
    ({"segment-size": "4mb", "max-object-size": "1mb", "chunk-size": "1mb", "operating-mode": "Tiered", "disk-dir": "/tmp/none",
      "max-promote-size": "1mb", "disk-staging-size": "4mb"}, "Tiered")])
def test_B077_load_refused(module, text):
    with Server({}, module, expect_failure=True) as server:
        assert not server.try_start()
        assert text in server.log(), server.log()[-2000:]


def test_B077_an_object_as_large_as_a_segment():
    """Refused at load, or it really fits."""
    with Server({}, {**SMALL, "segment-size": "4mb", "max-object-size": "4mb"}, expect_failure=True) as server:
        if server.try_start():
            content = pattern(4 * MIB, seed=77)
            for key in ("a", "b"):
                assert server.call("BLOB.TCP_SET", key, content) == "OK"
                assert server.ok("BLOB.TCP_GET", key) == content
        else:
            assert "segment-size is insufficient for max-object-size" in server.log()


@pytest.mark.parametrize("name,value", [("segment-size", "1kb"), ("segment-size", "2gb"), ("chunk-size", "1"),
                                        ("worker-threads", "0"), ("worker-threads", "33"), ("fabric-provider", "Nonsense"),
                                        ("reclaim-poll-ms", "0"), ("scaling-shrink-watermark", "49"),
                                        ("fabric-max-in-flight", "65537"), ("no-such-setting", "1")])
def test_B077_values_out_of_range(name, value):
    with Server({}, {**SMALL, name: value}, expect_failure=True) as server:
        assert not server.try_start()


def test_B077_config_set_refused(server):
    def get(name: str):
        return server.ok("CONFIG", "GET", name)[1]

    for name, value in (("max-object-size", "17mb"), ("min-buffers-per-op", "9"),
                        ("max-buffers-per-op", "1"), ("max-object-size", "0"), ("reclaim-poll-ms", "60001")):
        full = f"largeobj.{name}"
        before = get(full)
        reply = server.call("CONFIG", "SET", full, value)
        assert isinstance(reply, RespError) and reply.code == "ERR", (name, value, reply)
        assert get(full) == before, (name, value)
    reply = server.call("CONFIG", "SET", "largeobj.max-object-size", "17mb")
    assert "segment-size is insufficient for max-object-size" in reply.text
    reply = server.call("CONFIG", "SET", "largeobj.min-buffers-per-op", "9")
    assert "max-buffers-per-op must be >= min-buffers-per-op" in reply.text


@pytest.mark.parametrize("name", ["operating-mode", "fabric-provider", "fabric-interfaces", "fabric-max-in-flight",
                                  "fabric-crc-pool-threads", "segment-size", "chunk-size", "worker-threads"])
def test_B078_immutable_settings(server, name):
    value = server.ok("CONFIG", "GET", f"largeobj.{name}")[1]
    reply = server.call("CONFIG", "SET", f"largeobj.{name}", value or "x")
    assert isinstance(reply, RespError) and "immutable" in reply.text, reply


def test_settings_have_the_documented_defaults():
    with Server({}, {}) as server:
        flat = server.ok("CONFIG", "GET", "largeobj.*")
        got = {flat[i].decode(): flat[i + 1].decode() for i in range(0, len(flat), 2)}
    expected = {"operating-mode": "Dram", "fabric-interfaces": "", "fabric-max-in-flight": "0", "fabric-crc-pool-threads": "1",
                "segment-size": str(1 << 30), "chunk-size": str(8 * MIB), "max-object-size": str(512 * MIB),
                "worker-threads": "2", "max-buffers-per-op": "8", "min-buffers-per-op": "2", "scaling-poll-ms": "5000",
                "scaling-expand-watermark": "80", "scaling-shrink-watermark": "90", "reclaim-poll-ms": "100"}
    for name, value in expected.items():
        assert got.get(f"largeobj.{name}", "(absent)").lower() == value.lower(), name


def test_unprefixed_words_on_the_loadmodule_line():
    """Spec blob 9: unprefixed words are also accepted, and MODULE LOADEX ... CONFIG."""
    from harness import MODULE
    with Server({}, None) as server:
        reply = server.call("MODULE", "LOADEX", MODULE, "CONFIG", "largeobj.segment-size", "16mb", "CONFIG",
                            "largeobj.max-object-size", "8mb", "CONFIG", "largeobj.chunk-size", "1mb")
        assert reply == "OK", reply
        assert server.ok("CONFIG", "GET", "largeobj.segment-size")[1] == str(16 * MIB).encode()
        assert server.ok("BLOB.TCP_SET", "k", P) == "OK" and server.ok("BLOB.TCP_GET", "k") == P
    with Server({}, None, expect_failure=True) as server:
        server.config_lines["loadmodule"] = f"{MODULE} segment-size 16mb max-object-size 8mb chunk-size 1mb"
        server.start()
        assert server.ok("CONFIG", "GET", "largeobj.segment-size")[1] == str(16 * MIB).encode()
        assert server.ok("CONFIG", "GET", "largeobj.max-object-size")[1] == str(8 * MIB).encode()


def test_B087_counters(server, make_peer, any_lane):
    peer = make_peer(any_lane)
    names = ("rdma_reads", "rdma_read_bytes", "rdma_writes", "rdma_write_bytes")

    def counters():
        info = server.info()
        return [info[name] for name in names]

    def change(action):
        before = counters()
        action()
        return [b - a for a, b in zip(before, counters())]

    first, second = peer.region(content=P[:3000]), peer.region(content=P[3000:])
    usec = server.info()
    assert change(lambda: peer.set("k", 4096, first.triple(), second.triple())) == [2, 4096, 0, 0]
    assert change(lambda: peer.get("k", first.triple(), second.triple())) == [0, 0, 2, 4096]
    assert server.info()["rdma_read_usec"] >= usec["rdma_read_usec"]
    assert change(lambda: server.ok("BLOB.TCP_SET", "t", P)) == [0, 0, 0, 0]
    assert change(lambda: server.ok("BLOB.TCP_GET", "t")) == [0, 0, 0, 0]
    key, addr, length = first.triple()
    reads = change(lambda: peer.set("n", 3000, (key ^ 1, addr, length)))
    assert reads[1:] == [0, 0, 0] and reads[0] == 1
    writes = change(lambda: peer.get("k", (key ^ 1, addr, length), second.triple(), peer.region(4096).triple()))
    assert writes[0] == writes[1] == 0 and 1 <= writes[2] <= 3 and writes[3] <= 1096
    assert peer.fetch("k", 4096) == P


def test_B087_pieces_of_a_chunked_transfer(server, make_peer, any_lane):
    """One count per fabric operation: 8 MiB in chunks of 1 MiB is at least eight."""
    peer = make_peer(any_lane)
    content = pattern(8 * MIB, seed=87)
    before = server.info()
    peer.store("k", content)
    assert peer.fetch("k", len(content)) == content
    after = server.info()
    for kind in ("read", "write"):
        assert after[f"rdma_{kind}s"] - before[f"rdma_{kind}s"] >= 8
        assert after[f"rdma_{kind}_bytes"] - before[f"rdma_{kind}_bytes"] == len(content)


INFO_FIELDS = """num_objects dram_objects dram_segments dram_draining_segments dram_allocated_bytes dram_capacity_bytes
dram_utilization_pct dram_hits dram_misses promotions dram_scaling_expands dram_scaling_shrinks reclaims pending_reclaims
dram_segment_size_bytes rdma_registered_segments rdma_sessions rdma_reads rdma_read_bytes rdma_read_usec rdma_writes
rdma_write_bytes rdma_write_usec rdma_read_errors rdma_write_errors rdma_crc_mismatches disk_read_errors disk_write_errors
dram_pool_exhausted disk_staging_buffer_exhausted disk_capacity_exceeded set_finalize_stale set_value_failures""".split()


def test_info_has_every_field_once(server):
    server.ok("BLOB.TCP_SET", "k", P)
    text = server.ok("INFO", "largeobj").decode()
    names = [line.split(":")[0] for line in text.splitlines() if ":" in line]
    assert len(names) == len(set(names))
    assert all(name.startswith("largeobj_") for name in names), names
    for field in INFO_FIELDS:
        assert f"largeobj_{field}" in names, field
    for section in ("modules", "everything"):
        assert "largeobj_num_objects:1" in server.ok("INFO", section).decode()
    info = server.info()
    assert info["num_objects"] == 1 and info["dram_segment_size_bytes"] == 16 * MIB and info["dram_segments"] >= 1
    assert info["dram_capacity_bytes"] >= info["dram_allocated_bytes"] >= 4096
    assert crc32c(P) == server.ok("BLOB.INFO", "k", "CRC")
