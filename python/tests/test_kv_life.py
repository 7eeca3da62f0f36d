"""KvClient where Python gets in the way: signals, the end of the interpreter, forks, buffers, wrong arguments."""
import gc
import itertools
import os
import signal
import subprocess
import sys
import threading
import time

import pytest
from harness import PYTHONPATH
from harness.node import DataNode
from harness.pattern import pattern
from harness.server import Server, eventually
from helpers import Background, sentinels

from farlift import (ClosingError, ConfigurationError, KvClient, KvConfiguration, KvGet, KvPut, KvPutMode, KvStatus, KvWindow,
                     NodeAddress)

OK = KvStatus.OK
SIZE = 1 << 20


@pytest.fixture(scope="module")
def cache():
    """(server, node) of tenant "t", with a value of SIZE bytes under "k"."""
    with Server(module=None) as server, DataNode(server.port, "--tenant", "t,quota=64m") as node:
        with KvClient(configuration(server)) as client:
            eventually(lambda: client.put("k", pattern(SIZE), KvPutMode.REPLACE).ok)
        yield server, node


def configuration(server, **options) -> KvConfiguration:
    return KvConfiguration([NodeAddress("127.0.0.1", server.port)], tenant="t", development=True, **options)


@pytest.fixture
def kv(cache):
    with KvClient(configuration(cache[0])) as client:
        yield client


class Child:
    """A Python process that has a client and says "ready" when it has read the value once."""

    PRELUDE = """
import signal, sys, threading, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job is born ignoring it
sys.path[:0] = [{path!r}]
from farlift import *
client = KvClient(KvConfiguration([NodeAddress("127.0.0.1", {port})], tenant="t", development=True, host_lane=False,
                                  operation_limit_ms={limit}))
buffer = bytearray({size})
memory = client.register_memory(buffer)
assert client.get("k", memory).ok
print("ready", flush=True)
sys.stdin.readline()
"""

    def __init__(self, cache, body: str, limit: int = 2000):
        text = self.PRELUDE.format(path=PYTHONPATH, port=cache[0].port, size=SIZE, limit=limit) + body
        self.process = subprocess.Popen([sys.executable, "-c", text], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True)
        assert self.process.stdout.readline() == "ready\n", self.process.communicate()[1]

    def go(self) -> None:
        self.process.stdin.write("go\n")
        self.process.stdin.flush()

    def end(self):
        """(code, output, errors)"""
        out, err = self.process.communicate(timeout=90)
        return self.process.returncode, out, err

    def __enter__(self) -> "Child":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()


# --- the end of the interpreter ---

DAEMONS = """
def go():
    while True:
        client.mget([("k", bytearray({size}))], {progress})
for _ in range(3):
    threading.Thread(target=go, daemon=True).start()
time.sleep(0.3)
print("over", flush=True)
"""


@pytest.mark.parametrize("paused", [False, True])
@pytest.mark.parametrize("progress", ["None", "lambda *_: None"])
def test_daemon_threads_do_not_spoil_the_end(cache, progress, paused):
    """They are inside calls when the interpreter goes; it ends threads that ask for the GIL then."""
    with Child(cache, DAEMONS.format(size=SIZE, progress=progress)) as child:
        if paused:
            cache[1].pause()
        try:
            child.go()
            assert child.end() == (0, "over\n", "")
        finally:
            if paused:
                cache[1].resume()


def test_the_blob_client_neither(cache):
    text = f"""
import sys, threading, time
sys.path[:0] = [{PYTHONPATH!r}]
from farlift import *
client = Client.create(ClientConfiguration([NodeAddress("127.0.0.1", {cache[0].port})]))
def go():
    while True:
        client.ping()
for _ in range(3):
    threading.Thread(target=go, daemon=True).start()
time.sleep(0.2)
"""
    ended = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stdout) == (0, "") and "terminate" not in ended.stderr, ended.stderr


def test_objects_that_outlive_the_interpreter(cache):
    """Nothing is closed by hand: not the client, nor its memory, nor what sits in a cycle."""
    with Child(cache, "cycle = [client, memory]; cycle.append(cycle); window = memory.window(); print('over')") as child:
        child.go()
        assert child.end() == (0, "over\n", "")


# --- signals ---

INTERRUPTED = """
try:
    client.mget([("k", memory)], {progress})
    print("returned")
except KeyboardInterrupt:
    buffer[:] = bytes(len(buffer))
    print("interrupted", client.closed, flush=True)
    sys.stdin.readline()
    print(not any(buffer), client.get("k", memory).status.name)
"""


@pytest.mark.parametrize("progress", ["None", "lambda *_: None"])
def test_ctrl_c_waits_until_nothing_lands_any_more(cache, progress):
    with Child(cache, INTERRUPTED.format(progress=progress), limit=3000) as child:
        cache[1].pause()
        try:
            child.go()
            time.sleep(0.5)  # it may not have begun: then the interrupt comes sooner, and the rest holds as well
            # Impatience changes nothing. With a callback each counts, since it is seen there: one is enough.
            for _ in range(3 if progress == "None" else 1):
                child.process.send_signal(signal.SIGINT)
                time.sleep(0.1)
            heard = Background(child.process.stdout.readline)
            assert heard.result(30) == "interrupted False\n"
        finally:
            cache[1].resume()
        time.sleep(0.2)  # what was under way would land now
        child.go()
        code, out, err = child.end()
        assert (code, out) == (0, "True OK\n"), err


