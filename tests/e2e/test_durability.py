"""Snapshots, replication, cluster, shutdown: spec blob 9, cases 84 to 86."""
import random
import threading
import time

import pytest

from harness import texts
from harness.pattern import P, crc32c, pattern
from harness.peer import LANES, Peer
from harness.resp import RespError
from harness.server import SMALL, Cluster, Server, eventually


def last_save_done(server) -> bool:
    return server.info("persistence")["rdb_bgsave_in_progress"] == 0


def test_B084_save_restart_load():
    with Server() as server:
        values = {f"k{i}": pattern(length, seed=840 + i)
                  for i, length in enumerate((1, 4095, 4096, 70_001, 1 << 20, (3 << 20) + 5, 8 << 20))}
        with Peer(server, LANES["soft-host"]) as peer:
            for key, content in values.items():
                peer.store(key, content)
            server.ok("PEXPIRE", "k0", 10_000_000)
            crcs = {key: server.ok("BLOB.INFO", key, "CRC") for key in values}
        assert server.ok("SAVE") == "OK"
        server.restart()
        assert server.ok("DBSIZE") == len(values) and server.counter("num_objects") == len(values)
        assert server.ok("PTTL", "k0") > 0
        with Peer(server, LANES["soft-host"]) as peer:
            for key, content in values.items():
                assert server.ok("BLOB.INFO", key, "CRC") == crcs[key] == crc32c(content)
                assert peer.fetch(key, len(content)) == content


def test_B084_damaged_snapshot_is_refused():
    with Server({"rdbchecksum": "no"}) as server:
        content = pattern(1 << 20, seed=841)
        server.ok("BLOB.TCP_SET", "k", content)
        server.ok("SAVE")
        server.stop()
        path = server.directory / "dump.rdb"
        data = bytearray(path.read_bytes())
        at = data.find(content[500_000:500_032])
        assert at > 0, "the payload is stored as it is"
        data[at] ^= 1
        path.write_bytes(data)
        assert not server.try_start(), "a payload that differs from its checksum was loaded"


def test_B084_append_only_file():
    with Server({"appendonly": "yes", "appendfsync": "no", "save": '""'}) as server:
        small, large = pattern(5000, seed=842), pattern(2 << 20, seed=843)
        with Peer(server, LANES["soft-host"]) as peer:
            peer.store("small", P)
            peer.store("small", small)
            peer.store("large", large)
            peer.store("gone", P)
            server.ok("DEL", "gone")
            key, addr, length = peer.region(16).triple()
            assert texts.is_read_failed(peer.set("failed", 16, (key ^ 1, addr, length)))
        server.restart()
        assert server.ok("DBSIZE") == 2
        assert server.ok("BLOB.TCP_GET", "small") == small and server.ok("BLOB.TCP_GET", "large") == large
        for preamble in ("no", "yes"):
            server.ok("CONFIG", "SET", "aof-use-rdb-preamble", preamble)
            server.ok("PEXPIRE", "large", 10_000_000)
            server.ok("BGREWRITEAOF")
            eventually(lambda: server.info("persistence")["aof_rewrite_in_progress"] == 0 and
                       server.info("persistence")["aof_rewrite_scheduled"] == 0, 60)
            assert server.info("persistence")["aof_last_bgrewrite_status"] == "ok"
            server.ok("BLOB.TCP_SET", f"after-{preamble}", P)
            server.restart()
            assert server.ok("BLOB.TCP_GET", "small") == small and server.ok("BLOB.TCP_GET", "large") == large
            assert server.ok("PTTL", "large") > 0 and server.ok("BLOB.TCP_GET", f"after-{preamble}") == P


