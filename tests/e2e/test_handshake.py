"""BLOB.RDMA_HELLO: spec blob 3.1, cases 1 to 14."""
import pytest

from harness import texts
from harness.pattern import P, crc32c
from harness.peer import LANES, Peer
from harness.resp import RespError
from harness.server import SMALL, Server, eventually


def hello(connection, address: bytes):
    return connection.call("BLOB.RDMA_HELLO", address.hex())


def sessions(server) -> int:
    return server.counter("rdma_sessions")


def round_trip(peer, key="k") -> None:
    peer.store(key, P)
    assert peer.fetch(key, len(P)) == P


def test_B001_hello_answers_one_address_per_service(server, make_peer, any_lane):
    peer = make_peer(any_lane, hello=False)
    assert len(peer.target.address) == 16
    before = sessions(server)
    reply = hello(peer.connection, peer.target.address)
    assert isinstance(reply, list) and len(reply) >= 1
    for word in reply:
        assert isinstance(word, bytes) and word == word.lower()
        assert len(bytes.fromhex(word.decode())) in (16, 28)
    assert sessions(server) == before + 1


def test_B001_shape_is_equal_in_resp3(make_peer, lane):
    two, three = make_peer(lane, hello=False), make_peer(lane, resp=3, hello=False)
    a, b = hello(two.connection, two.target.address), hello(three.connection, three.target.address)
    assert [type(w) for w in a] == [type(w) for w in b] and a == b


def test_B002_second_hello_same_address(make_peer, any_lane):
    peer = make_peer(any_lane)
    assert hello(peer.connection, peer.target.address) == texts.ALREADY_BOUND
    round_trip(peer)


def test_B003_second_hello_other_address_keeps_the_old_binding(make_peer, any_lane):
    peer, other = make_peer(any_lane), make_peer(any_lane, hello=False)
    assert hello(peer.connection, other.target.address) == texts.ALREADY_BOUND
    round_trip(peer)


@pytest.mark.parametrize("argument", ["", "zz", "abc", "00" * 15])
def test_B003_second_hello_fails_whatever_its_argument(bound, argument):
    assert bound.connection.call("BLOB.RDMA_HELLO", argument) in (
        texts.ALREADY_BOUND, texts.HELLO_EMPTY, texts.HELLO_HEX, texts.HELLO_LENGTH)
    round_trip(bound)


@pytest.mark.parametrize("arguments", [[], ["00" * 16, "00" * 16]])
def test_B004_hello_arity(server, arguments):
    assert texts.is_arity(server.connect().call("BLOB.RDMA_HELLO", *arguments), "blob.rdma_hello")


def test_B005_hello_not_hex(make_peer, lane):
    peer = make_peer(lane, hello=False)
    for bad in ("zz", "abc", "0", "0x" + "00" * 15, " 00", b"\x00\xff", "00" * 15 + "0g"):
        assert peer.connection.call("BLOB.RDMA_HELLO", bad) == texts.HELLO_HEX
    peer.hello()
    round_trip(peer)


def test_B006_hello_empty(make_peer, lane):
    peer = make_peer(lane, hello=False)
    assert peer.connection.call("BLOB.RDMA_HELLO", "") == texts.HELLO_EMPTY
    peer.hello()


@pytest.mark.parametrize("length", [1, 15, 17, 27, 29, 32, 64, 65, 4096])
def test_B007_hello_wrong_length(server, length):
    connection = server.connect()
    assert hello(connection, b"\x02\x00" + bytes(length - 2) if length > 1 else b"\x02") == texts.HELLO_LENGTH
    assert connection.call("BLOB.RDMA_GET", "k", 1, 0, 1) == texts.NOT_BOUND


def test_B008_hello_ipv6():
    from farlift import _fabric
    from harness.peer import Lane
    lane6 = Lane("soft6", lambda: _fabric.open_soft(listen_ip="::1"))
    with Server({}, {**SMALL, "fabric-interfaces": "::1"}) as server, Peer(server, lane6, hello=False) as peer:
        assert len(peer.target.address) == 28
        reply = hello(peer.connection, peer.target.address)
        assert isinstance(reply, list) and [len(word) for word in reply] == [56], reply
        round_trip(peer)


