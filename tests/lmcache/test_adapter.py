"""What the adapter promises LMCache: the cases of the specification and what LMCache's interface asks besides."""
import gc
import os
import re
import tracemalloc

import pytest
from conftest import Controller, bytes_of, fill, make_key
from harness.pattern import pattern
from harness.server import eventually

from farlift.lmcache.adapter import OkvL2Adapter, OkvL2AdapterConfig
from lmcache.v1.distributed.internal_api import L1MemoryDesc

KIB, MIB = 1 << 10, 1 << 20
CANARY = 0xA5


@pytest.mark.parametrize("desc, message", [
    (None, "L1 memory"), (L1MemoryDesc(0, 0, 4096), "L1 memory"), (L1MemoryDesc(4096, 0, 4096, 0), "L1 memory"),
    (L1MemoryDesc(4096, 1 << 20, 4096, 1 << 19), "--no-l1-use-lazy"), (L1MemoryDesc(4096, 1 << 20, 4096, None), "l1_not_lazy"),
    ("nothing given", "L1 memory")])
def test_K076_L1_must_be_there_and_whole(params, desc, message):
    words = {} if desc == "nothing given" else {"l1_memory_desc": desc}
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(ValueError, match=message):
        OkvL2Adapter(OkvL2AdapterConfig.from_dict(params), **words)
    assert len(os.listdir("/proc/self/fd")) == before


def test_K076_an_arena_of_unknown_kind_is_taken_at_the_operators_word(params, arena):
    desc = L1MemoryDesc(arena.address, arena.size, 4096, None)
    adapter = OkvL2Adapter(OkvL2AdapterConfig.from_dict({**params, "l1_not_lazy": True}), l1_memory_desc=desc)
    adapter.close()


def test_K077_store_lookup_load_without_copies(adapter, arena):
    count, size = 64, 256 * KIB
    keys, control = [make_key(7700 + i) for i in range(count)], Controller(adapter)
    sources, targets = arena.objects(count, size), arena.objects(count, size)
    values = [pattern(size, seed=i) for i in range(count)]
    for source, value in zip(sources, values):
        fill(source, value)
    assert control.lookup(keys) == [False] * count
    stored = control.store(keys, sources)
    assert stored.is_successful() and stored.bytes_transferred() == count * size
    assert control.lookup(keys) == [True] * count
    assert control.load(keys, targets) == [True] * count
    assert all(bytes(bytes_of(target)) == value for target, value in zip(targets, values))
    # Once more, counting. The client takes no unregistered memory (register_on_demand is off), so nothing is staged there;
    # and our Python makes nothing larger than a list of 64, nor, with all that comes and goes, as much as one chunk.
    for target in targets:
        fill(target, bytes(size))
    big = largest_allocation_of_a_load(adapter, control, keys, targets)
    assert big <= 4 * KIB, f"an allocation of {big} bytes"
    tracemalloc.start()
    assert control.load(keys, targets) == [True] * count
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < size, f"{peak} bytes at once"
    assert all(bytes(bytes_of(target)) == value for target, value in zip(targets, values))
    told = adapter.report_status()["client"]
    assert told["landing_registrations"] <= 2 and told["source_registrations"] == 1, told  # L1, and headers of our own
    adapter.submit_unlock(keys * 3)
    assert adapter.report_status()["locked_keys"] == 0


def largest_allocation_of_a_load(adapter, control, keys, targets) -> int:
    """Of farlift's Python code, alive while the client reads or right after it."""
    found = []

    def measure():
        ours = tracemalloc.take_snapshot().filter_traces([tracemalloc.Filter(True, "*/farlift/*", all_frames=True)])
        found.extend(trace.size for trace in ours.traces if not any("tracemalloc" in str(frame) for frame in trace.traceback))

    clients, cores = adapter._tenants._clients, []
    for client, _ in clients.values():
        cores.append((client, client._core))
        client._core = Measured(client._core, measure)
    gc.collect()
    tracemalloc.start(12)
    try:
        assert control.load(keys, targets) == [True] * len(keys)
    finally:
        tracemalloc.stop()
        for client, core in cores:
            client._core = core
    assert found, "nothing was measured"
    return max(found)


class Measured:
    """A client's core that has somebody look before and after each batch of reads."""

    def __init__(self, core, look):
        self._core, self._look = core, look

    def mget(self, *words):
        self._look()
        results = self._core.mget(*words)
        self._look()
        return results

    def __getattr__(self, name):
        return getattr(self._core, name)


