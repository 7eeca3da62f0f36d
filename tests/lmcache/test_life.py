"""The adapter while nodes pause, die and come back, while it is closed, and under two threads."""
import os
import random
import threading
import time

import pytest
from conftest import Arena, Controller, bytes_of, fill, make_key
from harness.node import DataNode
from harness.pattern import pattern
from harness.server import eventually

from farlift.lmcache.adapter import OkvL2Adapter, OkvL2AdapterConfig
from farlift.lmcache.lanes import Lane

KIB, MIB = 1 << 10, 1 << 20
CANARY = 0xA5
LONG = os.environ.get("FARLIFT_LONG", "") == "1"
HAMMER_S = 60 if LONG else 5
CANARY_S = 10 if LONG else 2


@pytest.fixture
def own_node(cache):
    """A node that the test may pause and kill, with a tenant of its own, and the adapter's options for it."""
    server, _, keys = cache
    with DataNode(server.port, "--tenant", f"own,keys={keys},quota=160m", "--grace-ms", 1000, identity=3) as node:
        yield node, {"tenant": "own", "host_lane": False, "operation_limit_ms": 1000, "queue_limit_ms": 1000}


def stored(adapter, arena, count: int, size: int, first: int):
    """Keys of values that are in the cache now."""
    control, keys, objects = Controller(adapter), [make_key(first + i) for i in range(count)], arena.objects(count, size)
    for i, obj in enumerate(objects):
        fill(obj, pattern(size, seed=first + i))
    eventually(lambda: control.store(keys, objects).is_successful())
    return keys


def canaries(objects) -> None:
    for obj in objects:
        fill(obj, bytes([CANARY]) * obj.get_size())


def intact(objects) -> bool:
    return all(bytes(bytes_of(obj)).count(CANARY) == obj.get_size() for obj in objects)


