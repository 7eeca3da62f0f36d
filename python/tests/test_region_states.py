"""Regions and windows: cases 92, 93, 106, 107, 112, 113 and the buffers of Python."""
import gc
import mmap
import sys
import weakref

import pytest
from harness.fake_server import FakeServer
from harness.pattern import P, crc32c, pattern
from helpers import Background, Stall, connected, sentinels, serve, untouched

import farlift
from farlift import ClosingError, RdmaError


@pytest.fixture
def stalled(fake_domain):
    """(client, region, stall, transfer): a transfer that waits for stall.release()."""
    value = pattern(4096, seed=92)
    stall = Stall(value)
    with FakeServer(fake_domain, {"BLOB.RDMA_GET": stall}) as server, connected(server.port) as client:
        region = client.register_rdma_region(sentinels(16384))
        transfer = Background(client.rdma_get, "k", region.window(0, 8192))
        assert stall.entered.wait(30)
        yield client, region, stall, transfer, server
        stall.release()


def test_B092_second_transfer_on_a_busy_region(stalled):
    client, region, stall, transfer, server = stalled
    sent = server.count("BLOB.RDMA_GET")
    for call in (lambda: client.rdma_get("k", region.window(8192, 8192)), lambda: client.rdma_set("k", region.window(8192)),
                 lambda: client.rdma_get("k", region.window(0, 8192))):
        with pytest.raises(RdmaError):
            call()
    assert server.count("BLOB.RDMA_GET") == sent and server.count("BLOB.RDMA_SET") == 0
    stall.release()
    assert transfer.result().bytes_written == 4096
    view = region.memoryview()
    assert view[:4096] == stall.value and untouched(view, 4096)


def test_B093_close_of_a_busy_region(stalled):
    client, region, stall, transfer, _ = stalled
    with pytest.raises(RdmaError):
        region.close()
    assert not region.closed
    stall.release()
    assert transfer.result().bytes_written == 4096
    assert client.rdma_get("k", region.window()).bytes_written == 4096
    region.close()
    assert region.closed


def test_B106_windows_out_of_range(client):
    region = client.register_rdma_region(bytearray(4096))
    assert (region.window().offset, region.window().length) == (0, 4096)
    assert region.window(4096).length == 0 and region.window(1, 2).region is region
    for offset, length in ((-1, None), (0, -1), (4097, None), (0, 4097), (1, 4096), (4096, 1), (1 << 70, None), (0, 1 << 70),
                           (1 << 63, 1 << 63), (-(1 << 70), 5)):
        with pytest.raises(RdmaError):
            region.window(offset, length)
    for bad in (("0", None), (0, "1"), (0.0, None), (None, None)):
        with pytest.raises(TypeError):
            region.window(*bad)


def test_B106_wrong_arguments_of_a_transfer(server, client, make_client):
    region = client.register_rdma_region(bytearray(P))
    other = make_client(server)
    foreign = other.register_rdma_region(bytearray(4096))
    for bad in (region, None, b"x", 7, [region], [region.window(), None], bytearray(16)):
        with pytest.raises(TypeError):
            client.rdma_get("k", bad)
        with pytest.raises(TypeError):
            client.rdma_set("k", bad)
    for call in (client.rdma_get, client.rdma_set):
        with pytest.raises(RdmaError):
            call("k", foreign.window())
        with pytest.raises(RdmaError):
            call("k", region.window(4096))  # of length zero
    assert not region.closed and not foreign.closed
    for bad_key in (None, object(), True):
        with pytest.raises(TypeError):
            client.rdma_get(bad_key, region.window())


def test_B106_closed_region(client):
    region = client.register_rdma_region(bytearray(4096))
    window = region.window(0, 16)
    region.close()
    for call in (region.window, region.memoryview, window.memoryview, lambda: client.rdma_get("k", window),
                 lambda: client.rdma_set("k", window)):
        with pytest.raises(RdmaError):
            call()
    assert region.closed and region.capacity == 4096


def test_B107_memory_that_cannot_be_registered(client):
    numpy = pytest.importorskip("numpy")
    read_only = numpy.zeros(16)
    read_only.flags.writeable = False
    for bad in (b"bytes", memoryview(b"read only"), numpy.zeros((8, 8))[:, ::2], numpy.zeros((8, 8)).T[1:], read_only, "text", 7,
                None, [1, 2], memoryview(bytearray(16))[::2]):
        with pytest.raises(TypeError):
            client.register_rdma_region(bad)
    for empty in (bytearray(), memoryview(bytearray(16))[4:4], numpy.zeros(0)):
        with pytest.raises(RdmaError):
            client.register_rdma_region(empty)


def test_B107_wide_elements_count_in_bytes(server, client):
    numpy = pytest.importorskip("numpy")
    array = numpy.arange(1024, dtype=">u4").reshape(32, 32)
    with client.register_rdma_region(array) as region:
        assert region.capacity == 4096
        view = region.memoryview()
        assert (view.format, view.itemsize, view.nbytes, view.readonly, view.ndim) == ("B", 1, 4096, False, 1)
        client.rdma_set("k", region.window())
        assert server.ok("BLOB.TCP_GET", "k") == array.tobytes()
        before = array.copy()
        array[:] = 0
        assert client.rdma_get("k", region.window()).bytes_written == 4096
        assert (array == before).all()


