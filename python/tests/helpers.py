"""What several test files of the package need."""
import threading
from contextlib import contextmanager
from typing import Any, Callable

from harness.fake_server import FakeConnection, triples_of
from harness.pattern import SENTINEL, crc32c

from farlift import Client, ClientConfiguration, NodeAddress, RdmaConfiguration


def sentinels(size: int) -> bytearray:
    return bytearray([SENTINEL]) * size


def untouched(buffer, start: int = 0, end=None) -> bool:
    part = bytes(memoryview(buffer)[start:end])
    return part.count(SENTINEL) == len(part)


def serve(value: bytes) -> Callable:
    """A handler of BLOB.RDMA_GET that delivers `value`."""
    def get(connection: FakeConnection, words) -> Any:
        error = connection.write_value(triples_of(words[2:]), value)
        return [len(value), crc32c(value)] if error is None else f"-ERR RDMA write failed: {error}"
    return get


class Stall:
    """A handler of BLOB.RDMA_GET that holds the reply (and, if asked, the bytes) until release()."""

    def __init__(self, value: bytes, before: int = 0):
        self.value, self.before = value, before
        self.entered, self.gate, self.done = threading.Event(), threading.Event(), threading.Event()
        self.outcomes: list = []

    def __call__(self, connection: FakeConnection, words) -> Any:
        triples = triples_of(words[2:])
        if self.before:
            key, addr, _ = triples[0]
            self.outcomes.append(connection.transfer("write", key, addr, self.value[:self.before]))
        self.entered.set()
        assert self.gate.wait(60)
        error = connection.write_value(triples, self.value)
        self.outcomes.append(error)
        self.done.set()
        return [len(self.value), crc32c(self.value)] if error is None else f"-ERR RDMA write failed: {error}"

    def release(self) -> None:
        self.gate.set()


class Background:
    """A call in a thread of its own; result() raises what it raised."""

    def __init__(self, call: Callable, *arguments: Any):
        self._outcome: Any = None
        self._error: Any = None
        self._thread = threading.Thread(target=self._run, args=(call, arguments))
        self._thread.start()

    def _run(self, call, arguments) -> None:
        try:
            self._outcome = call(*arguments)
        except BaseException as error:  # noqa: B902 - handed to the caller of result()
            self._error = error

    @property
    def running(self) -> bool:
        return self._thread.is_alive()

    def result(self, timeout: float = 60.0) -> Any:
        self._thread.join(timeout)
        assert not self._thread.is_alive(), "the call never returned"
        if self._error is not None:
            raise self._error
        return self._outcome

    def error(self, timeout: float = 60.0) -> Any:
        self._thread.join(timeout)
        assert not self._thread.is_alive(), "the call never returned"
        return self._error


@contextmanager
def connected(port: int, rdma=RdmaConfiguration(), **options):
    with Client.create(ClientConfiguration([NodeAddress("127.0.0.1", port)], rdma=rdma, **options)) as client:
        yield client
