"""KvClient against a real Valkey and a real data node: values, buffers, batches, errors, life."""
import gc
import mmap
import multiprocessing
import weakref

import pytest
from harness.node import DataNode
from harness.pattern import SENTINEL, pattern
from harness.server import Server, eventually
from helpers import Background, sentinels, untouched

import farlift
from farlift import (ClosingError, ConfigurationError, KvClient, KvConfiguration, KvControl, KvError, KvGet, KvPut, KvPutMode,
                     KvReadMode, KvResult, KvStatus, NodeAddress, RdmaError, RdmaProvider)

OK, MISS = KvStatus.OK, KvStatus.MISS
MODES = [KvReadMode.FRAMED, KvReadMode.PAYLOAD_ONLY]


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    """(server, node, key file) shared by the tests that break neither."""
    keys = tmp_path_factory.mktemp("farlift-kv") / "t1.keys"
    keys.write_text("1 " + "5a" * 32 + "\n")
    with Server(module=None) as server, DataNode(server.port, "--tenant", f"t1,keys={keys},quota=64m") as node:
        yield server, node, keys


def configuration(cache, **options) -> KvConfiguration:
    server, _, keys = cache
    return KvConfiguration([NodeAddress("127.0.0.1", server.port)], tenant="t1", key_file=str(keys), **options)


@pytest.fixture
def kv(cache):
    with KvClient(configuration(cache)) as client:
        yield client


@pytest.fixture(params=["host", "network"])
def lane_kv(request, cache):
    with KvClient(configuration(cache, host_lane=request.param == "host")) as client:
        yield client


@pytest.mark.parametrize("size", [0, 1, 31, 32, 33, 4095, 4096, 4097, (1 << 20) + 1])
def test_K030_sizes_in_both_modes(lane_kv, request, size):
    key, value = f"size {request.node.name}", pattern(size, seed=size + 1) if size else b""
    put = lane_kv.put(key, value)
    assert put.status is OK and put.length == size and put.version >> 32 == 1
    for mode in MODES:
        dest = sentinels(size + 64)
        got = lane_kv.get(key, memoryview(dest)[:size + 32], mode)
        assert got == KvResult(OK, size, put.version, "")
        assert dest[:size] == value and untouched(dest, size)
    assert lane_kv.read(key) == value
    assert lane_kv.stat(key) == KvResult(OK, size, put.version, "")
    if size:
        dest = sentinels(size)
        assert lane_kv.get(key, memoryview(dest)[:size - 1]) == KvResult(KvStatus.TOO_SMALL, size, put.version, "")
        assert untouched(dest)


def test_K016_K017_put_modes(kv):
    first = kv.put("modes", b"one")
    assert first.ok and kv.put("modes", b"two").status is KvStatus.EXISTS
    assert kv.put("modes", b"two", KvPutMode.IF_VERSION, first.version + 1).status is KvStatus.CONFLICT
    assert kv.put("modes", b"two", KvPutMode.IF_VERSION, 0).status is KvStatus.CONFLICT
    assert kv.read("modes") == b"one"
    second = kv.put("modes", b"two", KvPutMode.IF_VERSION, first.version)
    assert second.ok and second.version >> 32 == 2
    third = kv.put("modes", b"three", KvPutMode.REPLACE)
    assert third.ok and kv.read("modes") == b"three"
    assert kv.get("modes", bytearray(16), min_revision=4).status is MISS
    assert kv.get("modes", bytearray(16), min_revision=3).ok
    assert kv.put("pushed", pattern(70000), push=True).ok and kv.read("pushed") == pattern(70000)


def test_delete_and_exists(kv):
    put = kv.put("gone", b"value")
    assert kv.exists("gone") is True and kv.exists(["gone", "absent", b"gone"]) == [True, False, True]
    assert kv.delete("gone", put.version + 1).status is not OK and kv.exists("gone")
    assert kv.delete("gone").ok and kv.delete("gone").status is MISS
    assert kv.get("gone", bytearray(8)).status is MISS and kv.read("gone") is None and not kv.exists("gone")
    again = kv.put("gone", b"again")
    assert kv.delete("gone", again.version).ok


