"""Transactions, scripts, ACL and what core commands do with large objects: spec blob 3.7, 4, 7; cases 62 to 72."""
import struct
import time

import pytest

from harness import texts
from harness.pattern import P, crc32c, pattern
from harness.resp import RespError
from harness.server import SMALL, Server, eventually


def traffic(server):
    info = server.info()
    return {name: info[name] for name in ("rdma_reads", "rdma_writes", "rdma_read_errors", "rdma_write_errors", "dram_hits",
                                          "dram_misses")}


def test_B062_transfers_inside_exec(server, make_peer, any_lane):
    peer = make_peer(any_lane)
    peer.store("k", P)
    source, window = peer.region(content=P), peer.region(4096)
    connection = peer.connection
    before = traffic(server)
    assert connection.call("MULTI") == "OK"
    assert peer.set("new", 4096, source.triple()) == "QUEUED"
    assert peer.get("k", window.triple()) == "QUEUED"
    assert connection.call("BLOB.TCP_SET", "new", P) == "QUEUED"
    assert connection.call("BLOB.TCP_GET", "k") == "QUEUED"
    assert connection.call("EXEC") == [texts.IN_EXEC] * 4
    assert window.untouched()
    assert connection.call("EXISTS", "new") == 0
    assert traffic(server) == before
    assert peer.get("k", window.triple()) == [4096, crc32c(P)]


def test_B062_bad_transfers_inside_exec(bound):
    connection = bound.connection
    connection.ok("MULTI")
    assert connection.call("BLOB.RDMA_GET", "k", "x", "y", "z") == "QUEUED"
    assert connection.call("BLOB.RDMA_SET", "k", 0, 1, 2, 3) == "QUEUED"
    reply = connection.call("EXEC")
    assert len(reply) == 2 and all(isinstance(item, RespError) for item in reply)


def test_B063_info_inside_exec(bound):
    connection = bound.connection
    connection.ok("BLOB.TCP_SET", "k", P)
    connection.ok("MULTI")
    assert connection.call("BLOB.INFO", "k", "LEN") == "QUEUED"
    assert connection.call("BLOB.INFO", "missing") == "QUEUED"
    assert connection.call("EXEC") == [4096, None]


def test_hello_inside_exec_binds_then(server, make_peer, lane):
    peer = make_peer(lane, hello=False)
    connection = peer.connection
    connection.ok("MULTI")
    assert connection.call("BLOB.RDMA_HELLO", peer.address_hex) == "QUEUED"
    reply = connection.call("EXEC")
    assert len(reply) == 1 and isinstance(reply[0], list)
    peer.store("k", P)


SCRIPT_CALLS = [("BLOB.TCP_GET", "'k'"), ("BLOB.TCP_SET", "'n', 'v'"), ("BLOB.RDMA_GET", "'k', '1', '0', '4096'"),
                ("BLOB.RDMA_SET", "'n', '10', '1', '0', '10'"), ("BLOB.RDMA_HELLO", "'" + "00" * 16 + "'")]


@pytest.mark.parametrize("command,arguments", SCRIPT_CALLS)
def test_B064_scripts_and_functions(server, bound, command, arguments):
    connection = bound.connection
    connection.ok("BLOB.TCP_SET", "k", P)
    before = traffic(server)
    for function in ("call", "pcall"):
        reply = connection.call("EVAL", f"return redis.{function}('{command}', {arguments})", 0)
        assert isinstance(reply, RespError) and "not allowed from script" in reply.text, reply
    library = f"#!lua name=lib\nredis.register_function('f', function() return redis.call('{command}', {arguments}) end)"
    connection.ok("FUNCTION", "LOAD", "REPLACE", library)
    reply = connection.call("FCALL", "f", 0)
    assert isinstance(reply, RespError) and "not allowed from script" in reply.text, reply
    connection.ok("FUNCTION", "FLUSH")
    assert connection.call("EXISTS", "n") == 0
    assert traffic(server) == before
    assert bound.fetch("k", 4096) == P


