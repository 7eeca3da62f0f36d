"""LMCache's own programs with the adapter loaded: its multi-process server without a GPU, driven by its own benchmark client,
and its adapter benchmark with verification. Only with the real package; conftest.py leaves it out otherwise."""
import json
import os
import re
import subprocess
import sys
import urllib.request
from pathlib import Path

from conftest import make_key
from harness.node import DataNode
from harness.server import eventually, free_port

LMCACHE = str(Path(sys.executable).parent / "lmcache")
SHAPE = ["--num-tokens", "1024", "--kvcache-shape-spec", "(2,256,16,8,64):float16:4", "--num-blocks", "256"]


def environment():
    return {**os.environ, "PYTHONPATH": os.environ["FARLIFT_PYTHONPATH"], "LMCACHE_DISABLE_BANNER": "1",
            "LMCACHE_TRACK_USAGE": "false", "PYTHONWARNINGS": "ignore"}


def adapter_json(params, **options) -> str:
    return json.dumps({"type": "plugin", "module_path": "farlift.lmcache.adapter", "class_name": "OkvL2Adapter",
                       "adapter_params": {**params, **options}})


class LmcacheServer:
    def __init__(self, params, log: Path, *words: str):
        self.rpc, self.http, self.log = free_port(), free_port(), log
        with open(log, "wb") as out:
            self.process = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", LMCACHE, "server", "--host", "127.0.0.1", "--port", str(self.rpc),
                 "--http-host", "127.0.0.1", "--http-port", str(self.http), "--disable-observability", "--l1-size-gb", "0.25",
                 "--no-l1-use-lazy", "--eviction-policy", "LRU", "--supported-transfer-mode", "auto",
                 "--l2-adapter", adapter_json(params), *words],
                env=environment(), cwd=log.parent, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
        try:
            eventually(self.answers, 120)
        except BaseException:
            self.process.kill()
            self.process.wait()
            raise

    def answers(self) -> bool:
        assert self.process.poll() is None, self.log.read_text(errors="replace")[-4000:]
        try:
            return self.get("/healthcheck") is not None
        except OSError:
            return False

    def get(self, path: str):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.http}{path}", timeout=30) as reply:
            return json.load(reply)

    def adapter(self) -> dict:
        return self.get("/status")["storage_manager"]["l2_adapters"][0]

    def bench(self) -> str:
        done = subprocess.run(
            [LMCACHE, "bench", "server", "--mode", "cpu", "--rpc-url", f"tcp://127.0.0.1:{self.rpc}", "--url",
             f"http://127.0.0.1:{self.http}", *SHAPE, "--start", "0", "--end", "3", "--interval", "0.05"],
            env=environment(), cwd=self.log.parent, capture_output=True, text=True, timeout=200)
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
        return done.stdout

    def __enter__(self) -> "LmcacheServer":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        try:
            self.process.wait(60)
        finally:
            if self.process.poll() is None:
                self.process.kill()
                self.process.wait()


def checksums(text: str) -> dict:
    """{sequence: checksum of its KV blocks after they were retrieved}"""
    return dict(re.findall(r"\[seq (\d+)/warm\] CHECKSUM: ([0-9a-f]+)", text))


def hits(text: str, kind: str) -> list:
    return re.findall(rf"/{kind}\] LOOKUP: (\d+)/(\d+) chunks", text)


def test_two_servers_share_what_one_has_stored(cache, params, tmp_path):
    _, node, _ = cache
    with LmcacheServer(params, tmp_path / "first.log") as first:
        told = first.bench()
        assert hits(told, "cold") == [("0", "4")] * 3 and hits(told, "warm") == [("4", "4")] * 3
        assert re.search(r"Checksum OK: +3", told) and re.search(r"Checksum FAIL: +0", told)
        before = checksums(told)
        eventually(lambda: first.adapter()["stores"] == {"OK": 12}, 60)
        assert len(first.get("/cache/objects?tier=l2")["entries"]) == 12
    with LmcacheServer(params, tmp_path / "second.log") as second:
        told = second.bench()
        assert hits(told, "cold") == [("4", "4")] * 3, "the second server does not find what the first has stored"
        assert checksums(told) == before and len(before) == 3
        status = second.adapter()
        assert status["is_healthy"] and status["loads"].get("OK", 0) >= 12 and set(status["loads"]) == {"OK"}
        assert status["client"]["bytes_read"] >= 12 * (2 << 20) and status["stores"] == {}
        assert status["locked_keys"] == 0 and status["last_trouble"] is None
    log = (tmp_path / "second.log").read_text(errors="replace")
    assert "Traceback" not in log, log[-4000:]


