"""Where the server is, how to speak to it, and whether large values travel by RDMA. Plain values, no I/O."""
from dataclasses import dataclass, field
from enum import Enum
from typing import List, Optional, Union

__all__ = ["NodeAddress", "ServerCredentials", "ReadFrom", "ProtocolVersion", "NodeDiscoveryMode", "CompressionConfiguration",
           "TlsConfiguration", "RdmaProvider", "RdmaConfiguration", "RdmaSetChecksum", "ClientConfiguration",
           "ClusterClientConfiguration"]


@dataclass(frozen=True)
class NodeAddress:
    """Host name or numeric address, and TCP port."""

    host: str = "localhost"
    port: int = 6379


@dataclass(frozen=True)
class ServerCredentials:
    """Password, and user name where it is not the default user."""

    password: str
    username: Optional[str] = None

    def __repr__(self) -> str:
        return f"ServerCredentials(password=..., username={self.username!r})"


class ReadFrom(Enum):
    """Accepted for compatibility: reads, and transfers in particular, always go to the primary."""

    PRIMARY = "primary"
    PREFER_REPLICA = "prefer_replica"
    AZ_AFFINITY = "az_affinity"
    AZ_AFFINITY_REPLICAS_AND_PRIMARY = "az_affinity_replicas_and_primary"


class ProtocolVersion(Enum):
    """RESP version spoken with the server."""

    RESP2 = 2
    RESP3 = 3


class NodeDiscoveryMode(Enum):
    """STATIC cannot be combined with ``rdma``."""

    STANDARD = "standard"
    STATIC = "static"


@dataclass(frozen=True)
class CompressionConfiguration:
    """Compression of values. Not offered: enabling it is refused by name rather than ignored."""

    enabled: bool = False


@dataclass(frozen=True)
class TlsConfiguration:
    """TLS on the RESP connection. It protects control data only: bytes on the fabric are not encrypted.

    ca_file: PEM file of the authorities to trust; the system's when absent.
    certificate_file, key_file: PEM files for mutual TLS.
    server_name: name to verify instead of the host's.
    verify_peer: False accepts any certificate.
    """

    ca_file: str = ""
    certificate_file: str = ""
    key_file: str = ""
    server_name: str = ""
    verify_peer: bool = True


class RdmaProvider:
    """Which fabric carries the bytes. Pass an instance of one of these to ``RdmaConfiguration``."""

    @dataclass(frozen=True)
    class Soft:
        """Ours, for hosts without a card. Needs nothing installed. The default."""

    @dataclass(frozen=True)
    class Tcp:
        """libfabric's tcp provider (the published emulation), for development and for peers that speak it."""

    @dataclass(frozen=True)
    class EfaDirect:
        """AWS Elastic Fabric Adapter through libfabric 2.4 or newer, below 3."""

    @dataclass(frozen=True)
    class Verbs:
        """InfiniBand or RoCE through libfabric."""


_PROVIDERS = {RdmaProvider.Soft: "soft", RdmaProvider.Tcp: "tcp", RdmaProvider.EfaDirect: "efa_direct",
              RdmaProvider.Verbs: "verbs"}

AnyProvider = Union[RdmaProvider.Soft, RdmaProvider.Tcp, RdmaProvider.EfaDirect, RdmaProvider.Verbs]


@dataclass(frozen=True)
class RdmaConfiguration:
    """Turns transfers on. Opening the fabric is local and happens when the client is created.

    provider: an ``RdmaProvider``.
    interface: network interface or card, such as ``"eth0"``; None chooses the one that reaches the server (soft, tcp) or
        the first card.
    connections: how many transfers may run at once, 1 to 1024. With 1 transfers share the connection of ordinary commands;
        with more they have that many connections of their own, and every one of them uses the same registrations.
    verify: compare the CRC-32C of what landed with the server's. False makes receipts unverified; for measurements only.
    spin_us: soft only, microseconds (0 to 10000) to poll before sleeping while a reply is awaited; on a machine with
        more than one core, and while it pays.
    host_lane: soft only. False: bytes take the network lane even when client and server share a host.

    Raises TypeError or ValueError for values out of range.
    """

    provider: AnyProvider = field(default_factory=RdmaProvider.Soft)
    interface: Optional[str] = None
    connections: int = 1
    verify: bool = True
    spin_us: int = 100
    host_lane: bool = True

    def __post_init__(self) -> None:
        if type(self.provider) not in _PROVIDERS:
            raise TypeError("provider must be RdmaProvider.Soft(), Tcp(), EfaDirect() or Verbs(), "
                            f"not {self.provider!r}")
        if self.interface is not None and not isinstance(self.interface, str):
            raise TypeError("interface must be a string or None")
        if not isinstance(self.connections, int) or not 1 <= self.connections <= 1024:
            raise ValueError("connections must be a number from 1 to 1024")
        if not isinstance(self.spin_us, int) or not 0 <= self.spin_us <= 10_000:
            raise ValueError("spin_us must be a number from 0 to 10000")

    @property
    def provider_name(self) -> str:
        """"soft", "tcp", "efa_direct" or "verbs"."""
        return _PROVIDERS[type(self.provider)]