ALL_SIX = {"blob.rdma_hello", "blob.rdma_get", "blob.rdma_set", "blob.tcp_get", "blob.tcp_set", "blob.info"}


@pytest.fixture
def as_user(server, make_peer, lane):
    """as_user("+@all ~*"): a peer, not yet bound, that is logged in as a user with these rights."""
    def make(rules: str):
        server.ok("ACL", "SETUSER", "tester", "reset", "on", "nopass", *rules.split())
        peer = make_peer(lane, hello=False)
        assert peer.connection.call("AUTH", "tester", "x") == "OK"
        return peer

    yield make
    server.ok("ACL", "DELUSER", "tester")


def call_all_six(peer):
    region = peer.region(content=P)
    triple = region.triple()
    connection = peer.connection
    return [connection.call("BLOB.RDMA_HELLO", peer.address_hex), connection.call("BLOB.TCP_SET", "k", P),
            peer.set("k2", 4096, triple), peer.get("k", triple), connection.call("BLOB.TCP_GET", "k"),
            connection.call("BLOB.INFO", "k", "LEN")]


def test_B065_without_the_category(as_user):
    replies = call_all_six(as_user("+@all -@largeobj ~*"))
    assert all(isinstance(reply, RespError) and reply.code == "NOPERM" for reply in replies), replies


def test_B065_with_the_category_alone(as_user):
    replies = call_all_six(as_user("+@largeobj ~*"))
    assert isinstance(replies[0], list)
    assert replies[1:] == ["OK", "OK", [4096, crc32c(P)], P, 4096]


def test_B065_category_holds_exactly_six(server):
    listed = {name.decode().lower() for name in server.ok("COMMAND", "LIST", "FILTERBY", "ACLCAT", "largeobj")}
    assert listed == ALL_SIX
    assert {name.decode().lower() for name in server.ok("COMMAND", "LIST", "FILTERBY", "MODULE", "largeobj")} == ALL_SIX


@pytest.mark.parametrize("command,categories,flags,key", [
    ("blob.rdma_hello", {"@connection", "@fast", "@largeobj"}, {"fast", "noscript"}, None),
    ("blob.rdma_get", {"@read", "@fast", "@largeobj"}, {"readonly", "fast", "noscript", "blocking"}, "R"),
    ("blob.tcp_get", {"@read", "@fast", "@largeobj"}, {"readonly", "fast", "noscript", "blocking"}, "R"),
    ("blob.rdma_set", {"@write", "@fast", "@largeobj"}, {"write", "denyoom", "fast", "noscript", "blocking"}, "W"),
    ("blob.tcp_set", {"@write", "@fast", "@largeobj"}, {"write", "denyoom", "fast", "noscript", "blocking"}, "W"),
    ("blob.info", {"@read", "@fast", "@largeobj"}, {"readonly", "fast"}, "R")])
def test_B065_categories_flags_and_keys(server, command, categories, flags, key):
    entry = server.ok("COMMAND", "INFO", command)[0]
    text = lambda word: word if isinstance(word, str) else word.decode()  # noqa: E731
    got_flags, got_categories = {text(f) for f in entry[2]}, {text(c) for c in entry[6]}
    assert flags <= got_flags and categories <= got_categories
    assert not got_categories & ({"@read", "@write", "@connection", "@slow"} - categories)
    assert ("write" in got_flags) == ("write" in flags) and ("readonly" in got_flags) == ("readonly" in flags)
    assert [entry[3], entry[4], entry[5]] == ([1, 1, 1] if key else [0, 0, 0])
    if key:
        spec = str(entry[8])
        assert ("RO" in spec or "'RW'" not in spec) if key == "R" else ("OW" in spec or "RW" in spec), spec


