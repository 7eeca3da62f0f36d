"""Lost connections, closing, wrong replies: cases 95 to 104 and 109."""
import os
import random
import signal
import subprocess
import sys
import threading
import time

import pytest
from harness import PYTHONPATH
from harness.fake_server import Cut, FakeServer, Raw, triples_of
from harness.pattern import P, crc32c, pattern
from harness.server import SMALL, Server, eventually
from helpers import Background, Stall, connected, sentinels, serve, untouched

import farlift
from farlift import (Batch, ClosingError, ClusterClient, ClusterClientConfiguration, NodeAddress, RdmaConfiguration, RdmaError,
                     RequestError)


def no_change_for(seconds: float, buffers) -> None:
    before = [bytes(buffer) for buffer in buffers]
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        assert all(bytes(buffer) == old for buffer, old in zip(buffers, before)), "a byte changed after the call had returned"
        time.sleep(0.05)


def test_B095_server_killed_mid_get(any_rdma):
    size = 8 << 20
    content = pattern(size, seed=95)
    with Server({}, SMALL) as server, connected(server.port, any_rdma) as client:
        buffers = []
        for attempt in range(4):
            server.ok("BLOB.TCP_SET", "k", content)
            with client.register_rdma_region(bytearray(P)) as small:  # the handshake is done beforehand
                client.rdma_set("small", small.window())
            buffer = sentinels(size)
            region = client.register_rdma_region(buffer)
            # the server stands still from before it can answer until it dies
            with server.stopped():
                transfer = Background(client.rdma_get, "k", region.window())
                time.sleep(0.02)
                assert transfer.running
                if attempt == 0:
                    server.kill()
            if attempt:
                time.sleep(random.random() * 0.003)
                server.kill()
            error = transfer.error()
            if error is None:
                assert buffer == content and not region.closed
            else:
                assert isinstance(error, farlift.ConnectionError), error
                assert region.closed
                buffers.append(buffer)
            server.start()
            eventually(lambda: _answers(client), what="reconnected")
            # the same memory again
            again = client.register_rdma_region(buffer)
            server.ok("BLOB.TCP_SET", "k", content)
            assert client.rdma_get("k", again.window()).checksum == crc32c(content)
            again.close()
        assert buffers, "no transfer was under way when the server died"


def _answers(client) -> bool:
    try:
        return client.ping() == b"PONG"
    except farlift.ConnectionError:
        return False


def test_B095_no_byte_changes_in_5_seconds(any_rdma):
    size = 4 << 20
    with Server({}, SMALL) as server, connected(server.port, any_rdma) as client:
        server.ok("BLOB.TCP_SET", "k", pattern(size, seed=950))
        buffer = sentinels(size)
        region = client.register_rdma_region(buffer)
        assert client.rdma_get("absent", region.window()) is None  # the handshake is done beforehand
        with server.stopped():
            transfer = Background(client.rdma_get, "k", region.window())
            time.sleep(0.05)
            server.kill()
        assert isinstance(transfer.error(), farlift.ConnectionError) and region.closed
        no_change_for(5.0, [buffer])


def test_B096_stalled_server_and_close(any_rdma):
    size = 8 << 20
    with Server({}, SMALL) as server:
        with connected(server.port, any_rdma) as client:
            server.ok("BLOB.TCP_SET", "k", pattern(size, seed=96))
            buffers = [sentinels(size), sentinels(4096)]
            regions = [client.register_rdma_region(buffer) for buffer in buffers]
            client.rdma_get("absent", regions[1].window())
            with server.stopped():
                transfer = Background(client.rdma_get, "k", regions[0].window())
                time.sleep(0.05)
                client.close()
                assert isinstance(transfer.error(), ClosingError)
                assert all(region.closed for region in regions)
                landed = [bytes(buffer) for buffer in buffers]
            # the server is running again, and would write if it could
            no_change_for(1.0, buffers)
            assert [bytes(buffer) for buffer in buffers] == landed
        assert server.ok("PING") == "PONG"