class Writers:
    """Threads that SET, GET and DEL over RDMA until stopped, and remember what each key may hold."""

    def __init__(self, server, count: int, lanes):
        self.failures = []
        self.stop_asked = threading.Event()
        self.transfers = 0
        self.history = {}  # key -> every version it had while the snapshot ran, None for deleted
        self.lock = threading.Lock()
        self.threads = [threading.Thread(target=self._run, args=(server, i, LANES[lanes[i % len(lanes)]]))
                        for i in range(count)]
        for thread in self.threads:
            thread.start()

    def forget_the_past(self) -> None:
        with self.lock:
            for key in self.history:
                self.history[key] = self.history[key][-2:]  # the last may not be committed yet

    def _note(self, key: str, version) -> None:
        with self.lock:
            self.history.setdefault(key, [None]).append(version)

    def _run(self, server, number: int, lane) -> None:
        rng = random.Random(number)
        try:
            with Peer(server, lane, timeout=120) as peer:
                version = number * 1_000_000
                current = {}
                while not self.stop_asked.is_set():
                    key = f"w{number}-{rng.randrange(4)}"
                    choice = rng.random()
                    if choice < 0.5:
                        version += 1
                        # noted before it can be committed: the snapshot may already hold it
                        self._note(key, version)
                        peer.store(key, content_of(version))
                        current[key] = version
                    elif choice < 0.85:
                        if current.get(key) is not None:
                            wanted = content_of(current[key])
                            if peer.fetch(key, len(wanted)) != wanted:
                                self.failures.append(f"{key}: wrong bytes")
                    else:
                        self._note(key, None)
                        peer.connection.ok("DEL", key)
                        current[key] = None
                    self.transfers += 1
        except BaseException as error:  # noqa: B902 - reported by the main thread
            self.failures.append(f"writer {number}: {error!r}")

    def stop(self) -> None:
        self.stop_asked.set()
        for thread in self.threads:
            thread.join()
        assert self.failures == []


def content_of(version: int) -> bytes:
    return pattern(200_000 + version % 7 * 111_111, seed=version)


def test_B084_bgsave_under_traffic(long_run, rounds):
    with Server() as server:
        for _ in rounds(30 if long_run else 3):
            writers = Writers(server, 3, ["soft-host", "soft-remote", "emulated"])
            try:
                eventually(lambda: writers.transfers > 30 or writers.failures, 60)
                writers.forget_the_past()
                before = writers.transfers
                server.ok("BGSAVE")
                eventually(lambda: last_save_done(server), 120, "snapshot child ended")
                assert server.info("persistence")["rdb_last_bgsave_status"] == "ok"
                with writers.lock:
                    seen = {key: list(versions) for key, versions in writers.history.items()}
                eventually(lambda: writers.transfers > before + 10 or writers.failures, 60)
            finally:
                writers.stop()
            server.forget_connections()
            server.kill()
            server.start()
            for key in server.ok("KEYS", "*"):
                loaded = server.ok("BLOB.TCP_GET", key)
                versions = [v for v in seen[key.decode()] if v is not None]
                assert any(loaded == content_of(v) for v in versions), key
                assert server.ok("BLOB.INFO", key, "CRC") == crc32c(loaded)
            for key, versions in seen.items():
                if None not in versions:
                    assert server.ok("EXISTS", key) == 1, f"{key} is missing from the snapshot"
            server.ok("FLUSHALL")


def synced(primary, replica) -> bool:
    link = replica.info("replication")
    return (link["master_link_status"] == "up" and
            link["slave_repl_offset"] == primary.info("replication")["master_repl_offset"])