def test_B066_read_only_key_pattern(server, as_user):
    server.ok("BLOB.TCP_SET", "key", P)
    peer = as_user("+@largeobj %R~key")
    peer.hello()
    region = peer.region(4096)
    assert peer.get("key", region.triple()) == [4096, crc32c(P)]
    for reply in (peer.set("key", 4096, region.triple()), peer.connection.call("BLOB.TCP_SET", "key", "x"),
                  peer.get("other", region.triple())):
        assert isinstance(reply, RespError) and reply.code == "NOPERM", reply
    assert server.ok("BLOB.TCP_GET", "key") == P


def test_B066_write_only_key_pattern(server, as_user):
    peer = as_user("+@largeobj %W~key")
    peer.hello()
    region = peer.region(content=P)
    assert peer.set("key", 4096, region.triple()) == "OK"
    for reply in (peer.get("key", region.triple()), peer.connection.call("BLOB.TCP_GET", "key"),
                  peer.connection.call("BLOB.INFO", "key")):
        assert isinstance(reply, RespError) and reply.code == "NOPERM", reply


def allocated(server) -> int:
    return server.counter("dram_allocated_bytes")


def test_B067_type_rename_expire(server):
    c = server.connect()
    start = allocated(server)
    c.ok("BLOB.TCP_SET", "k", P)
    assert c.ok("TYPE", "k") == "largeob-k"
    assert c.ok("RENAME", "k", "n") == "OK"
    assert c.ok("BLOB.TCP_GET", "n") == P and c.ok("EXISTS", "k") == 0
    c.ok("BLOB.TCP_SET", "k", P[::-1])
    assert c.ok("RENAMENX", "k", "n") == 0
    assert c.ok("MOVE", "n", 1) == 1
    c.ok("SELECT", 1)
    assert c.ok("BLOB.TCP_GET", "n") == P
    c.ok("SWAPDB", 0, 1)
    assert c.ok("BLOB.TCP_GET", "k") == P[::-1]
    c.ok("SELECT", 0)
    assert c.ok("BLOB.TCP_GET", "n") == P
    assert c.ok("PEXPIRE", "n", 50) == 1
    eventually(lambda: c.ok("EXISTS", "n") == 0, what="expired")
    assert c.ok("BLOB.TCP_GET", "n") is None
    c.ok("FLUSHALL")
    eventually(lambda: allocated(server) == start, what="storage freed")


def test_B067_persist_touch_scan_and_foreign_commands(server):
    c = server.connect()
    c.ok("BLOB.TCP_SET", "k", P)
    c.ok("SET", "s", "x")
    c.ok("EXPIRE", "k", 1000)
    assert 0 < c.ok("TTL", "k") <= 1000 and c.ok("PERSIST", "k") == 1 and c.ok("TTL", "k") == -1
    assert c.ok("TOUCH", "k") == 1 and c.ok("OBJECT", "IDLETIME", "k") >= 0
    found, cursor = [], b"0"
    while True:
        cursor, keys = c.ok("SCAN", cursor, "TYPE", "largeob-k")
        found += keys
        if cursor == b"0":
            break
    assert found == [b"k"]
    for words in (("GET", "k"), ("STRLEN", "k"), ("APPEND", "k", "x"), ("LPUSH", "k", "x"), ("HGET", "k", "f")):
        assert c.call(*words) == texts.WRONGTYPE
    assert c.ok("BLOB.TCP_GET", "k") == P


def test_plain_set_over_a_large_object(server):
    start = allocated(server)
    server.ok("BLOB.TCP_SET", "k", pattern(1 << 20))
    assert server.ok("SET", "k", "v") == "OK"
    assert server.ok("GET", "k") == b"v"
    eventually(lambda: allocated(server) == start, what="storage freed")