def test_B096_late_writes_of_a_scripted_server(fake_domain):
    """The server has landed a part, and writes the rest after the client was closed."""
    value = pattern(1 << 20, seed=960)
    stall = Stall(value, before=1000)
    with FakeServer(fake_domain, {"BLOB.RDMA_GET": stall}) as server, connected(server.port) as client:
        buffer = sentinels(1 << 20)
        region = client.register_rdma_region(buffer)
        transfer = Background(client.rdma_get, "k", region.window())
        assert stall.entered.wait(30)
        client.close()
        assert isinstance(transfer.error(), ClosingError) and region.closed
        assert buffer[:1000] == value[:1000] and untouched(buffer, 1000)
        stall.release()
        assert stall.done.wait(30)
        assert stall.outcomes[0] is None and stall.outcomes[1] is not None, "the late write was refused"
        assert buffer[:1000] == value[:1000] and untouched(buffer, 1000)


def test_B097_close_races_a_reply(fake_domain, long_run, rounds):
    value = pattern(65536, seed=97)
    rng = random.Random(97)
    receipts = closed = 0
    with FakeServer(fake_domain, {"BLOB.RDMA_GET": serve(value)}) as server:
        for _ in rounds(1000 if long_run else 120):
            with connected(server.port) as client:
                buffer = sentinels(65536)
                region = client.register_rdma_region(buffer)
                client.rdma_get("k", region.window())
                region.memoryview()[:] = sentinels(65536)
                transfer = Background(client.rdma_get, "k", region.window())
                time.sleep(rng.random() * 0.0006)
                client.close()
                error = transfer.error(30)
                if error is None:
                    assert transfer.result() == farlift.RdmaReadReceipt(65536, crc32c(value))
                    assert buffer == value
                    receipts += 1
                else:
                    assert isinstance(error, ClosingError), error
                    closed += 1
                assert region.closed
    assert receipts and closed, (receipts, closed)


def test_B098_scripted_server_slower_than_the_timeout(fake_domain):
    stall = Stall(P)
    with FakeServer(fake_domain, {"BLOB.RDMA_GET": stall}) as server, connected(server.port, request_timeout=50) as client:
        region = client.register_rdma_region(bytearray(4096))
        transfer = Background(client.rdma_get, "k", region.window())
        assert stall.entered.wait(30)
        time.sleep(0.6)
        assert transfer.running
        stall.release()
        assert transfer.result().bytes_written == 4096


def test_request_timeout_of_ordinary_commands(fake_domain):
    gate = threading.Event()
    with FakeServer(fake_domain, {"GET": lambda c, w: gate.wait(30) and None}) as server, \
            connected(server.port, request_timeout=100) as client:
        with pytest.raises(farlift.TimeoutError):
            client.get("k")
        gate.set()
        eventually(lambda: _answers(client))


def test_B099_multi_is_open(server, client):
    region = client.register_rdma_region(bytearray(P))
    client.rdma_set("k", region.window())
    assert client.custom_command(["MULTI"]) == "OK"
    for call in (lambda: client.rdma_get("k", region.window()), lambda: client.rdma_set("k", region.window())):
        with pytest.raises(RdmaError):
            call()
        assert not region.closed
    assert client.custom_command(["DISCARD"]) == "OK"
    assert client.rdma_get("k", region.window()).bytes_written == 4096
    client.custom_command(["MULTI"])
    client.custom_command(["SET", "s", "x"])
    with pytest.raises(RdmaError):
        client.rdma_get("k", region.window())
    assert client.custom_command(["EXEC"]) == ["OK"]
    assert client.rdma_get("k", region.window()).bytes_written == 4096


def test_B100_queued(fake_domain):
    """The reply is QUEUED: the server would run it at EXEC. By then the memory must be out of reach."""
    seen = []

    def queued(connection, words):
        seen.append((connection, triples_of(words[2:])))
        return "QUEUED"

    with FakeServer(fake_domain, {"BLOB.RDMA_GET": queued}) as server, connected(server.port) as client:
        buffer = sentinels(4096)
        region = client.register_rdma_region(buffer)
        with pytest.raises(RdmaError):
            client.rdma_get("k", region.window())
        assert region.closed
        connection, triples = seen[0]
        assert connection.ended.wait(30), "the connection is dropped"
        initiator = fake_domain.open_initiator()
        key, addr, _ = triples[0]
        peer = initiator.add_peer(connection.peer_address)
        initiator.post("write", peer, key, addr, P)
        done = []
        while not done:
            initiator.wait(1000)
            done = initiator.poll()
        assert done[0][1] is not None and untouched(buffer)
        initiator.close()
        again = client.register_rdma_region(buffer)
        assert not again.closed and client.ping() == b"PONG"


