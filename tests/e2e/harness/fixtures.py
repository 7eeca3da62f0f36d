"""Fixtures shared by the test folders; each conftest.py imports them all.

One small server is shared by all tests that need no special configuration.
"""
import pytest

from .peer import LANES, Lane, Peer
from .rounds import rounds  # noqa: F401
from .server import SMALL, Server


def pytest_addoption(parser):
    try:
        parser.addoption("--long", action="store_true", help="full numbers of kills, repeats and fuzz steps")
    except ValueError:
        pass  # another conftest of the same run has added it


# A test of the long run may take this long; pyproject.toml bounds the ordinary ones.
LONG_TEST_S = 1800


def pytest_collection_modifyitems(config, items):
    if config.getoption("--long"):
        for item in items:
            item.add_marker(pytest.mark.timeout(LONG_TEST_S))


@pytest.fixture(scope="session")
def long_run(request) -> bool:
    return bool(request.config.getoption("--long"))


@pytest.fixture(scope="session")
def _shared():
    servers = {}
    yield servers
    for server in servers.values():
        server.close()


@pytest.fixture
def server(_shared) -> Server:
    """The shared server, empty, as configured at its start. A test that kills it loses only its own."""
    one = _shared.get("server")
    if one is None or not one.alive():
        one = _shared["server"] = Server({}, SMALL)
    one.ok("FLUSHALL")
    yield one
    one.forget_connections()
    assert one.alive(), f"the server died:\n{one.log()[-6000:]}"
    assert one.ok("PING") == "PONG"


SOFT_LANES = ["soft-host", "soft-remote", "soft-virtual"]


BIG = {"segment-size": "384mb", "max-object-size": "300mb", "chunk-size": "8mb", "fabric-interfaces": "lo"}


@pytest.fixture
def big_server(_shared) -> Server:
    """A server for values of up to 300 MiB; started by the first test that wants one."""
    one = _shared.get("big")
    if one is None or not one.alive():
        one = _shared["big"] = Server({}, BIG)
    one.ok("FLUSHALL")
    yield one
    one.forget_connections()
    assert one.alive(), f"the server died:\n{one.log()[-6000:]}"
    one.ok("FLUSHALL")


@pytest.fixture(params=SOFT_LANES + ["emulated"])
def any_lane(request) -> Lane:
    """Every lane, for the cases in which bytes travel."""
    return LANES[request.param]


@pytest.fixture
def lane() -> Lane:
    """The lane that a client on the same host gets by default."""
    return LANES["soft-host"]


@pytest.fixture
def make_peer(server):
    """make_peer(lane, server=..., resp=2, hello=True): a peer that is closed after the test."""
    peers = []

    def make(lane: Lane, on: Server = server, **options) -> Peer:
        peer = Peer(on, lane, **options)
        peers.append(peer)
        return peer

    yield make
    for peer in peers:
        peer.close()


@pytest.fixture
def bound(make_peer, lane) -> Peer:
    """A bound connection on the default lane: the "B" of the cases."""
    return make_peer(lane)
