"""BLOB.TCP_SET, BLOB.TCP_GET, BLOB.INFO: spec blob 3.4 to 3.6, cases 56 to 61."""
import pytest

from harness import texts
from harness.pattern import P, crc32c, pattern


@pytest.fixture
def connection(server):
    return server.connect()


@pytest.mark.parametrize("content", [b"\x00", b"\r\n", b"a\x00b\r\n$-1\r\n\x00", bytes(range(256)) * 7, b"\xff" * 70000],
                         ids=["nul", "crlf", "mixed", "all", "long"])
def test_B056_binary_values(connection, content):
    assert connection.call("BLOB.TCP_SET", "k", content) == "OK"
    assert connection.call("BLOB.TCP_GET", "k") == content
    assert connection.call("BLOB.INFO", "k", "LEN") == len(content)


def test_B056_binary_keys(connection):
    key = b"k\x00\r\n\xff"
    assert connection.call("BLOB.TCP_SET", key, P) == "OK"
    assert connection.call("BLOB.TCP_GET", key) == P
    assert connection.call("BLOB.TCP_GET", b"k") is None


def test_B056_empty_value(connection):
    assert connection.call("BLOB.TCP_SET", "k", "") == texts.EMPTY_OBJECT
    assert connection.call("EXISTS", "k") == 0


@pytest.mark.parametrize("words", [["BLOB.TCP_SET", "k"], ["BLOB.TCP_SET"], ["BLOB.TCP_SET", "k", "v", "x"],
                                   ["BLOB.TCP_GET"], ["BLOB.TCP_GET", "k", "x"], ["BLOB.INFO"]])
def test_inline_arity(connection, words):
    assert texts.is_arity(connection.call(*words), words[0].lower())


def test_B057_value_above_the_limit(server, connection):
    assert connection.call("BLOB.TCP_SET", "k", bytes((8 << 20) + 1)) == texts.TOO_LARGE
    assert connection.call("DBSIZE") == 0
    content = pattern(8 << 20, seed=57)
    assert connection.call("BLOB.TCP_SET", "k", content) == "OK"
    with server.config(largeobj__max_object_size="8192"):
        assert connection.call("BLOB.TCP_SET", "n", bytes(8193)) == texts.TOO_LARGE
        assert connection.call("BLOB.TCP_GET", "k") == content
    assert connection.call("DBSIZE") == 1


def test_B057_protocol_limit_comes_first(server):
    from harness.resp import Disconnected, RespError
    connection = server.connect()
    with server.config(proto_max_bulk_len="1mb"):
        connection.sock.sendall(b"*3\r\n$12\r\nBLOB.TCP_SET\r\n$1\r\nk\r\n$1048577\r\n")
        reply = connection.read()
        assert isinstance(reply, RespError) and "Protocol error" in reply.text
        with pytest.raises((Disconnected, ConnectionError)):
            connection.read()


def test_B058_foreign_types_and_missing(connection):
    connection.ok("SET", "s", "x")
    connection.ok("LPUSH", "l", "x")
    for key in ("s", "l"):
        assert connection.call("BLOB.TCP_SET", key, P) == texts.WRONGTYPE
        assert connection.call("BLOB.TCP_GET", key) == texts.WRONGTYPE
        assert connection.call("BLOB.INFO", key) == texts.WRONGTYPE
        assert connection.call("BLOB.INFO", key, "LEN") == texts.WRONGTYPE
    assert connection.call("GET", "s") == b"x"
    assert connection.call("LRANGE", "l", 0, -1) == [b"x"]
    assert connection.call("BLOB.TCP_GET", "missing") is None and connection.nil == b"$-1"


def test_B058_nil_in_resp3(server):
    connection = server.connect(resp=3)
    assert connection.call("BLOB.TCP_GET", "missing") is None and connection.nil == b"_"
    assert connection.call("BLOB.INFO", "missing") is None and connection.nil == b"_"


@pytest.mark.parametrize("resp", [2, 3])
def test_B059_info(server, resp):
    connection = server.connect(resp=resp)
    connection.ok("BLOB.TCP_SET", "k", P)
    reply = connection.call("BLOB.INFO", "k")
    assert [w.decode() if isinstance(w, bytes) else w for w in reply] == [
        "len", 4096, "crc", crc32c(P), "tier", "dram"]
    for field, expected in (("len", 4096), ("LEN", 4096), ("Crc", crc32c(P))):
        assert connection.call("BLOB.INFO", "k", field) == expected
    assert connection.call("BLOB.INFO", "k", "tier") in (b"dram", "dram")
    for bad in ("bogus", "", "length", "le", b"len\x00"):
        assert connection.call("BLOB.INFO", "k", bad) == texts.INFO_FIELD
    assert connection.call("BLOB.INFO", "missing") is None
    assert connection.call("BLOB.INFO", "missing", "LEN") is None
    assert texts.is_arity(connection.call("BLOB.INFO", "k", "LEN", "CRC"), "blob.info")


def test_B059_info_is_no_cache_access(server, connection):
    connection.ok("BLOB.TCP_SET", "k", P)
    before = server.info()
    for _ in range(10):
        connection.ok("BLOB.INFO", "k")
    after = server.info()
    assert (after["dram_hits"], after["dram_misses"]) == (before["dram_hits"], before["dram_misses"])


def test_B060_equal_payloads_equal_checksums(connection):
    for key in ("a", "b"):
        connection.ok("BLOB.TCP_SET", key, P)
    assert connection.ok("BLOB.INFO", "a", "CRC") == connection.ok("BLOB.INFO", "b", "CRC") == crc32c(P)
    connection.ok("BLOB.TCP_SET", "c", "123456789")
    assert connection.ok("BLOB.INFO", "c", "CRC") == 3808858755


@pytest.mark.parametrize("length", [1, 4096, (1 << 20) + 17, 5 << 20])
def test_B061_both_transports_see_the_same(server, make_peer, any_lane, length):
    peer = make_peer(any_lane)
    content = pattern(length, seed=61)
    peer.connection.ok("BLOB.TCP_SET", "inline", content)
    assert peer.fetch("inline", length) == content
    peer.store("rdma", content)
    assert peer.connection.ok("BLOB.TCP_GET", "rdma") == content
    assert peer.connection.ok("BLOB.INFO", "rdma", "CRC") == peer.connection.ok("BLOB.INFO", "inline", "CRC") == crc32c(content)


def test_a_blocked_transfer_holds_later_commands_in_order(server, bound):
    """Spec blob 2 item 6."""
    connection = bound.connection
    region = bound.region(content=P)
    connection.send("BLOB.TCP_SET", "k", P[::-1])
    bound.send_set("k", 4096, region.triple())
    connection.send("BLOB.INFO", "k", "CRC")
    connection.send("BLOB.TCP_GET", "k")
    connection.send("DEL", "k")
    connection.send("BLOB.TCP_GET", "k")
    assert [connection.read() for _ in range(6)] == ["OK", "OK", crc32c(P), P, 1, None]