WRONG = {
    "integer": 4096, "status": "OK", "bulk": b"x" * 10, "empty array": [], "one item": [4096], "three items": [4096, 1, 2],
    "nested": [[4096, 1]], "strings": [b"4096", b"1"], "negative": [-1, 5], "wide crc": [4096, 1 << 32], "nil inside": [None, 1],
    "map": {b"len": 4096}, "bool": True, "double": Raw(b",1.5\r\n"), "big number": Raw(b"(123\r\n"),
}


@pytest.mark.parametrize("name", WRONG)
def test_B101_wrong_reply_to_get(fake_domain, name):
    with FakeServer(fake_domain, {"BLOB.RDMA_GET": lambda c, w: WRONG[name]}) as server, connected(server.port) as client:
        region = client.register_rdma_region(bytearray(8192))
        with pytest.raises(RdmaError):
            client.rdma_get("k", region.window())
        assert region.closed
        assert server.connections[-1].ended.wait(30), "the connection is dropped"
        eventually(lambda: _answers(client))


@pytest.mark.parametrize("name", ["integer", "bulk", "nested", "map", "one item"])
def test_B101_wrong_reply_to_set(fake_domain, name):
    with FakeServer(fake_domain, {"BLOB.RDMA_SET": lambda c, w: WRONG[name]}) as server, connected(server.port) as client:
        region = client.register_rdma_region(bytearray(8192))
        with pytest.raises(RdmaError):
            client.rdma_set("k", region.window())
        assert region.closed and server.connections[-1].ended.wait(30)


@pytest.mark.parametrize("junk", [b"?what\r\n", b"*99999999999\r\n", b"$-7\r\n", b":12x\r\n", b"*2\r\n:1\r\n"])
def test_B101_bytes_that_are_no_reply(fake_domain, junk):
    def answer(connection, words):
        connection.sock.sendall(junk)
        raise Cut()

    with FakeServer(fake_domain, {"BLOB.RDMA_GET": answer}) as server, connected(server.port) as client:
        region = client.register_rdma_region(bytearray(8192))
        with pytest.raises((RdmaError, farlift.ConnectionError)):
            client.rdma_get("k", region.window())
        assert region.closed
        eventually(lambda: _answers(client))


def test_reported_length_above_the_window(fake_domain):
    """A server fault: what lies beyond the window may be dirty, so the region closes."""
    def liar(connection, words):
        connection.write_value(triples_of(words[2:]), P)
        return [4097, crc32c(P)]

    with FakeServer(fake_domain, {"BLOB.RDMA_GET": liar}) as server, connected(server.port) as client:
        region = client.register_rdma_region(bytearray(4096))
        with pytest.raises(RdmaError):
            client.rdma_get("k", region.window())
        assert region.closed


def test_B102_server_without_the_module():
    with Server({}, None) as server, connected(server.port) as client:
        assert client.set("s", "x") == "OK" and client.get("s") == b"x"
        region = client.register_rdma_region(bytearray(4096))
        for _ in range(2):
            with pytest.raises(RdmaError, match="unknown command"):
                client.rdma_get("k", region.window())
            assert not region.closed and client.get("s") == b"x"


def test_hello_refused_by_acl(server, make_client):
    server.ok("ACL", "SETUSER", "weak", "reset", "on", "nopass", "+@all", "-blob.rdma_hello", "~*", "&*")
    try:
        client = make_client(server, credentials=farlift.ServerCredentials("x", "weak"))
        region = client.register_rdma_region(bytearray(4096))
        with pytest.raises(RdmaError, match="NOPERM"):
            client.rdma_get("k", region.window())
        assert not region.closed and client.ping() == b"PONG"
    finally:
        server.ok("ACL", "DELUSER", "weak")