def test_B085_replica():
    with Server() as primary, Server() as replica:
        with Peer(primary, LANES["soft-host"]) as peer:
            before_sync = pattern(2 << 20, seed=850)
            peer.store("old", before_sync)
            replica.ok("REPLICAOF", "127.0.0.1", primary.port)
            eventually(lambda: synced(primary, replica), 60, "first full sync")
            assert replica.ok("BLOB.TCP_GET", "old") == before_sync
            content = pattern(1 << 20, seed=851)
            peer.store("k", content)
            peer.store("t", P)
            primary.ok("BLOB.TCP_SET", "inline", P[::-1])
            primary.ok("PEXPIRE", "t", 10_000_000)
            eventually(lambda: synced(primary, replica), 60)
            assert replica.ok("BLOB.TCP_GET", "k") == content and replica.ok("BLOB.TCP_GET", "inline") == P[::-1]
            assert replica.ok("PTTL", "t") > 0
            for key in ("k", "t", "inline", "old"):
                assert replica.ok("DEBUG", "DIGEST-VALUE", key) == primary.ok("DEBUG", "DIGEST-VALUE", key)
            assert replica.ok("DEBUG", "DIGEST") == primary.ok("DEBUG", "DIGEST")
            peer.store("t", P)  # clears the TTL
            primary.ok("DEL", "k")
            eventually(lambda: synced(primary, replica), 60)
            assert replica.ok("PTTL", "t") == -1 and replica.ok("EXISTS", "k") == 0
        with Peer(replica, LANES["soft-host"]) as peer:
            region = peer.region(content=P)
            assert peer.set("n", 4096, region.triple()).code == "READONLY"
            assert replica.call("BLOB.TCP_SET", "n", P).code == "READONLY"
            assert peer.fetch("old", 2 << 20) == before_sync
            assert replica.ok("BLOB.INFO", "old", "LEN") == 2 << 20
        # a full resync replaces everything
        replica.ok("REPLICAOF", "NO", "ONE")
        replica.ok("BLOB.TCP_SET", "local", P)
        primary.ok("BLOB.TCP_SET", "late", P)
        primary.ok("DEBUG", "CHANGE-REPL-ID")
        replica.ok("REPLICAOF", "127.0.0.1", primary.port)
        eventually(lambda: synced(primary, replica), 60, "second full sync")
        assert replica.ok("EXISTS", "local") == 0 and replica.ok("BLOB.TCP_GET", "late") == P
        assert replica.ok("DEBUG", "DIGEST") == primary.ok("DEBUG", "DIGEST")


def test_B086_cluster():
    with Cluster(2) as cluster:
        first, second = cluster.masters
        with Peer(first, LANES["soft-host"]) as peer:
            mine, theirs = cluster.key_on(first), cluster.key_on(second)
            peer.store(mine, P)
            region = peer.region(content=P)
            for reply in (peer.set(theirs, 4096, region.triple()), peer.get(theirs, region.triple()),
                          peer.connection.call("BLOB.TCP_GET", theirs), peer.connection.call("BLOB.TCP_SET", theirs, P),
                          peer.connection.call("BLOB.INFO", theirs)):
                assert isinstance(reply, RespError) and reply.code == "MOVED", reply
                assert reply.text.endswith(f"127.0.0.1:{second.port}")
            other = second.connect()
            reply = other.call("BLOB.RDMA_SET", theirs, 4096, *region.triple())
            assert reply == texts.NOT_BOUND
            assert region.memory == P
            assert peer.fetch(mine, 4096) == P


def test_B086_slot_migration_carries_objects():
    with Cluster(2) as cluster:
        source, target = cluster.masters
        key = cluster.key_on(source)
        content = pattern(1 << 20, seed=860)
        source.ok("BLOB.TCP_SET", key, content)
        slot = source.ok("CLUSTER", "KEYSLOT", key)
        source_id, target_id = source.ok("CLUSTER", "MYID"), target.ok("CLUSTER", "MYID")
        target.ok("CLUSTER", "SETSLOT", slot, "IMPORTING", source_id)
        source.ok("CLUSTER", "SETSLOT", slot, "MIGRATING", target_id)
        assert source.ok("MIGRATE", "127.0.0.1", target.port, key, 0, 30000) == "OK"
        reply = source.call("BLOB.TCP_GET", key)
        assert isinstance(reply, RespError) and reply.code == "ASK", reply
        with Peer(target, LANES["soft-host"]) as peer:
            peer.connection.ok("ASKING")
            assert peer.fetch(key, len(content)) == content
        for node in (target, source):
            node.ok("CLUSTER", "SETSLOT", slot, "NODE", target_id)
        assert target.ok("BLOB.TCP_GET", key) == content


def test_shutdown_during_transfers():
    """Spec blob 9, persistence item 5: stop, drain, close, free; nothing lands after the process is gone."""
    with Server() as server:
        writers = Writers(server, 3, ["soft-host", "soft-remote", "emulated"])
        eventually(lambda: writers.transfers > 20 or writers.failures, 60)
        assert writers.failures == []
        server.stop()
        writers.stop_asked.set()
        for thread in writers.threads:
            thread.join(60)
            assert not thread.is_alive()
        assert all("wrong bytes" not in failure for failure in writers.failures)
        for _ in range(3):
            server.start()
            time.sleep(0.05)
            server.stop()