def flip_in_memory(pid: int, needle: bytes, offset: int) -> int:
    """Flips a bit `offset` bytes into each place where the needle lies in the process's shared writable memory."""
    flipped = 0
    with open(f"/proc/{pid}/maps", encoding="utf-8") as maps, open(f"/proc/{pid}/mem", "r+b", buffering=0) as memory:
        for line in maps:
            match = re.match(r"([0-9a-f]+)-([0-9a-f]+) rw.s ", line)
            if not match:
                continue
            start, end = int(match[1], 16), int(match[2], 16)
            memory.seek(start)
            try:
                part = memory.read(end - start)
            except OSError:
                continue
            at = part.find(needle)
            while at >= 0:
                memory.seek(start + at + offset)
                memory.write(bytes([part[at + offset] ^ 0x10]))
                flipped += 1
                at = part.find(needle, at + 1)
    return flipped


def test_K078_one_corrupt_chunk_clears_one_bit(cache, adapter, arena):
    _, node, _ = cache
    count, size, bad = 64, 64 * KIB, 37
    keys, control = [make_key(7800 + i) for i in range(count)], Controller(adapter)
    sources, targets = arena.objects(count, size), arena.objects(count, size)
    for i, source in enumerate(sources):
        fill(source, pattern(size, seed=7800 + i))
    assert control.store(keys, sources).is_successful()
    assert flip_in_memory(node.process.pid, pattern(size, seed=7800 + bad)[:64], size // 2) >= 1
    assert control.lookup(keys) == [True] * count  # it is published; only its bytes are bad
    assert control.load(keys, targets) == [i != bad for i in range(count)]
    for i, target in enumerate(targets):
        if i != bad:
            assert bytes(bytes_of(target)) == pattern(size, seed=7800 + i), i
    assert adapter.report_status()["loads"]["BAD_CRC"] == 1
    assert "BAD_CRC" in adapter.report_status()["last_trouble"]["what"]


def test_K079_keys_of_a_failed_store_are_absent(adapter, arena, make_adapter):
    """The node runs full midway, one object lies elsewhere, one key is too long."""
    size = 1 * MIB
    small = make_adapter(tenant="t2")
    control, objects = Controller(small), arena.objects(40, size)
    for round_number in range(3):  # 120 MiB into 64
        keys = [make_key(7900 + 100 * round_number + i) for i in range(40)]
        for i, obj in enumerate(objects):
            fill(obj, pattern(size, seed=i + 1000 * round_number))
        before = small.report_status()["stores"].get("OK", 0)
        result = control.store(keys, objects)
        stored = small.report_status()["stores"].get("OK", 0) - before
        found = control.lookup(keys)
        if not result.is_successful():
            break
    assert not result.is_successful() and result.bytes_transferred() == 0, "the node never ran full"
    assert stored < 40 and sum(found) <= stored
    assert small.report_status()["stores"]["FULL"] > 0
    there = [i for i in range(40) if found[i]]
    spare = arena.objects(1, size)[0]
    for i in there[:8]:
        if control.load([keys[i]], [spare]) == [True]:
            assert bytes(bytes_of(spare)) == pattern(size, seed=i + 1000 * round_number)
    # the rest is the same for any failure: the others of the task are stored
    control = Controller(adapter)
    stranger = arena.objects(1, KIB)[0]
    elsewhere = type("Elsewhere", (), {"data_ptr": arena.address + arena.size - 512, "get_size": lambda self: KIB})()
    keys = [make_key(7997), make_key(7998), make_key(7999, model="m" * 1000)]
    assert not control.store(keys, [stranger, elsewhere, stranger]).is_successful()
    assert control.lookup(keys) == [True, False, False]
    assert control.load(keys, [stranger, elsewhere, stranger]) == [True, False, False]


def test_K082_R055_long_and_odd_keys(adapter, arena):
    path = "/mnt/models/" + "deep/" * 24 + "f1"
    assert len(path) == 134
    salt, control = "0123456789abcdef" * 4, Controller(adapter)
    keys = [make_key(8200, model=path, salt=salt), make_key(8200, model=path), make_key(8200, model="ümlaut/模型 {x}"),
            make_key(8200, model="m" * 700), make_key(8200, rank=0xFFFFFFFF), make_key(8200, salt=salt)]
    from farlift.lmcache.keys import key_bytes
    assert key_bytes(keys[0]) == f"{path}@01000100@0@{8200:064x}@{salt}".encode() and len(key_bytes(keys[0])) > 255
    sources, targets = arena.objects(len(keys), 8192), arena.objects(len(keys), 8192)
    for i, source in enumerate(sources):
        fill(source, pattern(8192, seed=8200 + i))
    assert control.store(keys, sources).is_successful()
    assert control.lookup(keys) == [True] * len(keys)
    assert control.load(keys, targets) == [True] * len(keys)
    for i, target in enumerate(targets):
        assert bytes(bytes_of(target)) == pattern(8192, seed=8200 + i), keys[i]


def test_K083_another_chunk_size_is_a_miss(adapter, arena):
    control, size = Controller(adapter), 64 * KIB
    keys = [make_key(8300), make_key(8301)]
    sources, field = arena.objects(2, size), arena.objects(1, 8 * size)[0]
    for source in sources:
        fill(source, pattern(size, seed=83))
    assert control.store(keys, sources).is_successful()
    fill(field, bytes([CANARY]) * (8 * size))
    inside = type("Inside", (), {"__init__": lambda self, at, n: self.__dict__.update(data_ptr=field.data_ptr + at, n=n),
                                 "get_size": lambda self: self.n})
    shorter, longer = inside(size, size // 2), inside(4 * size, 2 * size)
    assert control.load(keys, [shorter, longer]) == [False, False]
    seen = bytes(bytes_of(field))
    assert seen[:4 * size].count(CANARY) == 4 * size, "a value that is too long was written"
    assert seen[6 * size:].count(CANARY) == 2 * size, "past the end"
    assert adapter.report_status()["loads_of_wrong_length"] == 2


def test_store_again_and_delete_and_usage(make_adapter, arena):
    adapter = make_adapter(max_capacity_gb=0.25)
    control, size = Controller(adapter), 16 * KIB
    keys, objects = [make_key(100 + i, salt="s" if i % 2 else "") for i in range(10)], arena.objects(10, size)
    for obj in objects:
        fill(obj, pattern(size, seed=1))
    heard = Listener()
    adapter.register_listener(heard)
    assert int(control.store(keys, objects)) == 10 * size
    again = control.store(keys, objects)  # all of them are there
    assert again.is_successful() and again.bytes_transferred() == 0
    usage = adapter.get_usage()
    assert usage.total_bytes_used == 10 * size and dict(usage.bytes_by_cache_salt) == {"": 5 * size, "s": 5 * size}
    assert usage.usage_fraction == pytest.approx(10 * size / (256 << 20))
    assert control.load(keys, objects) == [True] * 10 and heard.accessed == keys
    adapter.delete(keys[:4] + [make_key(99)])
    assert control.lookup(keys) == [False] * 4 + [True] * 6
    assert adapter.get_usage().total_bytes_used == 6 * size and heard.deleted == keys[:4]
    assert control.load(keys, objects) == [False] * 4 + [True] * 6
    adapter.delete([])
    adapter.delete(keys)
    assert adapter.get_usage().total_bytes_used == 0 and heard.stored == keys


class Listener:
    def __init__(self):
        self.stored, self.accessed, self.deleted = [], [], []

    def on_l2_keys_stored(self, keys, sizes):
        self.stored += keys

    def on_l2_keys_accessed(self, keys):
        self.accessed += keys
        raise RuntimeError("a listener's fault is not the task's")

    def on_l2_keys_deleted(self, keys):
        self.deleted += keys


def test_what_a_node_gave_up_is_no_longer_counted(cache, adapter, arena):
    server, _, _ = cache
    control, keys, objects = Controller(adapter), [make_key(200 + i) for i in range(4)], arena.objects(4, 4096)
    assert control.store(keys, objects).is_successful() and adapter.get_usage().total_bytes_used == 4 * 4096
    for name in server.ok("KEYS", "okv:d:t1:*"):
        if make_key(202).chunk_hash.hex().encode() in name:
            server.ok("DEL", name)
    eventually(lambda: control.lookup([keys[2]]) == [False], 60)  # the descriptor's lease is over
    assert control.load(keys, objects) == [True, True, False, True]
    assert adapter.get_usage().total_bytes_used == 3 * 4096 and adapter.report_status()["tracked_keys"] == 3


def test_listing(make_adapter, arena):
    adapter = make_adapter(tracked_keys_max=20)
    control, obj = Controller(adapter), arena.objects(1, 512)[0]
    keys = [make_key(300 + i, model=f"list/{i % 2}") for i in range(25)]
    assert control.store(keys, [obj] * 25).is_successful()
    seen, cursor, pages = [], None, 0
    while True:
        page = adapter.list_l2_keys(page_size=6, cursor=cursor)
        seen += [(entry.key.chunk_hash_hex, entry.size_bytes) for entry in page.entries]
        cursor, pages = page.next_page_token, pages + 1
        if cursor is None:
            break
    assert seen == [(key.chunk_hash.hex(), 512) for key in keys[5:]] and pages == 4  # the oldest were forgotten
    assert adapter.get_usage().total_bytes_used == 20 * 512
    assert len(adapter.list_l2_keys("list/1").entries) == 10 and adapter.list_l2_keys("none").entries == ()
    for words in ({"page_size": 0}, {"cursor": "x"}, {"page_size": -1}):
        with pytest.raises(ValueError):
            adapter.list_l2_keys(**words)


def test_every_form_of_a_lookup(adapter):
    control, keys = Controller(adapter), [make_key(1)]
    for words, named in (((), {}), ((None,), {}), (({0: None},), {}), ((), {"group_layout_descs": {}}), ((), {"layout_desc": None})):
        bits = control.wait_lookup(adapter.submit_lookup_and_lock_task(keys, *words, **named))
        assert not bits.test(0)
    assert control.load([], []) == [] and control.lookup([]) == [] and control.store([], []).is_successful()


def test_a_task_that_is_wrong_in_itself_fails(adapter, arena):
    control, objects = Controller(adapter), arena.objects(1, 512)
    assert not control.store([make_key(1), make_key(2)], objects).is_successful()
    assert control.load([make_key(1), make_key(2)], objects) == [False, False]
    assert not control.store([make_key(1)], [None]).is_successful()  # no object at all
    assert control.load([make_key(1)], [None]) == [False]
    told = adapter.report_status()
    assert told["is_healthy"] and told["store"]["unexpected_errors"] == 1 and told["load"]["unexpected_errors"] == 1


def test_salts_with_tenants_of_their_own(cache, make_adapter, arena, tmp_path):
    other = tmp_path / "t2.keys"
    other.write_text(cache[2].read_text())
    adapter = make_adapter(salt_tenants={"s2": {"tenant": "t2", "key_file": str(other)}})
    control, size = Controller(adapter), 32 * KIB
    keys = [make_key(400, salt=salt) for salt in ("", "s2", "unknown", "s2")]
    keys[3] = make_key(401, salt="s2")
    sources, targets = arena.objects(4, size), arena.objects(4, size)
    for i, source in enumerate(sources):
        fill(source, pattern(size, seed=400 + i))
    assert control.store(keys, sources).is_successful() and control.lookup(keys) == [True] * 4
    assert control.load(keys, targets) == [True] * 4
    assert all(bytes(bytes_of(targets[i])) == pattern(size, seed=400 + i) for i in range(4))
    # pushed: L1 was never lent to anybody
    assert adapter.report_status()["client"]["source_registrations"] == 0
    plain = make_adapter()
    assert Controller(plain).lookup(keys) == [True, False, True, False]  # t2's are not in t1
    assert Controller(make_adapter(tenant="t2", key_file=str(other))).lookup(keys) == [False, True, False, True]
    adapter.delete(keys)
    assert control.lookup(keys) == [False] * 4


@pytest.mark.parametrize("wrong, message", [
    ({"tenant": ""}, "tenant"), ({"tenat": "x"}, "tenat"), ({"valkey": "nonsense"}, "HOST:PORT"), ({"valkey": []}, "valkey"),
    ({"valkey": 6379}, "valkey"), ({"provider": "ib"}, "provider"), ({"control": "x"}, "control"),
    ({"operation_limit_ms": 0}, "operation_limit_ms"), ({"operation_limit_ms": 600_000}, "operation_limit_ms"),
    ({"load_threads": True}, "load_threads"), ({"load_threads": 0}, "load_threads"), ({"lease_ms": -1}, "lease_ms"),
    ({"username": "u"}, "password_file"), ({"password_file": "/none"}, "password_file"), ({"tls": {"ca": "x"}}, "tls"),
    ({"salt_tenants": {"s": "t2"}}, "salt_tenants"), ({"salt_tenants": {"s": {"tenant": "t1", "key_file": "f"}}}, "of its own"),
    ({"salt_tenants": {"s": {"tenant": "t2", "key_file": "f"}}, "provider": "tcp"}, "tcp"), ({"max_capacity_gb": -1}, "max_cap"),
    ({"development": 1}, "development")])
def test_options_that_are_refused(params, wrong, message):
    with pytest.raises(ValueError, match=message):
        OkvL2AdapterConfig.from_dict({**params, **wrong})


def test_options_that_are_taken(params, tmp_path):
    password = tmp_path / "password"
    password.write_text("secret\n")
    config = OkvL2AdapterConfig.from_dict({
        **params, "valkey": "a:1, [::1]:2", "control": "sentinel", "sentinel_primary": "main", "username": "u",
        "password_file": str(password), "tls": {"ca_file": "/ca"}, "node_tls": True, "provider": "tcp", "interfaces": ["lo"],
        "max_capacity_gb": 1.5, "type": "plugin"})
    made = config.kv_configuration(None)
    assert [(one.host, one.port) for one in made.valkey] == [("a", 1), ("::1", 2)] and made.tls.ca_file == "/ca"
    assert made.credentials.password == "secret" and made.node_use_tls and not made.register_on_demand
    text = OkvL2AdapterConfig.help()
    assert "operation_limit_ms" in text and "default 5000" in text
