"""A hostile client sends anything: the server lives, touches nothing that was not registered, and leaks nothing."""
import random
import socket
import struct

import pytest

from harness.pattern import P, crc32c, pattern
from harness.peer import LANES, Peer
from harness.resp import Disconnected, RespError, encode
from harness.server import eventually

NUMBERS = ["0", "1", "2", "4095", "4096", "4097", "8388608", "8388609", str((1 << 31) - 1), str(1 << 31), str((1 << 32) - 1),
           str(1 << 32), str((1 << 63) - 1), str(1 << 63), str((1 << 64) - 1), str(1 << 64), "-1", "", "00", "1e3", "0x10", " 1",
           "9" * 20, "9" * 21, "\x00", "CRC", "crc", "LEN", "\r\n"]


def operands(rng, region, count):
    key, addr, length = region.triple()
    real = [str(key), str(addr), str(length)]
    out = []
    for _ in range(count):
        pick = rng.random()
        if pick < 0.5:
            out.append(rng.choice(real))
        elif pick < 0.9:
            out.append(rng.choice(NUMBERS))
        else:
            out.append(rng.randbytes(rng.randrange(40)))
    return out


def hostile_command(rng, region):
    name = rng.choice(["BLOB.RDMA_GET", "BLOB.RDMA_SET", "BLOB.RDMA_HELLO", "BLOB.TCP_GET", "BLOB.TCP_SET", "BLOB.INFO",
                       "blob.rdma_set", "BLOB.RDMA_GET"])
    key = rng.choice(["k", "s", "missing", "", "h" * 300, b"\xff\x00"])
    if name.lower() == "blob.rdma_hello":
        return [name, *[rng.choice([rng.randbytes(16).hex(), "zz", "", "0", rng.randbytes(28).hex(), "f" * 4000,
                                    rng.randbytes(rng.randrange(70)).hex()]) for _ in range(rng.choice([0, 1, 1, 1, 2]))]]
    words = rng.choice([0, 1, 2, 3, 3, 3, 4, 5, 6, 6, 7, 9, 12, 30, 768, 771])
    head = [name, key]
    if name.lower().endswith("set") and rng.random() < 0.8:
        head.append(rng.choice(NUMBERS + ["4096", "4096", "4096"]))
        if rng.random() < 0.3:
            head += [rng.choice(["CRC", "crc", "CRCX"]), rng.choice(NUMBERS + [str(crc32c(P))])]
    return head + operands(rng, region, words)


@pytest.mark.parametrize("lane_name", ["soft-host", "emulated"])
def test_any_operands(server, lane_name, long_run, rounds):
    rng = random.Random(20260101)
    server.ok("BLOB.TCP_SET", "k", P)
    server.ok("SET", "s", "x")
    start = server.info()
    with Peer(server, LANES[lane_name]) as peer:
        region = peer.region(4096 + 8192)
        window = peer.lane.domain.register(memoryview(region.memory)[4096:8192], "rw")
        region.close()
        region.registration = window  # only the middle third is open
        for step in rounds(20_000 if long_run else 700):
            try:
                reply = peer.connection.call(*hostile_command(rng, region))
            except (Disconnected, ConnectionError) as error:
                raise AssertionError(f"step {step}: the connection was dropped") from error
            if isinstance(reply, RespError):
                assert len(reply.text) <= 512, reply
            assert region.memory[:4096].count(0xA5) == 4096 and region.memory[8192:].count(0xA5) == 4096, step
        assert peer.connection.ok("PING") == "PONG"
    server.ok("FLUSHALL")
    eventually(lambda: server.counter("dram_allocated_bytes") <= start["dram_allocated_bytes"], what="no leak")
    eventually(lambda: server.counter("rdma_sessions") == 0)


def test_any_bytes_at_the_resp_layer(server, long_run, rounds):
    """Broken framing closes that connection at most; the server lives."""
    rng = random.Random(7)
    for _ in rounds(3000 if long_run else 200):
        frame = bytearray(encode(["BLOB.RDMA_SET", "k", 4096, "CRC", crc32c(P), 1, 0, 4096]))
        for _ in range(rng.randrange(1, 6)):
            choice = rng.random()
            at = rng.randrange(len(frame))
            if choice < 0.4:
                frame[at] = rng.randrange(256)
            elif choice < 0.7:
                del frame[at:at + rng.randrange(1, 9)]
            else:
                frame[at:at] = rng.randbytes(rng.randrange(1, 9))
            if not frame:
                frame = bytearray(b"*")
        with socket.create_connection(("127.0.0.1", server.port), timeout=10) as raw:
            raw.sendall(frame)
            raw.shutdown(socket.SHUT_WR)
            try:
                while raw.recv(65536):
                    pass
            except ConnectionError:
                pass
        assert server.alive()
    assert server.ok("PING") == "PONG"
    assert server.counter("rdma_sessions") == 0


