"""Tests of the Python package; the harness is that of tests/e2e."""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "e2e"))

import pytest  # noqa: E402
from harness.fixtures import *  # noqa: E402,F401,F403
from harness.fixtures import _shared  # noqa: E402,F401
from harness.peer import LANES  # noqa: E402

import farlift  # noqa: E402
from farlift import Client, ClientConfiguration, NodeAddress, RdmaConfiguration, RdmaProvider  # noqa: E402

PROVIDERS = {
    "soft-host": RdmaConfiguration(RdmaProvider.Soft()),
    "soft-remote": RdmaConfiguration(RdmaProvider.Soft(), host_lane=False),
    "tcp": RdmaConfiguration(RdmaProvider.Tcp(), interface="lo"),
}


@pytest.fixture(params=list(PROVIDERS))
def any_rdma(request) -> RdmaConfiguration:
    """Every provider a machine without a card has."""
    return PROVIDERS[request.param]


@pytest.fixture
def make_client():
    """make_client(server, rdma=..., **configuration): a client that is closed after the test."""
    clients = []

    def make(server, rdma=RdmaConfiguration(), **options) -> Client:
        port = getattr(server, "port", server)
        config = ClientConfiguration([NodeAddress("127.0.0.1", port)], rdma=rdma, **options)
        client = Client.create(config)
        clients.append(client)
        return client

    yield make
    for client in clients:
        client.close()


@pytest.fixture
def client(make_client, server) -> Client:
    """A client of the shared server on the default provider."""
    return make_client(server)


@pytest.fixture
def fake_domain():
    """The fabric of scripted servers."""
    return LANES["soft-host"].domain
