"""A CPU tensor of PyTorch as registered memory. Runs under ./test --full, which installs torch."""
import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "e2e"))
from harness.pattern import pattern  # noqa: E402
from harness.server import SMALL, Server  # noqa: E402

sys.path.insert(0, os.environ.get("FARLIFT_PYTHONPATH", ""))
torch = pytest.importorskip("torch", reason="torch is not installed; ./test --full installs it")


def test_tensor_there_and_back():
    from farlift import Client, ClientConfiguration, NodeAddress, RdmaConfiguration
    source = torch.frombuffer(bytearray(pattern(1 << 20)), dtype=torch.uint8).clone()
    target = torch.zeros(1 << 18, dtype=torch.float32)
    with Server({}, SMALL) as server:
        config = ClientConfiguration([NodeAddress("127.0.0.1", server.port)], rdma=RdmaConfiguration())
        with Client.create(config) as client, client.register_rdma_region(source.numpy()) as a, \
                client.register_rdma_region(target.numpy()) as b:
            client.rdma_set("tensor", a.window())
            receipt = client.rdma_get("tensor", b.window())
            assert receipt.bytes_written == 1 << 20
    assert torch.equal(target.view(torch.uint8), source)
