"""A peer whose endpoint moves only when the test says so, to stop a transfer half way."""
import select
import time

from .peer import Peer
from .resp import Connection


class SlowPeer(Peer):
    """On soft nothing lands in or leaves its regions except inside step() and finish(). On libfabric's wire the domain
    has a thread of its own and step() only waits: there a transfer is merely watched while it runs."""

    def __init__(self, server, lane, resp: int = 2, timeout: float = 120.0):
        super().__init__(server, lane, resp=resp, timeout=timeout, own_thread=False)

    def step(self, timeout_ms: int = 1) -> None:
        self.target.progress(timeout_ms)

    def step_until(self, reached, timeout: float = 60.0) -> None:
        """Progress until reached() holds; fails when the reply comes first or the time is up."""
        deadline = time.monotonic() + timeout
        while not reached():
            assert not readable(self.connection), f"reply before the condition: {self.connection.read()!r}"
            assert time.monotonic() < deadline, "the transfer did not get that far"
            self.step()

    def finish(self, timeout: float = 60.0):
        """Progress until the reply is there."""
        deadline = time.monotonic() + timeout
        while not readable(self.connection):
            assert time.monotonic() < deadline, "no reply"
            self.step()
        return self.connection.read()


def readable(connection: Connection, timeout: float = 0.0) -> bool:
    return bool(connection._buffer) or bool(select.select([connection.sock], [], [], timeout)[0])
