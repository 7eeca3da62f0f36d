"""Transfers of the Python client against a real server: cases 88 to 94, 98, 105 and what goes beyond them."""
import threading

import pytest
from harness.pattern import P, crc32c, pattern
from harness.server import eventually
from helpers import Background, sentinels, untouched

import farlift
from farlift import RdmaConfiguration, RdmaError, RdmaReadReceipt, RdmaSetChecksum


def hello_calls(server) -> int:
    for line in server.ok("INFO", "commandstats").decode().splitlines():
        if line.lower().startswith("cmdstat_blob.rdma_hello:"):
            return int(line.split("calls=")[1].split(",")[0])
    return 0


def test_B088_one_handshake_per_connection(server, make_client, any_rdma):
    client = make_client(server, any_rdma)
    before = hello_calls(server)
    assert client.ping() == b"PONG" and hello_calls(server) == before
    with client.register_rdma_region(bytearray(P)) as region:
        client.rdma_set("k", region.window())
        assert hello_calls(server) == before + 1
        for _ in range(10):
            client.rdma_get("k", region.window())
        assert hello_calls(server) == before + 1 and client.statistics["handshakes"] == 1
        server.ok("CLIENT", "KILL", "TYPE", "normal")

        def answers() -> bool:
            try:
                return client.ping() == b"PONG"
            except farlift.ConnectionError:
                return False

        eventually(answers, what="reconnected")
        receipt = client.rdma_get("k", region.window())
        assert receipt.bytes_written == 4096 and hello_calls(server) == before + 2
        assert client.statistics["handshakes"] == 2


def test_B089_round_trip_at_offsets(server, make_client, any_rdma):
    client = make_client(server, any_rdma)
    buffer = sentinels(32768)
    with client.register_rdma_region(buffer) as region:
        buffer[1000:5096] = P
        assert client.rdma_set("k", region.window(1000, 4096)) is None
        assert server.ok("BLOB.TCP_GET", "k") == P
        receipt = client.rdma_get(b"k", region.window(20001, 5000))
        assert receipt == RdmaReadReceipt(4096, crc32c(P))
        assert buffer[20001:24097] == P and buffer[1000:5096] == P
        assert untouched(buffer, 0, 1000) and untouched(buffer, 5096, 20001) and untouched(buffer, 24097)


@pytest.mark.parametrize("size", [1, 65536, (1 << 20) + 1, 8 << 20])
def test_B089_sizes(server, make_client, any_rdma, size):
    client = make_client(server, any_rdma)
    content = pattern(size, seed=89)
    source, target = bytearray(content), bytearray(size)
    with client.register_rdma_region(source) as a, client.register_rdma_region(target) as b:
        client.rdma_set("k", a.window(), rdma_checksum_of(content))
        assert client.rdma_get("k", b.window()) == RdmaReadReceipt(size, crc32c(content))
        assert target == content == source


def rdma_checksum_of(content) -> int:
    return farlift.rdma_checksum(content)


def test_B090_missing_key(client):
    buffer = sentinels(4096)
    region = client.register_rdma_region(buffer)
    assert client.rdma_get("missing", region.window()) is None
    assert untouched(buffer) and not region.closed


def test_B091_value_larger_than_the_window(server, make_client, any_rdma):
    client = make_client(server, any_rdma)
    server.ok("BLOB.TCP_SET", "k", P)
    buffer = sentinels(8192)
    region = client.register_rdma_region(buffer)
    with pytest.raises(RdmaError, match="address space smaller"):
        client.rdma_get("k", region.window(100, 4095))
    assert untouched(buffer) and not region.closed
    assert client.rdma_get("k", region.window(100, 4096)).bytes_written == 4096
    assert buffer[100:4196] == P and untouched(buffer, 0, 100) and untouched(buffer, 4196)