def test_K013_keys_of_any_bytes(kv):
    keys = [b"a", bytes(range(256)), b"{}", b"}{", b"a{b}c", b"k" * 1024, "schlüssel", "a%7Bb", "a{b"]
    assert all(one.ok for one in kv.mput([(key, f"value {i}".encode()) for i, key in enumerate(keys)]))
    for i, key in enumerate(keys):
        assert kv.read(key) == f"value {i}".encode()
    for bad in (b"", b"k" * 1025):
        put = kv.put(bad, b"x")
        assert put.status is KvStatus.BAD_ARG and put.text
        assert kv.get(bad, bytearray(4)).status is KvStatus.BAD_ARG
        with pytest.raises(KvError) as raised:
            put.raise_for_status()
        assert raised.value.status is KvStatus.BAD_ARG and put.text in str(raised.value)


def buffers(size):
    """Every sort of writable memory, with a view of its bytes."""
    numpy = pytest.importorskip("numpy")
    plain = sentinels(size)
    mapped = mmap.mmap(-1, size)
    mapped.write(sentinels(size))
    wide = numpy.full(size // 8, 0xA5A5A5A5A5A5A5A5, dtype=numpy.uint64)
    table = numpy.full((size // 64, 64), SENTINEL, dtype=numpy.uint8)
    return {"bytearray": (plain, plain), "mmap": (mapped, mapped), "wide numpy": (wide, wide.view(numpy.uint8)),
            "numpy table": (table, table.reshape(-1)), "memoryview": (memoryview(bytearray(plain)), None)}


@pytest.mark.parametrize("registered", [True, False])
def test_every_sort_of_buffer(kv, registered):
    value = pattern(8192, seed=5)
    for i, (name, (memory, view)) in enumerate(buffers(8192).items()):
        key = f"{name} {registered}"
        assert kv.put(key, value).ok
        held = kv.register_memory(memory) if registered else None
        assert kv.get(key, memory, MODES[i % 2]).ok, name
        assert bytes(memory if view is None else view) == value, name
        assert kv.put(key + " back", memory).ok and kv.read(key + " back") == value, name
        if held is not None:
            held.close()
        if isinstance(memory, mmap.mmap):
            memory.close()  # BufferError if somebody still held it


def test_buffers_that_do_not_fit(kv):
    numpy = pytest.importorskip("numpy")
    kv.put("fit", b"12345678")
    for bad in (b"readonly", memoryview(b"readonly"), numpy.zeros(64, dtype=numpy.uint8)[::2], "text", None, 17):
        with pytest.raises(TypeError):
            kv.get("fit", bad)
        with pytest.raises(TypeError):
            kv.register_memory(bad)
    for bad in (numpy.zeros(64, dtype=numpy.uint8)[::2], "text", None, 17):
        with pytest.raises(TypeError):
            kv.put("other", bad)
    assert kv.put("other", b"readonly").ok and kv.put("from view", memoryview(b"abcd")[1:3]).ok
    assert kv.read("from view") == b"bc"
    with pytest.raises(TypeError):
        kv.get(17, bytearray(1))
    for call in (lambda: kv.get("fit", bytearray(8), min_revision=1 << 32), lambda: kv.put("f", b"x", expected_version=-1),
                 lambda: kv.get("fit", bytearray(8), mode=7)):
        with pytest.raises(ValueError):
            call()


def test_windows_of_registered_memory(kv):
    memory = sentinels(1 << 16)
    with kv.register_memory(memory) as held:
        assert held.size == 1 << 16 and not held.closed and "65536" in repr(held)
        with pytest.raises(BufferError):
            memory.append(1)  # it cannot move while it is registered
        with pytest.raises(RdmaError):
            kv.register_memory(memory)  # overlaps
        memory[:4096] = pattern(4096, seed=9)
        assert kv.put("window", held.window(0, 4096)).ok
        got = kv.get("window", held.window(8192, 4096))
        assert got.ok and memory[8192:12288] == memory[:4096] and untouched(memory, 4096, 8192) and untouched(memory, 12288)
        assert kv.get("window", memoryview(memory)[100:5000]).ok and memory[100:4196] == pattern(4096, seed=9)
        for offset, length in ((-1, None), (65537, None), (0, 65537), (65536, 1), (0, -1)):
            with pytest.raises(ValueError):
                held.window(offset, length)
        window = held.window(0, 4096)
    assert held.closed and len(memory) == 1 << 16
    memory.append(1)
    for call in (lambda: kv.get("window", window), lambda: kv.put("late", window)):
        with pytest.raises(RdmaError):
            call()
    for address, size in ((0, 1), (1, 0), (-1, 5)):
        with pytest.raises(ValueError):
            kv.register_address(address, size)


def test_memory_without_registration_can_be_refused(cache):
    with KvClient(configuration(cache, register_on_demand=False)) as client:
        put = client.put("not registered", b"value")
        assert put.status is KvStatus.BAD_ARG and "registered" in put.text
        memory = bytearray(b"value")
        with client.register_memory(memory) as held:
            assert client.put("was registered", held).ok
    with pytest.raises(ClosingError):
        client.register_memory(bytearray(8))


def test_registered_address_keeps_its_owner(kv):
    class Owner:
        pass

    owner, memory = Owner(), mmap.mmap(-1, 1 << 16)
    gone = weakref.ref(owner)
    import ctypes
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    held = kv.register_address(address, 1 << 16, owner)
    del owner
    gc.collect()
    assert gone() is not None and held.address == address
    memory[:5] = b"hello"
    assert kv.put("by address", held.window(0, 5)).ok and kv.read("by address") == b"hello"
    held.close()
    gc.collect()
    assert gone() is None


def test_K038_one_bad_key_never_fails_others(cache):
    server, _, _ = cache
    with KvClient(configuration(cache)) as client:
        count, size = 300, 4096
        memory = bytearray(count * size)
        values = [pattern(size, seed=1000 + i) for i in range(count)]
        assert all(one.ok for one in client.mput([KvPut(f"many {i}", value) for i, value in enumerate(values)]))
        server.ok("DEL", "okv:d:t1:{many%207}:sig")
        server.ok("DEL", "okv:d:t1:{many%208}", "okv:d:t1:{many%208}:sig")
        seen = []
        with KvClient(configuration(cache)) as reader, reader.register_memory(memory) as held:
            results = reader.mget([KvGet(f"many {i}", held.window(i * size, size), MODES[i % 2]) for i in range(count)],
                                  progress=lambda done, total: seen.append((done, total)))
        assert seen and seen[-1] == (count, count) and sorted(seen) == seen
        for i, result in enumerate(results):
            if i in (7, 8):
                assert result.status is (KvStatus.REJECT_NOSIG if i == 7 else MISS)
            else:
                assert result.ok and memory[i * size:(i + 1) * size] == values[i], i


def test_what_a_progress_callback_does_wrong(kv):
    class Odd(Exception):
        pass

    def raises(done, total):
        raise Odd("said so")

    with pytest.raises(Odd):
        kv.mput([("odd", b"x")], progress=raises)
    assert kv.read("odd") == b"x"  # the batch went on
    for inner in (lambda: kv.exists("odd"), kv.close, lambda: kv.statistics):
        with pytest.raises(RuntimeError, match="must not call"):
            kv.mget([("odd", bytearray(1))], progress=lambda *_: inner())
    assert not kv.closed and kv.exists("odd")


def test_threads_share_a_client(kv):
    """The GIL is released: a thread that waits for nothing goes on while others read."""
    value = pattern(1 << 20, seed=3)
    assert kv.put("shared", value).ok

    def rounds(mode):
        memory = bytearray(1 << 20)
        with kv.register_memory(memory) as held:
            for _ in range(20):
                memory[:64] = bytes(64)
                assert kv.get("shared", held, mode).ok and memory == value
        return True

    threads = [Background(rounds, MODES[i % 2]) for i in range(4)]
    assert all(thread.result() for thread in threads)
    counted = kv.statistics
    assert counted and all(isinstance(count, int) for count in counted.values())


def test_groups_and_nodes(cache, kv):
    keys = [f"chain {i}" for i in range(5)]
    for i, key in enumerate(keys):
        assert kv.put(key, pattern(100 + i)).ok
    group = kv.write_group("chain", keys, version=3)
    assert group.status is OK and group.version == 3 and len(group.entries) == 5
    with KvClient(configuration(cache)) as other:
        read = other.read_group("chain")
        assert read.status is OK and read.version == 3
        assert [(entry.key, entry.status, entry.length) for entry in read.entries] \
            == [(key.encode(), OK, 100 + i) for i, key in enumerate(keys)]
        assert other.read_group("none").status is MISS
    nodes = kv.nodes()
    assert [node.id for node in nodes] == [1] and nodes[0].providers == ["soft"] and not nodes[0].draining
    status, counters = kv.node_statistics(1)
    assert status is OK and counters["slots_published"] > 0
    assert kv.node_statistics(77) == (KvStatus.UNREACHABLE, {})
    kv.reload_keys()


def test_K047_rotation(cache):
    server, _, keys = cache
    with DataNode(server.port, "--tenant", "rot,quota=32m", identity=9) as _, \
            KvClient(KvConfiguration([NodeAddress("127.0.0.1", server.port)], tenant="rot", development=True)) as client:
        eventually(lambda: client.put("r", b"value", KvPutMode.REPLACE).ok)
        assert client.rotate(9) is OK
        eventually(lambda: client.get("r", bytearray(8)).status is MISS)
        eventually(lambda: client.put("r", b"value").ok)
        assert client.drain(9) is OK
        eventually(lambda: not [node for node in client.nodes() if node.id == 9 and not node.draining])


def test_K010_secrets(cache, tmp_path):
    server, _, keys = cache
    with KvClient(configuration(cache)) as writer:
        assert writer.put("secret", b"value").ok
    other = tmp_path / "other.keys"
    other.write_text("2 " + "a5" * 32 + "\n")
    address = [NodeAddress("127.0.0.1", server.port)]
    with KvClient(KvConfiguration(address, tenant="t1", key_file=str(other))) as stranger:
        assert stranger.get("secret", bytearray(8)).status is KvStatus.REJECT_SIG
        other.write_text(other.read_text() + keys.read_text())
        stranger.reload_keys()
        assert stranger.get("secret", bytearray(8)).ok
    with KvClient(KvConfiguration(address, tenant="t1", development=True)) as unsigned:
        assert unsigned.get("secret", bytearray(8)).status in (KvStatus.REJECT_SIG, KvStatus.REJECT_FORMAT)


def test_configurations_that_are_refused(cache, tmp_path):
    bad_keys = tmp_path / "bad.keys"
    bad_keys.write_text("pony\n")
    for options in ({"provider": "soft"}, {"control": "cluster"}, {"valkey": []}, {"valkey": ["localhost"]}):
        with pytest.raises(TypeError):
            KvConfiguration(**options)
    for options in ({"lease_ms": -1}, {"operation_limit_ms": 0}, {"in_flight_max": 0}, {"hash_threads": True},
                    {"reader_lease_ms": 60001}, {"spin_us": 1.5}):
        with pytest.raises(ValueError):
            KvConfiguration(**options)
    for options in ({"tenant": "t1"}, {"tenant": "t1", "key_file": str(bad_keys)}, {"tenant": "t1", "key_file": "/none"},
                    {"tenant": "a b", "development": True}, {"tenant": "", "development": True},
                    {"tenant": "t1", "development": True, "key_file": str(bad_keys)},
                    {"tenant": "t1", "development": True, "interfaces": ["no-such-interface"]}):
        with pytest.raises(ConfigurationError):
            KvClient(KvConfiguration(**options))
    with pytest.raises(TypeError):
        KvClient({"tenant": "t1"})
    assert KvConfiguration(control=KvControl.CLUSTER, provider=RdmaProvider.Tcp())._options()["control"] == "cluster"


def test_nothing_answers():
    config = KvConfiguration([NodeAddress("127.0.0.1", 1)], tenant="t1", development=True, control_timeout_ms=200)
    with KvClient(config) as client:
        assert client.get("k", bytearray(8)).status is KvStatus.CONTROL_DOWN
        assert client.put("k", b"x").status is KvStatus.CONTROL_DOWN and not client.exists("k")
        with pytest.raises(farlift.ConnectionError):
            client.nodes()
        with pytest.raises(KvError):
            client.read("k")


def test_K064_a_paused_node_and_close_from_another_thread(cache):
    server, _, _ = cache
    with DataNode(server.port, "--tenant", "p,quota=32m", identity=5) as node:
        config = KvConfiguration([NodeAddress("127.0.0.1", server.port)], tenant="p", development=True, host_lane=False,
                                 operation_limit_ms=1000)
        value, memory = pattern(1 << 20, seed=64), sentinels(1 << 20)
        with KvClient(config) as client, client.register_memory(memory) as held:
            eventually(lambda: client.put("k", value, KvPutMode.REPLACE).ok)
            node.pause()
            try:
                assert client.get("k", held).status in (KvStatus.TIMEOUT, KvStatus.UNREACHABLE, MISS)
                memory[:] = sentinels(1 << 20)
                waiting = Background(client.get, "k", held)
                eventually(lambda: waiting.running)
                client.close()
                assert waiting.result().status in (KvStatus.TIMEOUT, KvStatus.UNREACHABLE, MISS)
                memory[:] = sentinels(1 << 20)
            finally:
                node.resume()
            assert client.get("k", bytearray(8)).status is KvStatus.TIMEOUT and client.closed
        with KvClient(config) as client:
            eventually(lambda: client.get("k", bytearray(1 << 20)).ok)
        assert untouched(memory)


def forked(client, said):
    said.put(client.get("forked", bytearray(8)).status)


def test_a_forked_child_is_refused(kv):
    assert kv.put("forked", b"value").ok
    context = multiprocessing.get_context("fork")
    said = context.SimpleQueue()  # without a thread, which a sanitized child may not start
    child = context.Process(target=forked, args=(kv, said))
    child.start()
    try:
        child.join(30)
        assert child.exitcode == 0
        assert said.get() is KvStatus.BAD_ARG
    finally:
        child.kill()
        child.join()
    assert kv.read("forked") == b"value"


def test_closing_twice_and_dropping(cache):
    client = KvClient(configuration(cache))
    memory = bytearray(4096)
    held = client.register_memory(memory)
    client.close()
    client.close()
    assert client.closed and client.statistics == {}
    assert client.put("late", b"x").status is KvStatus.TIMEOUT and client.delete("late").status is KvStatus.TIMEOUT
    assert client.exists("late") is False
    held.close()
    memory.append(1)
    other = KvClient(configuration(cache))
    memory = bytearray(4096)
    other.register_memory(memory)
    gone = weakref.ref(other)
    del other
    gc.collect()
    assert gone() is None
    memory.append(1)


def test_names_and_version_agree():
    assert [status.value for status in KvStatus] == list(range(21))
    assert KvStatus.OK.name == "OK" and set(farlift.kv.__all__) <= set(farlift.__all__)