ADDRESSES = {
    "wildcard": struct.pack("<H", 2) + struct.pack(">H", 80) + bytes([0, 0, 0, 0]) + bytes(8),
    "multicast": struct.pack("<H", 2) + struct.pack(">H", 80) + bytes([224, 0, 0, 1]) + bytes(8),
    "broadcast": struct.pack("<H", 2) + struct.pack(">H", 80) + bytes([255, 255, 255, 255]) + bytes(8),
    "port zero": struct.pack("<H", 2) + bytes(2) + bytes([127, 0, 0, 1]) + bytes(8),
    "other family": struct.pack("<H", 99) + struct.pack(">H", 80) + bytes([127, 0, 0, 1]) + bytes(8),
    "v6 in 16": struct.pack("<H", 10) + struct.pack(">H", 80) + bytes([127, 0, 0, 1]) + bytes(8),
    "all ones": b"\xff" * 16,
    "zeros": bytes(16),
}


@pytest.mark.parametrize("name", ADDRESSES)
def test_addresses_that_are_no_peer(server, name):
    """Refused at HELLO, or the transfer fails; either way an answer, in time, and no effect."""
    server.ok("BLOB.TCP_SET", "k", P)
    connection = server.connect()
    reply = connection.call("BLOB.RDMA_HELLO", ADDRESSES[name].hex())
    if isinstance(reply, RespError):
        assert reply.text.startswith("ERR session create: ")
        assert connection.call("BLOB.RDMA_GET", "k", 1, 0, 4096).text.startswith("ERR no RDMA session")
    else:
        reply = connection.call("BLOB.RDMA_GET", "k", 1, 0, 4096)
        assert isinstance(reply, RespError) and reply.text.startswith("ERR RDMA write failed")
    assert server.ok("PING") == "PONG"


def test_a_peer_that_is_somebody_else(server):
    """The address of a listener that speaks another protocol (here: the server's own RESP port) gets one clear error."""
    server.ok("BLOB.TCP_SET", "k", P)
    connection = server.connect()
    address = struct.pack("<H", 2) + struct.pack(">H", server.port) + bytes([127, 0, 0, 1]) + bytes(8)
    assert isinstance(connection.call("BLOB.RDMA_HELLO", address.hex()), list)
    reply = connection.call("BLOB.RDMA_GET", "k", 1, 0, 4096)
    assert isinstance(reply, RespError) and reply.text.startswith("ERR RDMA write failed"), reply
    reply = connection.call("BLOB.RDMA_SET", "n", 4096, 1, 0, 4096)
    assert isinstance(reply, RespError) and reply.text.startswith("ERR RDMA read failed"), reply
    assert server.ok("EXISTS", "n") == 0


def test_a_listener_that_accepts_and_says_nothing(server):
    server.ok("BLOB.TCP_SET", "k", P)
    with socket.socket() as mute:
        mute.bind(("127.0.0.1", 0))
        mute.listen(16)
        address = struct.pack("<H", 2) + struct.pack(">H", mute.getsockname()[1]) + bytes([127, 0, 0, 1]) + bytes(8)
        connection = server.connect()
        assert isinstance(connection.call("BLOB.RDMA_HELLO", address.hex()), list)
        connection.send("BLOB.RDMA_GET", "k", 1, 0, 4096)
        with Peer(server, LANES["soft-host"]) as neighbour:
            for _ in range(20):
                assert neighbour.fetch("k", 4096) == P
        reply = connection.read()
        assert isinstance(reply, RespError) and reply.text.startswith("ERR RDMA write failed"), reply


def test_many_bindings_of_many_addresses(server, long_run, rounds):
    """Bindings come and go; nothing is left, and a good peer is served in between."""
    content = pattern(4096, seed=9)
    server.ok("BLOB.TCP_SET", "k", content)
    rng = random.Random(9)
    connections = []
    with Peer(server, LANES["soft-host"]) as peer:
        for i in rounds(2000 if long_run else 200):
            connection = server.connect()
            address = struct.pack("<H", 2) + struct.pack(">H", 1 + rng.randrange(65535)) + bytes([127, 0, 0, 1]) + bytes(8)
            connection.call("BLOB.RDMA_HELLO", address.hex())
            connections.append(connection)
            if len(connections) > 50:
                connections.pop(rng.randrange(50)).close()
            if i % 20 == 0:
                assert peer.fetch("k", 4096) == content
        for connection in connections:
            connection.close()
        eventually(lambda: server.counter("rdma_sessions") == 1, what="one binding left")