def test_B009_ipv6_address_on_an_ipv4_service():
    address = b"\x0a\x00" + b"\x1f\x90" + bytes(4) + bytes(15) + b"\x01" + bytes(4)
    with Server({}, {**SMALL, "fabric-interfaces": "127.0.0.1"}) as server:
        connection = server.connect()
        reply = hello(connection, address)
        assert isinstance(reply, RespError) and reply.text.startswith("ERR session create: "), reply
        assert len(reply.text) <= 128
        assert connection.call("BLOB.RDMA_GET", "k", 1, 0, 1) == texts.NOT_BOUND
        assert sessions(server) == 0
        with Peer(server, LANES["soft-host"]) as peer:
            round_trip(peer)


def test_B010_no_such_interface_is_inline_only():
    with Server({}, {**SMALL, "fabric-interfaces": "nosuch0"}) as server:
        connection = server.connect()
        assert hello(connection, bytes.fromhex("02001f907f000001") + bytes(8)) == texts.NO_FABRIC
        assert connection.call("BLOB.TCP_SET", "k", P) == "OK"
        assert connection.call("BLOB.TCP_GET", "k") == P
        refusal = connection.call("BLOB.RDMA_GET", "k", 1, 0, 4096)
        assert refusal in (texts.NOT_BOUND, texts.NO_FABRIC)


def test_B011_upper_case_hex(make_peer, any_lane):
    peer = make_peer(any_lane, hello=False)
    reply = peer.connection.call("BLOB.RDMA_HELLO", peer.address_hex.upper())
    assert isinstance(reply, list), reply
    for word in reply:
        peer.target.add_peer(bytes.fromhex(word.decode()))
    round_trip(peer)


def test_B012_two_connections_one_address(server, make_peer, any_lane):
    peer = make_peer(any_lane)
    second = server.connect()
    assert isinstance(hello(second, peer.target.address), list)
    count = sessions(server)
    second.close()
    eventually(lambda: sessions(server) == count - 1, what="one session less")
    round_trip(peer)
    third = server.connect()
    assert isinstance(hello(third, peer.target.address), list)
    peer.connection.close()
    eventually(lambda: sessions(server) == count - 1, what="one session less")
    peer.connection = third
    round_trip(peer)


def test_B013_a_new_connection_is_not_bound(server, make_peer, lane):
    peer = make_peer(lane)
    peer.store("k", P)
    region = peer.region(4096)
    peer.connection.close()
    fresh = server.connect()
    assert fresh.call("BLOB.RDMA_GET", "k", *region.triple()) == texts.NOT_BOUND
    assert region.untouched()


def test_B014_reset_and_friends_keep_the_binding(make_peer, any_lane):
    peer = make_peer(any_lane)
    peer.store("k", P)
    assert peer.connection.call("RESET") == "RESET"
    assert peer.fetch("k", 4096) == P
    assert peer.connection.call("SELECT", 1) == "OK"
    round_trip(peer, "in-one")
    assert isinstance(peer.connection.call("AUTH", "default", "wrong"), (RespError, str))
    assert isinstance(peer.connection.call("HELLO", 3), dict)
    assert peer.fetch("in-one", 4096) == P
    assert peer.connection.call("FLUSHALL") == "OK"


def test_the_judge_of_checksums():
    from farlift import _fabric
    from harness.pattern import pattern, slow_crc32c
    assert slow_crc32c(b"123456789") == 0xE3069283
    for length in (0, 1, 2, 7, 8, 9, 63, 64, 65, 1023, 4097, 100_003):
        data = pattern(length, seed=length)
        assert _fabric.crc32c(data) == slow_crc32c(data)
    assert crc32c(P) == slow_crc32c(P)
