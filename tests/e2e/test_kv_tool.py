"""The one-sided cache as a person uses it: `farlift up` with its data node, `farlift node`, `farlift kv`."""
import json
import os
import signal
import subprocess
import tempfile
import time
from pathlib import Path

import pytest

from harness.pattern import pattern
from harness.resp import Connection
from harness.server import Server, eventually
from test_tool import BINARY, farlift, gone

STACK = ["--segment-size", "16mb", "--max-object-size", "8mb", "--module-set", "chunk-size=1mb",
         "--kv-quota", "64m", "--kv-arena-size", "16m"]


@pytest.fixture
def folder():
    with tempfile.TemporaryDirectory(prefix="farlift-kv-") as path:
        yield Path(path)


@pytest.fixture
def stack(folder):
    directory = folder / "stack"
    farlift("up", "--detach", "--dir", directory, *STACK)
    yield directory
    farlift("up", "--stop", "--dir", directory, check=False)


def state_of(directory):
    return json.loads((Path(directory) / "farlift.json").read_text())


def children(parent, name):
    """The processes of that name below `parent`. Not by pgrep: in a sanitized run it inherits the preloaded runtime, under
    which it never returns."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            comm, rest = path.read_text().split("(", 1)[1].rsplit(")", 1)
        except (FileNotFoundError, ProcessLookupError):
            continue  # it has just ended
        if comm == name and int(rest.split()[1]) == parent:
            found.append(int(path.parent.name))
    return found


def counters(directory):
    return json.loads(farlift("kv", "stat", "--dir", directory, "--json").stdout)[0]


class Node:
    """A data node of its own beside a server; ends with the block."""

    def __init__(self, folder, port, *words, name="node"):
        self.ready = folder / f"{name}.port"
        self.log = open(folder / f"{name}.log", "wb")
        self.process = subprocess.Popen([BINARY, "node", "--valkey", f"127.0.0.1:{port}", "--ready-file", self.ready,
                                         "--arena-size", "16m", *map(str, words)], stdout=self.log, stderr=self.log)
        try:
            eventually(lambda: self.ready.exists() or self.process.poll() is not None)
            assert self.process.poll() is None, (folder / f"{name}.log").read_text()
        except BaseException:
            self.close()
            raise

    def close(self, how=signal.SIGTERM):
        if self.process.poll() is None:
            self.process.send_signal(how)
        self.process.wait(timeout=30)
        self.log.close()
        return self.process.returncode

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


@pytest.fixture
def keys(folder):
    path = folder / "t1.keys"
    path.write_text("# t1\n1 " + "5a" * 32 + "\n")
    return path


def test_K016_K030_files_there_and_back_of_every_size(stack, folder):
    source = folder / "source"
    for size in (0, 1, 31, 32, 33, 4095, 4096, 4097, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, (16 << 20) - 4096):
        source.write_bytes(pattern(size, seed=size) if size else b"")
        key = f"size {size}"
        if size == 0:  # the tool maps its source, and there is nothing to map
            assert farlift("kv", "put", "--dir", stack, key, source, check=False).returncode == 2
            continue
        for push in ([], ["--push"]):
            put = json.loads(farlift("kv", "put", "--dir", stack, "--json", "--replace", *push, key, source).stdout)
            got = json.loads(farlift("kv", "get", "--dir", stack, "--json", key, folder / "copy").stdout)
            assert (folder / "copy").read_bytes() == source.read_bytes(), (size, push)
            assert put["bytes"] == got["bytes"] == size and put["version"] == got["version"]
    source.write_bytes(pattern(1000))
    done = farlift("kv", "put", "--dir", stack, "size 33", source, check=False)
    assert done.returncode == 1 and "--replace" in done.stderr
    source.write_bytes(pattern((16 << 20) - 4095))
    assert "longer than an arena" in farlift("kv", "put", "--dir", stack, "big", source, check=False).stderr


def test_words_and_exit_statuses(stack, folder):
    (folder / "file").write_bytes(pattern(5000))
    (folder / "bad.keys").write_text("1 xyz\n")
    before = sorted(os.listdir(folder))
    cases = [
        (["kv", "get", "--dir", stack, "absent", folder / "out"], 3, "no such key"),
        (["kv", "rm", "--dir", stack, "absent"], 3, "no such key"),
        (["kv", "stat", "--dir", stack, "absent"], 3, "no such key"),
        (["kv", "drain", "--dir", stack], 2, "--node"),
        (["kv", "ls", "--dir", stack, "--node", "77"], 3, "77"),
        (["kv", "rotate", "--dir", stack, "--arena", "999"], 3, "no such arena"),
        (["kv", "put", "--dir", folder, "k", folder / "file"], 4, "farlift up"),
        (["kv", "put", "--valkey", "127.0.0.1:1", "--tenant", "t", "--development", "k", folder / "file"], 4, "Valkey"),
        (["kv", "put", "--valkey", "pony", "--tenant", "t", "--development", "k", folder / "file"], 2, "HOST:PORT"),
        (["kv", "ls"], 2, "--tenant"),
        (["kv", "ls", "--tenant", "t"], 2, "--keys"),
        (["kv", "ls", "--tenant", "t", "--keys", folder / "bad.keys"], 2, "line 1"),
        (["kv"], 2, "--help"),
        (["node", "--tenant", "a b", "--valkey", "127.0.0.1:1"], 2, "tenant name"),
        (["node", "--tenant", "t,quota=pony"], 2, "pony"),
        (["node", "--tenant", f"t,keys={folder}/none"], 2, "none"),
        (["node"], 2, "--tenant"),
    ]
    for words, status, text in cases:
        done = farlift(*words, check=False)
        assert done.returncode == status and text in done.stderr, (words, done.returncode, done.stderr)
    assert sorted(os.listdir(folder)) == before
    for words in (["kv", "--help"], ["kv", "put", "--help"], ["node", "--help"]):
        assert "--help" in farlift(*words).stdout


def test_K047_rotation_takes_values_and_their_memory(stack, folder):
    (folder / "file").write_bytes(pattern(100000))
    farlift("kv", "put", "--dir", stack, "k", folder / "file")
    assert counters(stack)["slots_published"] == 1
    farlift("kv", "rotate", "--dir", stack)
    eventually(lambda: counters(stack)["slots_published"] == 0)
    assert farlift("kv", "get", "--dir", stack, "k", folder / "out", check=False).returncode == 3
    farlift("kv", "put", "--dir", stack, "k", folder / "file")  # nothing dead is in the way
    farlift("kv", "get", "--dir", stack, "k", folder / "out")
    assert (folder / "out").read_bytes() == pattern(100000)


def test_up_ends_with_its_node_and_says_so(stack):
    supervisor = state_of(stack)["supervisor_pid"]
    [node] = children(supervisor, "farlift")
    os.kill(node, signal.SIGKILL)
    eventually(lambda: gone(supervisor))
    assert "the data node was ended by signal 9" in (stack / "farlift.log").read_text()


def test_K004_K010_signed_and_unsigned_do_not_meet(folder, keys):
    other = folder / "other.keys"
    other.write_text("2 " + "a5" * 32 + "\n")
    (folder / "file").write_bytes(pattern(70000))
    with Server() as server, Node(folder, server.port, "--tenant", f"t1,keys={keys},quota=32m"):
        where = ["--valkey", f"127.0.0.1:{server.port}", "--tenant", "t1"]
        farlift("kv", "put", *where, "--keys", keys, "k", folder / "file")
        farlift("kv", "get", *where, "--keys", keys, "k", folder / "out")
        for ring in (["--keys", other], ["--development"]):
            done = farlift("kv", "get", *where, *ring, "k", folder / "no", check=False)
            assert done.returncode == 5 and "signature" in done.stderr, done.stderr
            assert farlift("kv", "put", *where, *ring, "j", folder / "file", check=False).returncode in (4, 5)
        with Connection(server.port) as connection:
            connection.ok("DEL", "okv:d:t1:{k}:sig")
        done = farlift("kv", "get", *where, "--keys", keys, "k", folder / "no", check=False)
        assert done.returncode == 5 and "not signed" in done.stderr
        assert not (folder / "no").exists()


def test_K062_a_killed_node_comes_back_as_another_incarnation(folder, keys):
    (folder / "file").write_bytes(pattern(200000))
    with Server() as server:
        where = ["--valkey", f"127.0.0.1:{server.port}", "--tenant", "t1", "--keys", keys]
        tenant = ["--tenant", f"t1,keys={keys},quota=32m"]
        node = Node(folder, server.port, *tenant)
        first_port = (folder / "node.port").read_text()
        farlift("kv", "put", *where, "k", folder / "file")
        node.close(signal.SIGKILL)
        (folder / "node.port").unlink()
        with Node(folder, server.port, *tenant):
            assert (folder / "node.port").read_text() != first_port
            done = farlift("kv", "get", *where, "k", folder / "no", check=False)
            assert done.returncode in (3, 4) and not (folder / "no").exists(), done.stderr

            def put_again():  # mode A repairs what the dead incarnation left (spec kv 7.6)
                return farlift("kv", "put", *where, "k", folder / "file", check=False).returncode == 0
            eventually(put_again)
            farlift("kv", "get", *where, "k", folder / "out")
            assert (folder / "out").read_bytes() == pattern(200000)


def test_a_node_that_ends_takes_its_record_away(folder, keys):
    with Server() as server:
        node = Node(folder, server.port, "--tenant", f"t1,keys={keys},quota=32m", "--id", 7)
        with Connection(server.port) as connection:
            eventually(lambda: connection.ok("EXISTS", "okv:n:{7}") == 1)
            assert node.close() == 0
            assert connection.ok("EXISTS", "okv:n:{7}") == 0 and connection.ok("SISMEMBER", "okv:nodes", "7") == 0


def test_K071_valkey_stopped_and_back(folder, keys):
    """Cached or not, a client without its directory gets an error and no bytes; afterwards all goes on by itself."""
    (folder / "file").write_bytes(pattern(50000))
    with Server() as server, Node(folder, server.port, "--tenant", f"t1,keys={keys},quota=32m"):
        where = ["--valkey", f"127.0.0.1:{server.port}", "--tenant", "t1", "--keys", keys]
        farlift("kv", "put", *where, "k", folder / "file")
        os.kill(server.process.pid, signal.SIGSTOP)
        try:
            start = time.monotonic()
            done = farlift("kv", "get", *where, "k", folder / "no", check=False)
            assert done.returncode == 4 and time.monotonic() - start < 60
        finally:
            os.kill(server.process.pid, signal.SIGCONT)
        eventually(lambda: farlift("kv", "get", *where, "k", folder / "out", check=False).returncode == 0)
        assert (folder / "out").read_bytes() == pattern(50000)


def test_a_node_ends_cleanly_while_valkey_is_silent(folder, keys):
    """It cannot retract its record: the answer comes when the directory is closed, after everybody left."""
    with Server() as server, Node(folder, server.port, "--tenant", f"t1,keys={keys},quota=32m") as node:
        with server.stopped():
            assert node.close() == 0, (folder / "node.log").read_text()


def test_K064_a_stopped_node_is_a_timeout_and_the_file_stays_quiet(folder, keys):
    (folder / "file").write_bytes(pattern(3 << 20))
    with Server() as server, Node(folder, server.port, "--tenant", f"t1,keys={keys},quota=32m") as node:
        where = ["--valkey", f"127.0.0.1:{server.port}", "--tenant", "t1", "--keys", keys]
        farlift("kv", "put", *where, "k", folder / "file")
        os.kill(node.process.pid, signal.SIGSTOP)
        try:
            done = farlift("kv", "get", *where, "k", folder / "no", check=False)
            assert done.returncode == 4 and not (folder / "no").exists(), done.stderr
        finally:
            os.kill(node.process.pid, signal.SIGCONT)
        eventually(lambda: farlift("kv", "get", *where, "k", folder / "out", check=False).returncode == 0)


def test_bench_kv_measures_what_it_names():
    done = farlift("bench", "kv", "--quick", "--sizes", "64k", "--in-flight", "1", "--json", "--quiet")
    rows = json.loads(done.stdout)
    names = {(row["what"], row["lane"]) for row in rows}
    for what in ("kv.get", "kv.get_payload", "kv.get_resolve", "kv.mget_16", "kv.mget_256", "kv.put", "fabric.read",
                 "fabric.read_16", "fabric.read_256", "blob.rdma_get", "blob.rdma_set"):
        assert (what, "remote") in names and (what, "host") in names
    for row in rows:
        assert row["gb_per_s"] > 0 and (row["verified"] or not row["what"].startswith("kv."))


def test_bench_kv_tells_why_the_mooncake_rows_are_left_out():
    done = farlift("bench", "kv", "--quick", "--sizes", "64k", "--in-flight", "1", "--json", "--quiet", "--only", "kv.get",
                   "--mooncake", "/nowhere/bin/python")
    assert {row["what"] for row in json.loads(done.stdout)} == {"kv.get"}
    assert "mooncake rows are left out: /nowhere/bin/mooncake_master is not there" in done.stderr


def test_bench_kv_scale_counts_what_it_was_asked_for():
    done = farlift("bench", "kv", "--scale", "--scale-values", "3000", "--scale-tenants", "3", "--json", "--quiet")
    rows = {row["what"]: row for row in json.loads(done.stdout)}
    assert list(rows) == ["kv.scale_put", "kv.scale_get", "kv.scale_rotate", "kv.scale_rotate_and_purge",
                          "kv.scale_restart", "kv.scale_repair", "kv.scale_flushed", "kv.scale_tenants_put",
                          "kv.scale_tenants_rotate"]
    assert rows["kv.scale_put"]["values"] == 3000 and rows["kv.scale_tenants_put"]["tenants"] == 3
    for row in rows.values():
        assert row["seconds"] > 0 and row["control_worst_us"] >= row["control_p50_us"] >= 0
    if not os.environ.get("FARLIFT_SANITIZER"):  # its shadow memory counts as the node's
        assert rows["kv.scale_put"]["node_bytes_per_value"] < 4096
    assert rows["kv.scale_rotate"]["seconds"] <= rows["kv.scale_rotate_and_purge"]["seconds"]