def watch(objects, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        assert intact(objects), "bytes landed after close() had returned"
        time.sleep(0.05)


def test_K080_close_during_a_load_from_a_paused_node(own_node, make_adapter, arena):
    node, options = own_node
    adapter = make_adapter(**{**options, "operation_limit_ms": 60_000})  # nothing but close() ends this load
    keys, targets = stored(adapter, arena, 4, 2 * MIB, 8000), arena.objects(4, 2 * MIB)
    more = arena.objects(4, 2 * MIB)
    assert Controller(adapter).load(keys, targets) == [True] * 4
    node.pause()
    try:
        task = adapter.submit_load_task(keys, targets)
        # Its own memory: two reads never run into the same bytes.
        waiting = [adapter.submit_load_task(keys, more)] + [adapter.submit_load_task(keys, targets) for _ in range(4)]
        eventually(lambda: adapter.report_status()["load"]["running"] == 2)
        assert adapter.query_load_result(task) is None
        since = time.monotonic()
        adapter.close()
        assert time.monotonic() - since < 30, "close() waited for the node"
        canaries(targets)
    finally:
        node.resume()
    watch(targets, CANARY_S)
    for one in [task, *waiting]:  # reported, each once
        bits = adapter.query_load_result(one)
        assert bits is not None and not any(bits.test(i) for i in range(4))
        assert adapter.query_load_result(one) is None
    late = adapter.submit_load_task(keys, targets)
    assert not adapter.query_load_result(late).test(0) and intact(targets)
    assert adapter.pop_completed_store_tasks() == {}
    failed = adapter.submit_store_task(keys, targets)
    assert not adapter.pop_completed_store_tasks()[failed].is_successful()
    assert adapter.report_status()["is_healthy"] is False and adapter.report_status()["closed"]
    assert all(adapter.report_status()[lane]["unexpected_errors"] == 0 for lane in ("store", "lookup", "load"))
    adapter.submit_unlock(keys)
    adapter.delete(keys)
    adapter.close()


def test_closing_while_tasks_come_in(make_adapter, arena):
    """Wherever close() meets a task: it gets its one result, and nothing is raised."""
    objects = arena.objects(4, 64 * KIB)
    keys = [make_key(8050 + i) for i in range(4)]
    for round_number in range(12):
        adapter, tasks, started = make_adapter(), [], threading.Event()

        def submit():
            for i in range(150):
                tasks.append((adapter.submit_store_task(keys, objects), adapter.submit_load_task(keys, objects),
                              adapter.submit_lookup_and_lock_task(keys, {})))
                if i == 5 * round_number:
                    started.set()

        thread = threading.Thread(target=submit)
        thread.start()
        assert started.wait(30)
        adapter.close()
        thread.join(30)
        assert not thread.is_alive() and len(tasks) == 150
        assert set(adapter.pop_completed_store_tasks()) == {store for store, _, _ in tasks}
        for _, load, lookup in tasks:
            assert adapter.query_load_result(load) is not None and adapter.query_lookup_and_lock_result(lookup) is not None
        told = adapter.report_status()
        assert all(told[lane]["unexpected_errors"] == 0 and told[lane]["untaken_results"] == 0
                   for lane in ("store", "lookup", "load")), told


def test_R054_L1_reused_after_close_in_the_middle_of_a_load(own_node, make_adapter, arena):
    """As K080, but the node stops while values land: some have, some are on the way."""
    node, options = own_node
    adapter = make_adapter(**options, load_threads=1)
    keys, targets = stored(adapter, arena, 24, 1 * MIB, 5400), arena.objects(24, 1 * MIB)
    canaries(targets)
    task = adapter.submit_load_task(keys, targets)
    eventually(lambda: not intact(targets), first_pause=0.0001)
    node.pause()
    try:
        adapter.close()
        canaries(targets)
    finally:
        node.resume()
    watch(targets, CANARY_S)
    bits = adapter.query_load_result(task)
    assert bits is not None  # those that were complete before may count
    assert adapter.query_load_result(task) is None


def test_R056_a_lost_node_means_misses_and_nothing_is_raised(own_node, make_adapter, arena):
    node, options = own_node
    adapter = make_adapter(**options)
    control = Controller(adapter)
    keys, targets = stored(adapter, arena, 8, 1 * MIB, 5600), arena.objects(8, 1 * MIB)
    assert control.lookup(keys) == [True] * 8  # LMCache goes by this, and then:
    node.kill()
    since = time.monotonic()
    assert control.load(keys, targets) == [False] * 8
    assert time.monotonic() - since < 30
    told = adapter.report_status()
    assert told["is_healthy"] and told["last_trouble"]["seconds_ago"] < 30 and told["load"]["unexpected_errors"] == 0
    assert not control.store([make_key(5699)], targets[:1]).is_successful()
    adapter.delete(keys)
    node.start()  # another incarnation; what it held is gone
    eventually(lambda: control.load(keys, targets) == [False] * 8)
    values = stored(adapter, arena, 2, 1 * MIB, 5650)
    eventually(lambda: control.lookup(values) == [True, True])
    assert control.load(values, targets[:2]) == [True, True]
    assert bytes(bytes_of(targets[0])) == pattern(MIB, seed=5650)


def test_a_paused_node_ends_a_load_in_time(own_node, make_adapter, arena):
    node, options = own_node
    adapter = make_adapter(**options, load_threads=1)
    control = Controller(adapter)
    keys, targets = stored(adapter, arena, 4, 1 * MIB, 5800), arena.objects(4, 1 * MIB)
    assert control.load(keys, targets) == [True] * 4
    node.pause()
    try:
        tasks = [adapter.submit_load_task(keys, targets) for _ in range(6)]
        for task in tasks:
            bits = control.wait_load(task)
            assert not any(bits.test(i) for i in range(4))
        canaries(targets)
        assert adapter.report_status()["load"]["expired_in_queue"] >= 1  # they did not wait for one another for ever
    finally:
        node.resume()
    watch(targets, CANARY_S)
    eventually(lambda: control.load(keys, targets) == [True] * 4)


def test_valkey_away(params, arena):
    adapter = OkvL2Adapter(OkvL2AdapterConfig.from_dict({**params, "valkey": "127.0.0.1:1", "control_timeout_ms": 200}),
                           l1_memory_desc=arena.desc)
    try:
        control, objects = Controller(adapter), arena.objects(2, 4096)
        keys = [make_key(1), make_key(2)]
        assert control.lookup(keys) == [False, False] and control.load(keys, objects) == [False, False]
        assert not control.store(keys, objects).is_successful()
        adapter.delete([make_key(i) for i in range(1000)])  # bounded, though each would wait
        told = adapter.report_status()
        assert told["is_healthy"] and told["loads"] == {"CONTROL_DOWN": 2} and "CONTROL_DOWN" in told["last_trouble"]["what"]
    finally:
        adapter.close()


def test_K081_three_descriptors_and_two_threads(make_adapter, arena):
    adapter = make_adapter()
    descriptors = {adapter.get_store_event_fd(), adapter.get_lookup_and_lock_event_fd(), adapter.get_load_event_fd()}
    assert len(descriptors) == 3 and all(os.get_blocking(fd) is False for fd in descriptors)
    size, deadline, errors, counted = 4 * KIB, time.monotonic() + HAMMER_S, [], {"store": 0, "prefetch": 0}
    sources, targets = arena.objects(64, size), arena.objects(64, size)
    for i, obj in enumerate(sources):
        fill(obj, pattern(size, seed=8100 + i))

    def guarded(run):
        def inner():
            try:
                run(random.Random(run.__name__))
            except BaseException as error:  # noqa: B902 - for the main thread
                errors.append(error)
        return threading.Thread(target=inner)

    def store(dice):
        control, ids = Controller(adapter), set()
        while time.monotonic() < deadline:
            tasks = []
            for _ in range(dice.randint(1, 6)):
                chosen = dice.sample(range(64), dice.randint(0, 8))
                tasks.append(adapter.submit_store_task([make_key(8100 + i) for i in chosen], [sources[i] for i in chosen]))
            assert not ids & set(tasks)
            ids |= set(tasks)
            for task in dice.sample(tasks, len(tasks)):
                assert control.wait_store(task).is_successful()
            counted["store"] += len(tasks)
        assert control.stores == {} and adapter.pop_completed_store_tasks() == {}

    def prefetch(dice):
        control = Controller(adapter)
        while time.monotonic() < deadline:
            chosen = dice.sample(range(64), dice.randint(1, 16))
            keys = [make_key(8100 + i) for i in chosen]
            tasks = [adapter.submit_lookup_and_lock_task(keys, {}) for _ in range(3)]
            bits = [control.wait_lookup(task) for task in tasks][-1]
            assert all(adapter.query_lookup_and_lock_result(task) is None for task in tasks)
            loaded = control.load(keys, [targets[i] for i in chosen])
            for place, i in enumerate(chosen):
                assert loaded[place] or not bits.test(place)  # nothing is deleted here: what was found can be read
                if loaded[place]:
                    assert bytes(bytes_of(targets[i])) == pattern(size, seed=8100 + i)
            for _ in tasks:
                adapter.submit_unlock(keys)
            counted["prefetch"] += 4

    threads = [guarded(store), guarded(prefetch)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(HAMMER_S + 120)
        assert not thread.is_alive(), "a task was lost"
    if errors:
        raise errors[0]
    assert min(counted.values()) > 10, counted
    told = adapter.report_status()
    assert told["locked_keys"] == 0
    for lane in ("store", "lookup", "load"):
        assert told[lane] == {"waiting": 0, "running": 0, "untaken_results": 0, "expired_in_queue": 0, "unexpected_errors": 0}


def test_a_lane_fails_what_waited_too_long():
    gate, entered = threading.Event(), threading.Event()

    def run(task):
        entered.set()
        assert gate.wait(30)
        return f"ran {task}"

    lane = Lane("test", 1, 0.05, run, lambda task: f"failed {task}")
    lane.start()
    lane.submit(1, "a")
    assert entered.wait(30)
    lane.submit(2, "b")
    time.sleep(0.2)  # longer than the limit: what is tested is that time passed
    gate.set()
    eventually(lambda: lane.status()["untaken_results"] == 2)
    assert lane.take_all() == {1: "ran a", 2: "failed b"} and lane.status()["expired_in_queue"] == 1
    lane.stop_intake()
    lane.join()
    lane.submit(3, "c")
    assert lane.take(3) == "failed c" and lane.take(3) is None
    lane.close_notifier()
    lane.close_notifier()


def test_closing_gives_everything_back(params):
    def descriptors():
        return sorted(os.listdir("/proc/self/fd"))

    arena = Arena(1 * MIB)
    OkvL2Adapter(OkvL2AdapterConfig.from_dict(params), l1_memory_desc=arena.desc).close()
    before, threads = descriptors(), threading.active_count()
    for _ in range(3):
        adapter = OkvL2Adapter(OkvL2AdapterConfig.from_dict(params), l1_memory_desc=arena.desc)
        assert threading.active_count() == threads + 4
        adapter.close()
    assert len(descriptors()) == len(before) and threading.active_count() == threads
