"""Farlift: large values straight between a Valkey server and memory of this process.

    from farlift import Client, ClientConfiguration, NodeAddress, RdmaConfiguration

    config = ClientConfiguration([NodeAddress("127.0.0.1", 6379)], rdma=RdmaConfiguration())
    with Client.create(config) as client, client.register_rdma_region(bytearray(1 << 20)) as region:
        client.rdma_set("key", region.window(0, 4096))
        receipt = client.rdma_get("key", region.window())

The names are those of the published synchronous client where it has them. ``KvClient`` is the one-sided cache; see
``farlift.kv``.
"""
from .client import *  # noqa: F401,F403
from .client import __all__ as _client_names
from .config import *  # noqa: F401,F403
from .config import __all__ as _config_names
from .errors import *  # noqa: F401,F403
from .errors import __all__ as _error_names
from .kv import *  # noqa: F401,F403
from .kv import __all__ as _kv_names

__all__ = [*_client_names, *_config_names, *_error_names, *_kv_names]
