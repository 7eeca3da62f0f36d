"""The server is killed under a client, again and again: what the caller gets back is quiet, and the next server is served."""
import random
import time

from harness.pattern import SENTINEL, crc32c, pattern
from harness.server import SMALL, Server, eventually
from helpers import Background, connected, sentinels

import farlift

SIZE = 4 << 20


def answers(client) -> bool:
    try:
        return client.ping() == b"PONG"
    except farlift.ConnectionError:
        return False


def test_memory_is_quiet_after_each_kill(any_rdma, long_run, rounds):
    """A read and a write are under way on two connections when the server dies. Each ends with its result or with
    ConnectionError and a closed region; then its memory is ours, and the canaries in it live."""
    rng = random.Random(951)
    content, source = pattern(SIZE, seed=951), pattern(SIZE, seed=952)
    lost = 0
    with Server({}, SMALL) as server, connected(server.port, any_rdma) as reader, connected(server.port, any_rdma) as writer:
        for i in rounds(100 if long_run else 4):
            for client in (reader, writer):
                eventually(lambda one=client: answers(one), what="reconnected")
            server.ok("BLOB.TCP_SET", "k", content)
            landing, sent = sentinels(SIZE), bytearray(source)
            regions = [reader.register_rdma_region(landing), writer.register_rdma_region(sent)]
            for client, region in zip((reader, writer), regions):  # the handshake is done beforehand
                assert client.rdma_get("absent", region.window()) is None
            get = Background(reader.rdma_get, "k", regions[0].window())
            put = Background(writer.rdma_set, "n", regions[1].window())
            if i % 2:
                eventually(lambda: landing[0] != SENTINEL or not get.running, first_pause=0.0, what="the landing begins")
            time.sleep(rng.choice([0, rng.random() * 0.003]))
            server.kill()
            for transfer, region in zip((get, put), regions):
                error = transfer.error(60)
                assert error is None or isinstance(error, farlift.ConnectionError), error
                assert region.closed == (error is not None)
                lost += error is not None
                region.close()
            assert sent == source, "the server wrote into what it was to read"
            if get.error() is None:
                assert landing == content and get.result().checksum == crc32c(content)
            landing[:] = sent[:] = sentinels(SIZE)
            until = time.monotonic() + 0.02
            while time.monotonic() < until:
                assert landing.count(SENTINEL) == sent.count(SENTINEL) == SIZE, "a byte landed after the call had returned"
            server.forget_connections()
            server.start()
    assert lost, "no transfer was under way when the server died"