def test_B094_two_slices_two_threads(server, make_client, any_rdma):
    client = make_client(server, any_rdma)
    size = 1 << 20
    values = [pattern(size, seed=94), pattern(size, seed=95)]
    buffer = bytearray(2 * size)
    view = memoryview(buffer)
    regions = [client.register_rdma_region(view[:size]), client.register_rdma_region(view[size:])]
    for i, value in enumerate(values):
        server.ok("BLOB.TCP_SET", f"k{i}", value)

    def reader(i: int) -> None:
        for _ in range(10):
            assert client.rdma_get(f"k{i}", regions[i].window()).checksum == crc32c(values[i])

    for job in [Background(reader, i) for i in range(2)]:
        job.result()
    assert buffer[:size] == values[0] and buffer[size:] == values[1]


def test_B098_slower_than_the_request_timeout(server, make_client):
    client = make_client(server, request_timeout=100)
    region = client.register_rdma_region(bytearray(P))
    with server.config(largeobj__test_pause_before_finalize_set_ms="1500"):
        client.rdma_set("k", region.window())
    assert server.ok("BLOB.TCP_GET", "k") == P


def test_B105_wrong_checksum(server, make_client, any_rdma):
    client = make_client(server, any_rdma)
    server.ok("BLOB.TCP_SET", "k", P)
    region = client.register_rdma_region(bytearray(P[::-1]))
    right = farlift.rdma_checksum(P[::-1])
    for wrong in (right ^ 1, RdmaSetChecksum.Known(right ^ 1)):
        with pytest.raises(RdmaError, match="CRC32C mismatch"):
            client.rdma_set("k", region.window(), checksum=wrong)
        assert server.ok("BLOB.TCP_GET", "k") == P and not region.closed
    for good in (right, RdmaSetChecksum.Known(right), RdmaSetChecksum.Compute(), RdmaSetChecksum.Skip(), None):
        client.rdma_set("k", region.window(), good)
    assert server.ok("BLOB.TCP_GET", "k") == P[::-1]


def test_checksum_argument_types(client):
    region = client.register_rdma_region(bytearray(P))
    for bad in ("1", 1.0, True, b"x"):
        with pytest.raises(TypeError):
            client.rdma_set("k", region.window(), bad)
    for bad in (-1, 1 << 32):
        with pytest.raises(ValueError):
            client.rdma_set("k", region.window(), bad)
    assert client.blob_info("k") is None


def test_server_errors_leave_the_region_open(server, client):
    region = client.register_rdma_region(bytearray(P))
    server.ok("SET", "s", "x")
    with pytest.raises(RdmaError, match="^WRONGTYPE"):
        client.rdma_set("s", region.window())
    with pytest.raises(RdmaError, match="^WRONGTYPE"):
        client.rdma_get("s", region.window())
    with server.config(largeobj__max_object_size="1000"):
        with pytest.raises(RdmaError, match="max object size exceeded"):
            client.rdma_set("k", region.window())
    assert not region.closed
    client.rdma_set("k", region.window())


def test_scatter_and_gather(server, make_client, any_rdma):
    client = make_client(server, any_rdma)
    content = pattern(100_000, seed=96)
    server.ok("BLOB.TCP_SET", "k", content)
    buffers = [sentinels(30_000) for _ in range(5)]
    regions = [client.register_rdma_region(buffer) for buffer in buffers]
    receipt = client.rdma_get("k", [region.window(10, 25_000) for region in regions])
    assert receipt == RdmaReadReceipt(100_000, crc32c(content))
    assert b"".join(bytes(buffer[10:25_010]) for buffer in buffers)[:100_000] == content
    assert untouched(buffers[4]) and all(untouched(b, 0, 10) and untouched(b, 25_010) for b in buffers)
    client.rdma_set("n", [regions[1].window(10, 25_000), regions[0].window(10, 25_000)], RdmaSetChecksum.Compute())
    assert server.ok("BLOB.TCP_GET", "n") == content[25_000:50_000] + content[:25_000]
    one = client.register_rdma_region(bytearray(content))
    many = [one.window(i * 100, 100) for i in range(256)]
    client.rdma_set("m", many)
    assert server.ok("BLOB.TCP_GET", "m") == content[:25_600]
    with pytest.raises(RdmaError):
        client.rdma_set("m", [one.window(i, 1) for i in range(257)])
    with pytest.raises((RdmaError, TypeError)):
        client.rdma_get("m", [])
    with pytest.raises(RdmaError):
        client.rdma_get("m", [one.window(0, 20_000), one.window(19_999, 20_000)])
    assert client.rdma_get("m", many).bytes_written == 25_600