def test_numpy_kinds(server, client):
    numpy = pytest.importorskip("numpy")
    record = numpy.zeros(100, dtype=[("a", "<i4"), ("b", "<f8")])
    record["a"] = range(100)
    for array in (record, numpy.linspace(0, 1, 1000, dtype="f4"), numpy.arange(64).reshape(4, 4, 4)[1:3]):
        with client.register_rdma_region(array) as region:
            client.rdma_set("k", region.window())
            assert server.ok("BLOB.TCP_GET", "k") == array.tobytes()
            wanted = array.copy()
            memoryview(region.memoryview())[:] = bytes(array.nbytes)
            client.rdma_get("k", region.window())
            assert (array == wanted).all()


def test_mmap_and_array(server, client):
    import array
    with mmap.mmap(-1, 1 << 20) as mapped:
        with client.register_rdma_region(mapped) as region:
            mapped[:4096] = P
            client.rdma_set("k", region.window(0, 4096))
            client.rdma_get("k", region.window(4096))
            assert mapped[4096:8192] == P
            with pytest.raises(BufferError):
                mapped.close()
        gc.collect()
    numbers = array.array("d", [0.0] * 512)
    with client.register_rdma_region(numbers) as region:
        client.rdma_get("k", region.window())
        assert numbers.tobytes() == P


def test_buffers_can_neither_move_nor_go(client):
    buffer = bytearray(4096)
    region = client.register_rdma_region(buffer)
    with pytest.raises(BufferError):
        buffer.extend(b"x")
    region.close()
    buffer.extend(b"x")

    class Owner(bytearray):
        pass

    owner = Owner(4096)
    gone = weakref.ref(owner)
    region = client.register_rdma_region(owner)
    del owner
    gc.collect()
    assert gone() is not None, "the region keeps its buffer alive"
    view = region.memoryview()
    region.close()
    gc.collect()
    assert gone() is not None, "so does a view"
    view[0] = 1
    del view
    gc.collect()
    assert gone() is None


def test_the_buffer_is_released_when_the_client_closes(make_client, server):
    client = make_client(server)
    buffer = bytearray(4096)
    region = client.register_rdma_region(buffer)
    client.close()
    assert region.closed
    buffer.extend(b"x")


def test_B112_region_dropped_while_busy(fake_domain):
    value = pattern(1 << 20, seed=112)

    class Owner(bytearray):
        pass

    stall = Stall(value)
    with FakeServer(fake_domain, {"BLOB.RDMA_GET": stall}) as server, connected(server.port) as client:
        owner = Owner(1 << 20)
        gone = weakref.ref(owner)
        region = client.register_rdma_region(owner)
        transfer = Background(client.rdma_get, "k", region.window())
        assert stall.entered.wait(30)
        del owner, region
        gc.collect()
        assert gone() is not None, "the transfer holds the memory"
        stall.release()
        assert transfer.result() == farlift.RdmaReadReceipt(1 << 20, crc32c(value))
        assert stall.outcomes == [None]
        del transfer
        gc.collect()
        # nothing holds it now; it goes when the transfer's thread has let go
        assert gone() is None or _collected(gone)


def _collected(reference) -> bool:
    from harness.server import eventually
    return bool(eventually(lambda: (gc.collect(), reference() is None)[1], 10, "memory given back"))


def test_B113_closing_twice(server, make_client):
    client = make_client(server)
    region = client.register_rdma_region(bytearray(4096))
    with region:
        pass
    region.close()
    region.close()
    assert region.closed
    with client:
        open_region = client.register_rdma_region(bytearray(4096))
        window = open_region.window()
    client.close()
    client.close()
    assert client.closed and open_region.closed
    for call in (lambda: client.rdma_get("k", window), lambda: client.rdma_set("k", window), lambda: client.ping(),
                 lambda: client.register_rdma_region(bytearray(16)), lambda: client.rdma_get("k", None),
                 lambda: client.tcp_get("k")):
        with pytest.raises(ClosingError):
            call()
    open_region.close()


def test_the_same_memory_may_be_registered_again(server, client):
    buffer = bytearray(P)
    for _ in range(50):
        with client.register_rdma_region(buffer) as region:
            client.rdma_set("k", region.window())
    first, second = client.register_rdma_region(buffer), client.register_rdma_region(buffer)
    client.rdma_get("k", first.window())
    first.close()
    assert client.rdma_get("k", second.window()).bytes_written == 4096


def test_reprs_and_types(client):
    region = client.register_rdma_region(bytearray(10))
    assert "10 bytes, open" in repr(region) and "5 bytes at 5" in repr(region.window(5))
    region.close()
    assert "closed" in repr(region)
    assert issubclass(farlift.RdmaError, farlift.RequestError)
    assert issubclass(farlift.ConnectionError, farlift.RequestError) and issubclass(farlift.ConnectionError, ConnectionError)
    assert issubclass(farlift.TimeoutError, farlift.RequestError) and not issubclass(farlift.ClosingError, farlift.RequestError)
    with pytest.raises(TypeError):
        sys.modules["farlift._client"].Region()


def test_memory_is_served_where_the_window_says(fake_domain):
    """A GET names exactly the window (rule 14)."""
    with FakeServer(fake_domain, {"BLOB.RDMA_GET": serve(P)}) as server, connected(server.port) as client:
        region = client.register_rdma_region(bytearray(16384))
        client.rdma_get("k", region.window(1234, 5000))
        words = [w for w in server.commands if w[0].upper() == b"BLOB.RDMA_GET"][0]
        assert len(words) == 5 and words[3:] == [b"1234", b"5000"]