def test_R056_the_server_outlives_a_node(cache, tmp_path):
    """A node dies with the blocks on it: the server stays up and healthy, the client computes again and its sums are right."""
    server, _, keys = cache
    with DataNode(server.port, "--tenant", f"lost,keys={keys},quota=64m", identity=8) as node:
        params = {"valkey": f"127.0.0.1:{server.port}", "tenant": "lost", "key_file": str(keys), "operation_limit_ms": 1000}
        with LmcacheServer(params, tmp_path / "one.log") as one:
            one.bench()
            eventually(lambda: one.adapter()["stores"] == {"OK": 12}, 60)
        with LmcacheServer(params, tmp_path / "two.log") as two:
            node.kill()
            told = two.bench()
            assert hits(told, "warm") == [("4", "4")] * 3  # computed again, and kept in L1
            assert two.get("/status")["is_healthy"] and two.adapter()["is_healthy"]
            assert two.adapter()["last_trouble"] is not None
        assert "Traceback" not in (tmp_path / "two.log").read_text(errors="replace")
        node.start()


def test_K076_an_arena_of_unknown_kind_ends_the_server_with_a_sentence(params, tmp_path):
    """L1 in named shared memory: LMCache gives no stable size for it."""
    pool = f"lmcache_l1_pool_farlift_{os.getpid()}"
    words = [LMCACHE, "server", "--host", "127.0.0.1", "--port", str(free_port()), "--http-host", "127.0.0.1", "--http-port",
             str(free_port()), "--l1-size-gb", "0.25", "--no-l1-use-lazy", "--shm-name", pool, "--disable-observability",
             "--eviction-policy", "LRU", "--l2-adapter", adapter_json(params)]
    try:
        done = subprocess.run(words, env=environment(), cwd=tmp_path, capture_output=True, text=True, timeout=120)
    finally:
        Path("/dev/shm", pool).unlink(missing_ok=True)
    assert done.returncode != 0 and "l1_not_lazy" in done.stdout + done.stderr


def test_lmcaches_own_benchmark_of_adapters_verifies(params, tmp_path):
    done = subprocess.run(
        [LMCACHE, "bench", "l2", "--l2-adapter", adapter_json(params, l1_not_lazy=True), "--num-keys", "16", "--in-flight", "2", "--data-size-kb",
         "512", "--rounds", "2", "--lookup-max-hit-rate", "1.0", "--no-skip-verify"],
        env=environment(), cwd=tmp_path, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert len(re.findall(r"Total success: +64", done.stdout)) >= 3, done.stdout[-3000:]
    assert "[Cleanup] Done." in done.stdout


def test_the_real_interface_is_met():
    """Nothing abstract is left, and the class is found as the plug-in loader looks for it."""
    from farlift.lmcache.adapter import OkvL2Adapter, OkvL2AdapterConfig
    from lmcache.v1.distributed.l2_adapters import plugin_l2_adapter as loader
    assert not OkvL2Adapter.__abstractmethods__
    config = loader.PluginL2AdapterConfig(module_path="farlift.lmcache.adapter", class_name="OkvL2Adapter")
    module = sys.modules["farlift.lmcache.adapter"]
    assert loader._resolve_config_class(module, config, OkvL2Adapter) is OkvL2AdapterConfig
    assert "double" not in loader.__file__


def test_key_text_is_that_of_lmcaches_native_bridge():
    from farlift.lmcache.keys import key_bytes
    from lmcache.v1.distributed.l2_adapters.native_connector_l2_adapter import _object_key_to_string
    for key in (make_key(1), make_key(2, "a/b", "salt"), make_key(3, rank=0xFFFFFFFF)):
        assert key_bytes(key) == _object_key_to_string(key).encode()
