"""Options that exclude each other, what is loaded when, clusters: cases 108, 110, 111, 114."""
import os
import subprocess
import sys

import pytest
from harness import PYTHONPATH
from harness.pattern import P, crc32c
from harness.server import SMALL, Cluster, Server, eventually
from helpers import connected

import farlift
from farlift import (Client, ClientConfiguration, ClusterClient, ClusterClientConfiguration, CompressionConfiguration,
                     ConfigurationError, NodeAddress, NodeDiscoveryMode, RdmaConfiguration, RdmaProvider, ReadFrom)

EXCLUDED = {
    "compression": ({"compression": CompressionConfiguration(enabled=True)}, "compression"),
    "lazy connection": ({"lazy_connect": True}, "lazy"),
    "read-only": ({"read_only": True}, "read"),
    "static discovery": ({"node_discovery_mode": NodeDiscoveryMode.STATIC}, "static"),
    "asynchronous": ({"asynchronous": True}, "async"),
    "pool": ({"client_pool": True}, "pool"),
}


@pytest.mark.parametrize("name", EXCLUDED)
def test_B108_options_that_exclude_rdma(server, name):
    options, word = EXCLUDED[name]
    with pytest.raises(ConfigurationError) as raised:
        Client.create(ClientConfiguration([NodeAddress("127.0.0.1", server.port)], rdma=RdmaConfiguration(), **options))
    assert word in str(raised.value).lower() and "rdma" in str(raised.value).lower(), "both options are named"


@pytest.mark.parametrize("read_from", list(ReadFrom))
def test_B108_options_that_go_with_rdma(server, make_client, read_from):
    client = make_client(server, read_from=read_from, request_timeout=250, database_id=2,
                         compression=CompressionConfiguration(enabled=False))
    region = client.register_rdma_region(bytearray(P))
    client.rdma_set("k", region.window())
    assert client.rdma_get("k", region.window()).checksum == crc32c(P)


def run_python(code: str, **environment) -> str:
    done = subprocess.run([sys.executable, "-c", f"import sys; sys.path[:0] = [{PYTHONPATH!r}]\n" + code], text=True,
                          capture_output=True, timeout=60, env={**os.environ, **environment})
    assert done.returncode == 0, done.stderr
    return done.stdout


LOADED = """
def loaded():
    return "libfabric" in open("/proc/self/maps").read()
"""


def test_B108_nothing_is_loaded_without_a_request(server):
    out = run_python(LOADED + f"""
from farlift import *
assert not loaded(), "by the import"
with Client.create(ClientConfiguration([NodeAddress("127.0.0.1", {server.port})])) as client:
    client.ping(); client.tcp_set("k", "v"); client.tcp_get("k")
    assert not loaded(), "by a client without rdma"
    try:
        client.register_rdma_region(bytearray(10))
        raise SystemExit("registered without rdma")
    except RdmaError:
        pass
with Client.create(ClientConfiguration([NodeAddress("127.0.0.1", {server.port})], rdma=RdmaConfiguration())) as client:
    assert not loaded(), "by the soft provider"
assert rdma_available() and rdma_usable(RdmaProvider.Soft()) and not loaded()
rdma_usable()
print(loaded())
""")
    assert out.strip() in ("True", "False")


def test_rdma_configuration_is_checked():
    for bad in (RdmaProvider.Soft, "soft", None, 7):
        with pytest.raises(TypeError):
            RdmaConfiguration(bad)
    for bad in (0, -1, 1025, "1"):
        with pytest.raises(ValueError):
            RdmaConfiguration(connections=bad)
    with pytest.raises(TypeError):
        RdmaConfiguration(interface=7)
    with pytest.raises(TypeError):
        Client.create(ClusterClientConfiguration())
    with pytest.raises(TypeError):
        Client.create("127.0.0.1")
    assert RdmaConfiguration().provider == RdmaProvider.Soft()
    assert "secret" not in repr(farlift.ServerCredentials("secret"))


def test_no_such_interface(server):
    with pytest.raises(ConfigurationError, match="nosuch0"):
        Client.create(ClientConfiguration([NodeAddress("127.0.0.1", server.port)],
                                          rdma=RdmaConfiguration(interface="nosuch0")))


def test_no_server():
    from harness.server import free_port
    with pytest.raises(farlift.ConnectionError):
        Client.create(ClientConfiguration([NodeAddress("127.0.0.1", free_port())]))


def test_unix_socket():
    with Server({"unixsocket": "/tmp/farlift-test.sock".replace("test", str(os.getpid()))}) as server:
        path = server.config_lines["unixsocket"]
        with Client.create(ClientConfiguration(unix_path=path, rdma=RdmaConfiguration())) as client:
            with client.register_rdma_region(bytearray(P)) as region:
                client.rdma_set("k", region.window())
                assert client.rdma_get("k", region.window()).bytes_written == 4096


def calls(server, command: str) -> int:
    for line in server.ok("INFO", "commandstats").decode().splitlines():
        if line.lower().startswith(f"cmdstat_{command}:"):
            return int(line.split("calls=")[1].split(",")[0])
    return 0


@pytest.fixture(scope="module")
def cluster():
    with Cluster(2, replicas=1) as one:
        yield one


@pytest.fixture
def cluster_client(cluster):
    def make(**options):
        seeds = [NodeAddress("127.0.0.1", node.port) for node in cluster.nodes]
        return ClusterClient.create(ClusterClientConfiguration(seeds, rdma=RdmaConfiguration(), **options))
    return make