def test_B068_copy(server):
    c = server.connect()
    content = pattern(3 << 20, seed=68)
    c.ok("BLOB.TCP_SET", "k", content)
    c.ok("PEXPIRE", "k", 1_000_000)
    assert c.ok("COPY", "k", "n") == 1
    assert c.ok("BLOB.INFO", "n") == c.ok("BLOB.INFO", "k")
    assert 0 < c.ok("PTTL", "n") <= 1_000_000
    assert c.ok("COPY", "k", "n") == 0
    c.ok("DEL", "k")
    assert c.ok("BLOB.TCP_GET", "n") == content
    assert c.ok("COPY", "n", "k", "DB", 1, "REPLACE") == 1
    c.ok("BLOB.TCP_SET", "n", P)
    c.ok("SELECT", 1)
    assert c.ok("BLOB.TCP_GET", "k") == content


def tight(server, extra: int = 12 << 20) -> None:
    """maxmemory so low that the pool cannot grow by a segment, yet core itself is not over it."""
    used = server.info("memory")["used_memory"]
    server.ok("CONFIG", "SET", "maxmemory", used + extra)


def test_B068_copy_without_room():
    with Server({"maxmemory-policy": "noeviction"}, {**SMALL, "max-object-size": "8mb"}) as server:
        content = pattern(7 << 20, seed=680)
        for key in ("a", "b"):
            server.ok("BLOB.TCP_SET", key, content)
        tight(server)
        before = server.ok("DBSIZE")
        assert server.call("COPY", "a", "c") == texts.COPY_FAILED
        assert server.ok("DBSIZE") == before
        assert server.ok("BLOB.TCP_GET", "a") == content and server.ok("BLOB.TCP_GET", "b") == content


class Events:
    def __init__(self, server):
        server.ok("CONFIG", "SET", "notify-keyspace-events", "AKE")
        self.connection = server.connect()
        self.connection.ok("PSUBSCRIBE", "__keyevent@*__:*")
        self.server = server

    def so_far(self):
        self.server.ok("PUBLISH", "__keyevent@0__:marker", "m")
        out = []
        while True:
            _, _, channel, key = self.connection.read()
            name = channel.decode().split(":", 1)[1]
            if name == "marker":
                return out
            out.append((name, key.decode()))


def test_B069_events(server, make_peer, lane):
    peer = make_peer(lane)
    events = Events(server)
    try:
        peer.store("k", P)
        peer.store("k", P[::-1])
        server.ok("BLOB.TCP_SET", "t", P)
        server.ok("BLOB.TCP_SET", "t", P)
        assert events.so_far() == [("largeobj.create", "k"), ("largeobj.update", "k"), ("largeobj.create", "t"),
                                   ("largeobj.update", "t")]
        region = peer.region(content=P)
        key, addr, length = region.triple()
        assert texts.is_read_failed(peer.set("f", 4096, (key ^ 1, addr, length)))
        assert peer.set("f", 4096, region.triple(), crc=1) == texts.CRC_MISMATCH
        assert peer.set("f", 4097, region.triple()) == texts.COVERAGE
        assert server.call("BLOB.TCP_SET", "f", "") == texts.EMPTY_OBJECT
        peer.fetch("k", 4096)
        assert [event for event in events.so_far() if event[0] != "keymiss"] == []
        server.ok("COPY", "k", "c")
        server.ok("DEL", "k")
        names = events.so_far()
        assert ("copy_to", "c") in names and ("del", "k") in names
    finally:
        server.ok("CONFIG", "SET", "notify-keyspace-events", "")


def test_B070_watch(server, make_peer, any_lane):
    peer, watcher = make_peer(any_lane), server.connect()
    for key in ("absent", "present"):
        if key == "present":
            peer.store(key, P)
        watcher.ok("WATCH", key)
        peer.store(key, P[::-1])
        watcher.ok("MULTI")
        watcher.ok("SET", "result", "x")
        assert watcher.call("EXEC") is None
    watcher.ok("WATCH", "present")
    region = peer.region(content=P)
    assert peer.set("present", 4096, region.triple(), crc=1) == texts.CRC_MISMATCH
    watcher.ok("MULTI")
    watcher.ok("SET", "result", "y")
    assert watcher.call("EXEC") == ["OK"], "a failed SET touches nobody"