# --- progress ---

def test_a_slow_progress_callback_holds_up_nobody(cache, kv):
    """It waits for a call of another thread over the same client."""
    cache[1].pause()
    waited = []

    def progress(done, total):
        if done < total and not waited:
            waited.append(Background(kv.exists, "nobody").result(30))

    batch = Background(lambda: kv.mget([("k", bytearray(SIZE)) for _ in range(4)], progress))
    try:
        eventually(lambda: waited)
    finally:
        cache[1].resume()
    batch.result()
    assert waited == [False]


def test_a_callback_that_raises_leaves_nothing_held(kv):
    dest = bytearray(SIZE)

    def raises(done, total):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        kv.mget([("k", dest)], raises)
    dest.append(1)  # BufferError if the batch still held it
    del dest[-1]
    assert kv.get("k", dest).ok and dest == pattern(SIZE)  # and this thread is not taken to be inside a callback
    with pytest.raises(TypeError):
        kv.mget([("k", dest)], "not callable")
    dest.append(1)


# --- buffers ---

def test_destinations_that_overlap_are_misuse(kv):
    assert kv.put("other", pattern(SIZE, seed=9), KvPutMode.REPLACE).ok
    dest = sentinels(2 * SIZE)
    whole = memoryview(dest)
    results = kv.mget([("k", whole[:SIZE]), ("other", whole[:SIZE]), ("other", whole[SIZE - 1:]), ("k", whole[SIZE:])])
    assert [one.status for one in results] == [OK, KvStatus.BAD_ARG, KvStatus.BAD_ARG, OK]
    assert results[1].text == "the destination overlaps that of another read"
    assert dest == pattern(SIZE) * 2
    with kv.register_memory(dest) as held:
        results = kv.mget([KvGet("k", held.window(0, SIZE)), KvGet("other", held)])
        assert [one.status for one in results] == [OK, KvStatus.BAD_ARG]
    same = bytearray(SIZE)
    assert [one.status for one in kv.mget([("k", same), ("k", same)])] == [OK, KvStatus.BAD_ARG] and same == pattern(SIZE)


def test_sources_may_be_shared(kv):
    value = memoryview(pattern(9000, seed=4))
    parts = [value[:5000], value[2000:7000], value, value[:5000], value[8999:]]
    assert [one.status for one in kv.mput([KvPut(f"part {i}", part) for i, part in enumerate(parts)])] == [OK] * 5
    for i, part in enumerate(parts):
        assert kv.read(f"part {i}") == part

    def rounds(which):
        return [kv.put(f"shared {which}", parts[i % 4], KvPutMode.REPLACE).status for i in range(50)]

    threads = [Background(rounds, i) for i in range(4)]
    assert all(KvStatus.BAD_ARG not in thread.result() for thread in threads)


def test_a_buffer_is_held_while_its_call_runs(cache):
    with KvClient(configuration(cache[0], host_lane=False, operation_limit_ms=1000)) as client:
        dest, source = sentinels(SIZE), bytearray(SIZE)
        held = client.register_memory(bytearray(SIZE))
        cache[1].pause()
        try:
            calls = [Background(client.get, "k", dest), Background(client.put, "late", source),
                     Background(client.get, "k", held.window())]

            def refused(change) -> bool:
                try:
                    change()
                except BufferError:
                    return True
                return False

            eventually(lambda: refused(lambda: dest.append(1)) and refused(lambda: source.append(1)))
            held.close()  # while it is used: ends with the call
            assert held.closed
        finally:
            cache[1].resume()
        for call in calls:
            assert isinstance(call.result().status, KvStatus)
        dest.append(1)
        source.append(1)


def test_buffers_that_only_look_contiguous(kv):
    numpy = pytest.importorskip("numpy")
    table = numpy.zeros((64, 64), dtype=numpy.uint8)
    frozen = numpy.zeros(64, dtype=numpy.uint8)
    frozen.setflags(write=False)
    for bad in (table.T, table[:, :32], table[::-1], memoryview(bytearray(64))[::2], numpy.asfortranarray(table)):
        for call in (lambda: kv.get("k", bad), lambda: kv.put("x", bad), lambda: kv.register_memory(bad)):
            with pytest.raises(TypeError, match="C-contiguous"):
                call()
    for call in (lambda: kv.get("k", frozen), lambda: kv.register_memory(frozen)):
        with pytest.raises(TypeError, match="writable"):
            call()
    assert kv.put("frozen", frozen, KvPutMode.REPLACE).ok and kv.read("frozen") == bytes(64)
    released = memoryview(bytearray(8))
    released.release()
    with pytest.raises((TypeError, ValueError)):
        kv.get("k", released)
    first = bytearray(8)
    with pytest.raises(TypeError):
        kv.mget([("k", first), ("k", b"read only")])
    first.append(1)  # the batch that never began holds nothing