def test_cluster_routing(cluster, cluster_client):
    with cluster_client() as client, client.register_rdma_region(bytearray(P)) as region:
        for node in cluster.masters:
            key = cluster.key_on(node)
            client.rdma_set(key, region.window())
            assert client.rdma_get(key, region.window()).checksum == crc32c(P)
            assert node.ok("BLOB.INFO", key, "LEN") == 4096
        assert client.statistics["handshakes"] == 2


def test_B110_replica_preference_is_ignored(cluster, cluster_client):
    primary, replica = cluster.masters[0], cluster.replicas[0]
    key = cluster.key_on(primary, "b110-")
    with cluster_client(read_from=ReadFrom.PREFER_REPLICA) as client, client.register_rdma_region(bytearray(P)) as region:
        before = calls(primary, "blob.rdma_get"), calls(replica, "blob.rdma_get")
        client.rdma_set(key, region.window())
        for _ in range(5):
            assert client.rdma_get(key, region.window()).bytes_written == 4096
        assert (calls(primary, "blob.rdma_get"), calls(replica, "blob.rdma_get")) == (before[0] + 5, before[1])


def test_B111_moved_during_a_transfer_request(cluster, cluster_client):
    source, target = cluster.masters
    key = cluster.key_on(source, "b111-")
    slot = source.ok("CLUSTER", "KEYSLOT", key)
    source_id, target_id = source.ok("CLUSTER", "MYID"), target.ok("CLUSTER", "MYID")
    with cluster_client() as client, client.register_rdma_region(bytearray(P)) as region:
        client.rdma_set(key, region.window())
        assert client.statistics["handshakes"] == 1
        target.ok("CLUSTER", "SETSLOT", slot, "IMPORTING", source_id)
        source.ok("CLUSTER", "SETSLOT", slot, "MIGRATING", target_id)
        try:
            assert source.ok("MIGRATE", "127.0.0.1", target.port, key, 0, 30000) == "OK"
            view = region.memoryview()
            view[:] = bytes(4096)
            receipt = client.rdma_get(key, region.window())  # ASK
            assert receipt.checksum == crc32c(P) and view == P and not region.closed
        finally:
            for node in (target, source):
                node.ok("CLUSTER", "SETSLOT", slot, "NODE", target_id)
        view[:] = bytes(4096)
        receipt = client.rdma_get(key, region.window())  # MOVED
        assert receipt.checksum == crc32c(P) and view == P and not region.closed
        assert client.statistics["handshakes"] == 2
        client.rdma_set(key, region.window())
        assert target.ok("BLOB.TCP_GET", key) == P
    # back to where the slot belongs, for the other tests
    for node in (source, target):
        node.ok("FLUSHALL")
        node.ok("CLUSTER", "SETSLOT", slot, "NODE", source_id)
    eventually(lambda: source.call("BLOB.TCP_GET", key) is None)


def test_crossslot(cluster, cluster_client):
    with cluster_client() as client:
        first, second = (cluster.key_on(node) for node in cluster.masters)
        with pytest.raises(farlift.RequestError):
            client.custom_command(["MGET", first, second])


def test_B114_too_old_or_absent_libfabric(server, tmp_path):
    """Debian's 1.17 is too old for the published rule; a library that cannot be loaded is as good as absent."""
    usable = farlift.rdma_usable()
    if not usable:
        assert farlift.rdma_unusable_reason()
        with pytest.raises(ConfigurationError) as raised:
            Client.create(ClientConfiguration([NodeAddress("127.0.0.1", server.port)],
                                              rdma=RdmaConfiguration(RdmaProvider.EfaDirect())))
        assert str(raised.value)
    (tmp_path / "libfabric.so.1").write_bytes(b"not a library")
    out = run_python(f"""
from farlift import *
assert not rdma_usable() and rdma_unusable_reason(), "a broken library was taken for a good one"
assert rdma_usable(RdmaProvider.Soft()) and not rdma_usable(RdmaProvider.Tcp())
address = [NodeAddress("127.0.0.1", {server.port})]
for provider in (RdmaProvider.Tcp(), RdmaProvider.EfaDirect(), RdmaProvider.Verbs()):
    try:
        Client.create(ClientConfiguration(address, rdma=RdmaConfiguration(provider)))
        raise SystemExit("created")
    except ConfigurationError as error:
        assert "libfabric" in str(error), error
for rdma in (None, RdmaConfiguration()):
    with Client.create(ClientConfiguration(address, rdma=rdma)) as client:
        print(client.ping())
""", LD_LIBRARY_PATH=str(tmp_path))
    assert out == "b'PONG'\nb'PONG'\n"


def test_package_is_typed():
    import ast
    from pathlib import Path
    package = Path(farlift.__file__).resolve().parent
    assert (package / "py.typed").exists()
    for name in farlift.__all__:
        assert hasattr(farlift, name), name
    tree = ast.parse((package / "client.py").read_text())
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and not node.name.startswith("_"):
            assert ast.get_docstring(node) or node.name == "make", node.name


def test_checksum_function():
    assert farlift.rdma_checksum(b"") == 0 and farlift.rdma_checksum(b"123456789") == 3808858755
    assert farlift.rdma_checksum(bytearray(P)) == farlift.rdma_checksum(memoryview(P)) == crc32c(P)
    assert Client.rdma_checksum(P) == crc32c(P) and Client.rdma_available() and isinstance(Client.rdma_usable(), bool)
    for bad in ("text", None, memoryview(b"abcdef")[::2]):
        with pytest.raises(TypeError):
            farlift.rdma_checksum(bad)


def test_a_client_left_open_at_exit_does_no_harm(server):
    run_python(f"""
from farlift import *
client = Client.create(ClientConfiguration([NodeAddress("127.0.0.1", {server.port})], rdma=RdmaConfiguration(connections=3)))
region = client.register_rdma_region(bytearray(1 << 20))
client.rdma_set("k", region.window())
""")