@pytest.mark.parametrize("connections", [1, 4])
def test_many_threads_one_client(server, make_client, connections):
    """`connections` transfers run at once, on one set of registrations."""
    client = make_client(server, RdmaConfiguration(connections=connections))
    size = 300_000
    failures = []

    def worker(i: int) -> None:
        try:
            content = pattern(size + i, seed=970 + i)
            with client.register_rdma_region(bytearray(size + 100)) as region:
                for _ in range(10):
                    region.memoryview()[:size + i] = content
                    client.rdma_set(f"k{i}", region.window(0, size + i))
                    region.memoryview()[:] = bytes(size + 100)
                    receipt = client.rdma_get(f"k{i}", region.window())
                    if bytes(region.memoryview()[:size + i]) != content or receipt.bytes_written != size + i:
                        failures.append(i)
        except BaseException as error:  # noqa: B902 - reported by the main thread
            failures.append(repr(error))

    threads = [threading.Thread(target=worker, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert client.statistics["handshakes"] <= max(connections, 1)


def test_inline_values_and_info(server, client):
    assert client.tcp_get("k") is None and client.blob_info("k") is None
    client.tcp_set("k", P)
    assert client.tcp_get("k") == P
    assert client.blob_info("k") == farlift.BlobInfo(4096, crc32c(P), "dram")
    client.tcp_set(b"bytes", memoryview(P))
    client.tcp_set("text", "a\r\nb")
    assert client.tcp_get("text") == b"a\r\nb"
    assert client.delete(["k", "bytes", "text"]) == 3
    with pytest.raises(farlift.RequestError, match="must be > 0"):
        client.tcp_set("k", b"")


def test_resp2_auth_database_and_name(server, make_client):
    server.ok("ACL", "SETUSER", "app", "reset", "on", ">secret", "+@all", "~*", "&*")
    try:
        client = make_client(server, protocol=farlift.ProtocolVersion.RESP2, database_id=3, client_name="tester",
                             credentials=farlift.ServerCredentials("secret", "app"))
        region = client.register_rdma_region(bytearray(P))
        client.rdma_set("k", region.window())
        assert client.rdma_get("k", region.window()).bytes_written == 4096
        assert client.custom_command(["CLIENT", "GETNAME"]) == b"tester"
        assert client.custom_command(["ACL", "WHOAMI"]) == b"app"
        connection = server.connect()
        connection.ok("SELECT", 3)
        assert connection.ok("BLOB.TCP_GET", "k") == P
        with pytest.raises(farlift.RequestError):
            make_client(server, credentials=farlift.ServerCredentials("wrong", "app"))
    finally:
        server.ok("ACL", "DELUSER", "app")


def test_tls():
    from farlift import Client, ClientConfiguration, NodeAddress, TlsConfiguration
    from harness.server import Server
    with Server(tls=True) as server:
        def configured(tls):
            return ClientConfiguration([NodeAddress("127.0.0.1", server.tls_port)], use_tls=True, tls=tls,
                                       rdma=RdmaConfiguration())

        with Client.create(configured(TlsConfiguration(ca_file=str(server.directory / "ca.crt")))) as client:
            with client.register_rdma_region(bytearray(P)) as region:
                client.rdma_set("k", region.window())
                assert client.rdma_get("k", region.window()).checksum == crc32c(P)
            big = pattern(3 << 20, seed=98)
            client.tcp_set("big", big)
            assert client.tcp_get("big") == big
        with pytest.raises(farlift.ConnectionError):
            Client.create(configured(TlsConfiguration()))
        with Client.create(configured(TlsConfiguration(verify_peer=False))) as client:
            assert client.ping() == b"PONG"