def test_B103_hello_cut_off(fake_domain):
    cuts = []

    def cut_first(connection, words):
        if not cuts:
            cuts.append(connection)
            raise Cut()
        return FakeServer.bind(connection, words)

    with FakeServer(fake_domain, {"BLOB.RDMA_HELLO": cut_first, "BLOB.RDMA_GET": serve(P)}) as server, \
            connected(server.port) as client:
        region = client.register_rdma_region(bytearray(4096))
        with pytest.raises(farlift.ConnectionError):
            client.rdma_get("k", region.window())
        assert not region.closed and server.count("BLOB.RDMA_GET") == 0
        assert client.rdma_get("k", region.window()).bytes_written == 4096


def test_B103_hello_cut_off_in_a_cluster(fake_domain):
    cuts = []

    def cut_first(connection, words):
        if not cuts:
            cuts.append(connection)
            raise Cut()
        return FakeServer.bind(connection, words)

    server = FakeServer(fake_domain, {"BLOB.RDMA_HELLO": cut_first, "BLOB.RDMA_GET": serve(P)})
    node = b"a" * 40

    def cluster(connection, words):
        if words[1].upper() == b"SLOTS":
            return [[0, 16383, [b"127.0.0.1", server.port, node, []]]]
        if words[1].upper() == b"SHARDS":
            return [{b"slots": [0, 16383],
                     b"nodes": [{b"id": node, b"port": server.port, b"ip": b"127.0.0.1", b"endpoint": b"127.0.0.1",
                                 b"role": b"master", b"replication-offset": 0, b"health": b"online"}]}]
        return "-ERR unknown subcommand"

    server.handlers["CLUSTER"] = cluster
    with server, ClusterClient.create(ClusterClientConfiguration([NodeAddress("127.0.0.1", server.port)],
                                                                 rdma=RdmaConfiguration())) as client:
        buffer = bytearray(4096)
        region = client.register_rdma_region(buffer)
        assert client.rdma_get("k", region.window()).bytes_written == 4096
        assert cuts and buffer == P and not region.closed
        assert server.count("BLOB.RDMA_GET") == 1


@pytest.mark.parametrize("at", [0, 2048, 4095])
def test_B104_landed_byte_is_wrong(fake_domain, at):
    wrong = bytearray(P)
    wrong[at] ^= 0x10

    def corrupt(connection, words):
        connection.write_value(triples_of(words[2:]), bytes(wrong))
        return [4096, crc32c(P)]

    with FakeServer(fake_domain, {"BLOB.RDMA_GET": corrupt}) as server, connected(server.port) as client:
        region = client.register_rdma_region(bytearray(8192))
        with pytest.raises(RdmaError):
            client.rdma_get("k", region.window())
        assert not region.closed
        server.handlers["BLOB.RDMA_GET"] = serve(P)
        assert client.rdma_get("k", region.window()).checksum == crc32c(P)


def test_B104_bytes_that_never_landed(fake_domain):
    """The reply claims a value of which nothing, or only a part, was written."""
    for part in (0, 1, 4000):
        def lazy(connection, words, part=part):
            if part:
                connection.write_value(triples_of(words[2:]), P[:part])
            return [4096, crc32c(P)]

        with FakeServer(fake_domain, {"BLOB.RDMA_GET": lazy}) as server, connected(server.port) as client:
            region = client.register_rdma_region(bytearray(4096))
            with pytest.raises(RdmaError):
                client.rdma_get("k", region.window())
            assert not region.closed


def test_B104_bytes_changed_by_a_second_write(fake_domain):
    """Landed right, then overwritten before the reply: the checksum is of what is there."""
    def twice(connection, words):
        key, addr, _ = triples_of(words[2:])[0]
        connection.write_value(triples_of(words[2:]), P)
        connection.transfer("write", key, addr + 100, b"\x00" * 8)
        return [4096, crc32c(P)]

    with FakeServer(fake_domain, {"BLOB.RDMA_GET": twice}) as server, connected(server.port) as client:
        region = client.register_rdma_region(bytearray(4096))
        with pytest.raises(RdmaError):
            client.rdma_get("k", region.window())


def test_connection_lost_after_sending(fake_domain):
    """Never sent again: the scripted server sees the command once."""
    def cut(connection, words):
        raise Cut()

    with FakeServer(fake_domain, {"BLOB.RDMA_GET": cut, "BLOB.RDMA_SET": cut}) as server, connected(server.port) as client:
        for name, call in (("BLOB.RDMA_GET", client.rdma_get), ("BLOB.RDMA_SET", client.rdma_set)):
            region = client.register_rdma_region(bytearray(4096))
            other = client.register_rdma_region(bytearray(4096))
            with pytest.raises(farlift.ConnectionError):
                call("k", region.window())
            assert region.closed and not other.closed and server.count(name) == 1