class RdmaSetChecksum:
    """Whether ``rdma_set`` lets the server compare what it read with a CRC-32C; it stores nothing on a difference."""

    @dataclass(frozen=True)
    class Skip:
        """Send none."""

    @dataclass(frozen=True)
    class Compute:
        """Compute it over the window before sending; reads every byte once."""

    @dataclass(frozen=True)
    class Known:
        """Send this one. value: 0 to 2**32 - 1."""

        value: int


@dataclass
class ClientConfiguration:
    """A standalone server.

    addresses: the server; the first one that accepts is used.
    use_tls: speak TLS; ``tls`` has the details.
    credentials: password and user.
    read_from: accepted, see ``ReadFrom``.
    request_timeout: milliseconds for ordinary commands, 0 for none, None for the default of 5000. A transfer has none.
    connection_timeout: milliseconds to connect, None for the default of 2000.
    client_name, database_id: as CLIENT SETNAME and SELECT.
    protocol: RESP version.
    unix_path: a socket file instead of addresses.
    rdma: None means that nothing is loaded for RDMA and transfers are refused.
    lazy_connect, read_only, node_discovery_mode, compression, asynchronous, client_pool: cannot be combined with ``rdma``;
        creation then raises ConfigurationError naming both.
    """

    addresses: List[NodeAddress] = field(default_factory=lambda: [NodeAddress()])
    use_tls: bool = False
    credentials: Optional[ServerCredentials] = None
    read_from: ReadFrom = ReadFrom.PRIMARY
    request_timeout: Optional[int] = None
    connection_timeout: Optional[int] = None
    client_name: Optional[str] = None
    database_id: Optional[int] = None
    protocol: ProtocolVersion = ProtocolVersion.RESP3
    tls: Optional[TlsConfiguration] = None
    unix_path: Optional[str] = None
    rdma: Optional[RdmaConfiguration] = None
    lazy_connect: bool = False
    read_only: bool = False
    node_discovery_mode: NodeDiscoveryMode = NodeDiscoveryMode.STANDARD
    compression: Optional[CompressionConfiguration] = None
    asynchronous: bool = False
    client_pool: bool = False

    _cluster = False

    def _options(self) -> dict:
        """The fields of the C++ options, by name."""
        tls = self.tls or TlsConfiguration()
        out = {
            "addresses": [(address.host, address.port) for address in self.addresses],
            "unix_path": self.unix_path or "",
            "cluster": self._cluster,
            "tls": self.use_tls,
            "tls_ca_file": tls.ca_file,
            "tls_certificate_file": tls.certificate_file,
            "tls_key_file": tls.key_file,
            "tls_server_name": tls.server_name,
            "tls_verify_peer": tls.verify_peer,
            "username": (self.credentials.username or "") if self.credentials else "",
            "password": self.credentials.password if self.credentials else "",
            "database": self.database_id or 0,
            "resp_version": self.protocol.value,
            "client_name": self.client_name or "",
            "connect_timeout_ms": 2000 if self.connection_timeout is None else self.connection_timeout,
            "request_timeout_ms": 5000 if self.request_timeout is None else self.request_timeout,
            "read_from": self.read_from.value,
            "compression": bool(self.compression and self.compression.enabled),
            "lazy_connect": bool(self.lazy_connect),
            "read_only": bool(self.read_only),
            "static_discovery": self.node_discovery_mode is NodeDiscoveryMode.STATIC,
            "asynchronous": bool(self.asynchronous),
            "client_pool": bool(self.client_pool),
        }
        if self.rdma is not None:
            if not isinstance(self.rdma, RdmaConfiguration):
                raise TypeError("rdma must be an RdmaConfiguration or None")
            out["rdma"] = (self.rdma.provider_name, self.rdma.interface or "", self.rdma.connections, self.rdma.verify,
                           self.rdma.spin_us, self.rdma.host_lane)
        return out


@dataclass
class ClusterClientConfiguration(ClientConfiguration):
    """A cluster: ``addresses`` are seeds, the other nodes are discovered."""

    _cluster = True