def test_B070_client_side_caching(server, make_peer, lane):
    peer = make_peer(lane)
    peer.store("k", P)
    tracker = server.connect(resp=3)
    tracker.ok("CLIENT", "TRACKING", "ON")
    tracker.ok("BLOB.INFO", "k")
    peer.store("k", P[::-1])
    eventually(lambda: (tracker.ok("PING"), tracker.pushes)[1], what="invalidation")
    assert tracker.pushes[0] == [b"invalidate", [b"k"]]


def test_B071_memory_usage(server):
    start = allocated(server)
    content = pattern(5 << 20, seed=71)
    server.ok("BLOB.TCP_SET", "k", content)
    assert len(content) <= server.ok("MEMORY", "USAGE", "k") <= len(content) + (1 << 20)
    assert allocated(server) >= start + len(content)
    server.ok("DEL", "k")
    eventually(lambda: allocated(server) == start, what="allocated bytes returned")


def crc64(data: bytes) -> int:
    """The server's own CRC-64 of DUMP payloads (Jones), to forge one."""
    value = 0
    for byte in data:
        value ^= byte
        for _ in range(8):
            value = (value >> 1) ^ (0x95AC9329AC4BC9B5 if value & 1 else 0)
    return value


def test_B072_dump_and_restore(server):
    c = server.connect()
    content = pattern(3 << 20, seed=72)
    c.ok("BLOB.TCP_SET", "k", content)
    payload = c.ok("DUMP", "k")
    assert c.ok("RESTORE", "n", 1_000_000, payload) == "OK"
    assert c.ok("BLOB.TCP_GET", "n") == content and 0 < c.ok("PTTL", "n") <= 1_000_000
    assert c.ok("BLOB.INFO", "n") == c.ok("BLOB.INFO", "k")
    assert c.call("RESTORE", "n", 0, payload).code == "BUSYKEY"
    assert c.ok("RESTORE", "k", 0, payload, "REPLACE") == "OK"


def test_B072_corrupt_payloads(server):
    c = server.connect()
    c.ok("BLOB.TCP_SET", "k", P[:300])
    payload = c.ok("DUMP", "k")
    body, version = payload[:-10], payload[-10:-8]
    assert crc64(payload[:-8]) == struct.unpack("<Q", payload[-8:])[0], "the forger knows the format"
    start = allocated(server)
    for at in range(len(body)):
        forged = bytearray(body)
        forged[at] ^= 0x41
        forged += version
        forged += struct.pack("<Q", crc64(forged))
        reply = c.call("RESTORE", "n", 0, bytes(forged))
        if reply == "OK":  # the change named another valid value; it must then be whole
            assert c.ok("TYPE", "n") != "largeob-k", f"a flipped byte at {at} was accepted"
            c.ok("DEL", "n")
        else:
            assert isinstance(reply, RespError)
    for cut in range(0, len(body), 7):
        forged = body[:cut] + version
        forged += struct.pack("<Q", crc64(forged))
        assert isinstance(c.call("RESTORE", "n", 0, forged), RespError), cut
    assert c.call("RESTORE", "n", 0, payload[:-1] + b"\x00").code == "ERR"
    assert c.ok("EXISTS", "n") == 0
    eventually(lambda: allocated(server) == start, what="nothing kept of a refused payload")


def test_debug_digest_is_of_the_payload(server):
    c = server.connect()
    c.ok("BLOB.TCP_SET", "a", P)
    c.ok("BLOB.TCP_SET", "b", P)
    c.ok("BLOB.TCP_SET", "c", P[::-1])
    a, b, other = c.ok("DEBUG", "DIGEST-VALUE", "a", "b", "c")
    assert a == b != other


def test_expired_key_is_absent_for_a_transfer(server, make_peer, any_lane):
    peer = make_peer(any_lane)
    peer.store("k", P)
    server.ok("PEXPIRE", "k", 1)
    time.sleep(0.01)
    region = peer.region(4096)
    assert peer.get("k", region.triple()) is None and region.untouched()