@pytest.mark.parametrize("name", ["BLOB.RDMA_GET", "blob.rdma_get", "Blob.Rdma_Set", "blob.RDMA_HELLO", b"bLOB.rdma_SET"])
def test_B109_transfers_as_ordinary_commands(fake_domain, name):
    with FakeServer(fake_domain) as server, connected(server.port) as client:
        client.ping()
        before = len(server.commands)
        for call in (lambda: client.custom_command([name, "k", "1", "0", "10"]),
                     lambda: client.exec(Batch(False).custom_command(["PING"]).custom_command([name, "k"])),
                     lambda: client.exec(Batch(True).custom_command([name, "k"]))):
            with pytest.raises(RequestError):
                call()
        assert len(server.commands) == before, "nothing was sent"


def test_batches(server, client):
    replies = client.exec(Batch(False).custom_command(["SET", "a", 1]).custom_command(["INCR", "a"])
                          .custom_command(["LPUSH", "a", "x"]).custom_command(["GET", "a"]), raise_on_error=False)
    assert replies[:2] == ["OK", 2] and isinstance(replies[2], RequestError) and replies[3] == b"2"
    with pytest.raises(RequestError, match="WRONGTYPE"):
        client.exec(Batch(False).custom_command(["LPUSH", "a", "x"]))
    assert client.exec(Batch(True).custom_command(["INCR", "a"]).custom_command(["BLOB.INFO", "missing"])) == [3, None]
    client.custom_command(["WATCH", "a"])
    server.ok("SET", "a", "9")
    assert client.exec(Batch(True).custom_command(["INCR", "a"])) is None


INTERRUPTED = """
import signal, sys, threading
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job is born ignoring it
sys.path[:0] = [{path!r}]
from farlift import *
client = Client.create(ClientConfiguration([NodeAddress("127.0.0.1", {port})], rdma=RdmaConfiguration()))
buffer = bytearray(4096)
region = client.register_rdma_region(buffer)
print("ready", flush=True)
try:
    client.rdma_get("k", region.window())
    print("returned", flush=True)
except KeyboardInterrupt:
    print("interrupted", region.closed, bytes(buffer[:16]).hex(), flush=True)
client.close()
"""


def test_rule_9_interrupt_waits_for_the_reply(fake_domain):
    stall = Stall(P)
    with FakeServer(fake_domain, {"BLOB.RDMA_GET": stall}) as server:
        child = subprocess.Popen([sys.executable, "-c", INTERRUPTED.format(path=PYTHONPATH, port=server.port)],
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        try:
            assert child.stdout.readline() == "ready\n"
            assert stall.entered.wait(30)
            notice = Background(child.stderr.readline)
            child.send_signal(signal.SIGINT)
            assert notice.result(30).startswith("farlift: interrupted")
            for _ in range(2):  # impatience changes nothing
                child.send_signal(signal.SIGINT)
                time.sleep(0.3)
            assert child.poll() is None, "control came back while the region was exposed"
            stall.release()
            out, err = child.communicate(timeout=30)
            assert out == f"interrupted False {P[:16].hex()}\n", (out, err)
            assert "farlift: interrupted" not in err and stall.outcomes == [None]
        finally:
            child.kill()
            child.wait()


def test_a_forked_child_must_not_use_the_client(server, client):
    region = client.register_rdma_region(bytearray(P))
    client.rdma_set("k", region.window())
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        verdict = b"wrong"
        try:
            outcomes = []
            for call in (client.ping, lambda: client.rdma_get("k", region.window())):
                try:
                    call()
                    outcomes.append("returned")
                except ClosingError:
                    outcomes.append("refused")
            verdict = ",".join(outcomes).encode()
        finally:
            os.write(writer, verdict)
            os._exit(0)
    os.waitpid(child, 0)
    assert os.read(reader, 100) == b"refused,refused"
    os.close(reader)
    os.close(writer)
    assert client.rdma_get("k", region.window()).bytes_written == 4096 and not region.closed