def test_windows_made_by_hand(kv):
    with kv.register_memory(bytearray(64)) as held:
        for offset, length in ((-1, 5), (0, 65), (64, 1), (1 << 70, 0), (0, -1)):
            with pytest.raises(ValueError):
                kv.get("k", KvWindow(held, offset, length))
        for offset in ("0", 1.0):
            with pytest.raises(TypeError):
                kv.get("k", KvWindow(held, offset, 1))
            with pytest.raises(TypeError):
                held.window(offset)
        assert kv.get("k", KvWindow(held, 64, 0)).status is KvStatus.TOO_SMALL
        numpy = pytest.importorskip("numpy")
        assert held.window(numpy.int64(8)).length == 56


# --- arguments ---

def test_numbers_of_the_wrong_sort(kv):
    dest = bytearray(8)
    for call in (lambda bad: kv.get("k", dest, min_revision=bad), lambda bad: kv.put("x", b"", expected_version=bad),
                 lambda bad: kv.delete("k", bad), lambda bad: kv.write_group("g", ["k"], bad), lambda bad: kv.rotate(bad),
                 lambda bad: kv.rotate(1, bad), lambda bad: kv.drain(bad), lambda bad: kv.node_statistics(bad)):
        for bad in (1.5, "1"):
            with pytest.raises(TypeError):
                call(bad)
        for bad in (-1, 1 << 64):
            with pytest.raises(ValueError):
                call(bad)


def test_configurations_of_the_wrong_sort(cache, tmp_path):
    for options in ({"interfaces": "eth0"}, {"interfaces": [1]}, {"tenant": b"t"}, {"tenant": None}, {"key_file": 5},
                    {"development": 1}, {"host_lane": None}, {"credentials": "password"}, {"tls": True}, {"node_tls": {}},
                    {"sentinel_primary": 1}, {"use_tls": "no"}):
        with pytest.raises(TypeError):
            KvConfiguration(**options)
    changed = configuration(cache[0])
    changed.lease_ms = -1
    with pytest.raises(ValueError):
        KvClient(changed)
    keys = tmp_path / "t.keys"
    keys.write_text("1 " + "5a" * 32 + "\n")
    with KvClient(KvConfiguration([NodeAddress("127.0.0.1", cache[0].port)], tenant="t", key_file=keys)) as client:
        assert client.get("k", bytearray(8)).status is KvStatus.REJECT_NOSIG
        keys.write_text("pony\n")
        with pytest.raises(ConfigurationError):
            client.reload_keys()
        keys.write_text("1 " + "5a" * 32 + "\n")
        client.reload_keys()
    with pytest.raises(ClosingError):
        client.reload_keys()


def test_a_record_of_odd_bytes_does_not_break_the_list(cache, kv):
    """The directory may hold anything: nodes() says what it can, and raises nothing."""
    server = cache[0]
    record = server.ok("GET", "okv:n:{1}")
    words = record.split(b" ")
    words[1], words[3] = b"99", b"%ff%fe"
    server.ok("SET", "okv:n:{99}", b" ".join(words))
    server.ok("SADD", "okv:nodes", "99")
    try:
        assert 1 in [node.id for node in kv.nodes()]
    finally:
        server.ok("DEL", "okv:n:{99}")
        server.ok("SREM", "okv:nodes", "99")


# --- forks ---

def test_a_forked_child_may_drop_what_it_inherits(cache):
    """While another thread of the parent is inside a call: its locks are never released in the child."""
    with KvClient(configuration(cache[0])) as client:
        memory = client.register_memory(bytearray(4096))
        stop = threading.Event()

        def busy():
            for i in itertools.count():
                if stop.is_set():
                    return
                client.exists(f"nobody {i}")

        threads = [Background(busy) for _ in range(3)]
        try:
            for _ in range(5):
                child = os.fork()
                if child == 0:
                    wrong = 1
                    try:
                        wrong = 0
                        wrong += client.get("k", bytearray(8)).status is not KvStatus.BAD_ARG
                        wrong += client.statistics != {}
                        for call in (client.reload_keys, client.nodes, lambda: client.register_memory(bytearray(8))):
                            try:
                                call()
                                wrong += 1
                            except ClosingError:
                                pass
                        memory.close()
                        client.close()
                        del memory, client
                        gc.collect()
                    finally:
                        os._exit(wrong)
                code = None
                for _ in range(600):
                    ended, status = os.waitpid(child, os.WNOHANG)
                    if ended:
                        code = os.waitstatus_to_exitcode(status)
                        break
                    time.sleep(0.05)
                else:
                    os.kill(child, signal.SIGKILL)
                    os.waitpid(child, 0)
                assert code == 0
        finally:
            stop.set()
            for thread in threads:
                thread.result()
        assert client.get("k", bytearray(SIZE)).ok
