"""The options of the adapter, out of ``adapter_params`` of LMCache's ``--l2-adapter`` JSON."""
from dataclasses import dataclass
from typing import Any, Dict, List, Optional

from ..config import NodeAddress, RdmaProvider, ServerCredentials, TlsConfiguration
from ..kv import KvConfiguration, KvControl
from .interface import L2AdapterConfigBase

_PROVIDERS = {"soft": RdmaProvider.Soft, "tcp": RdmaProvider.Tcp, "efa_direct": RdmaProvider.EfaDirect,
              "verbs": RdmaProvider.Verbs}
_TLS_NAMES = ("ca_file", "certificate_file", "key_file", "server_name", "verify_peer")
# name, type, default, what it is
_OPTIONS = (
    ("valkey", (str, list), "127.0.0.1:6379", "HOST:PORT of the Valkey server; several, separated by commas or as a list"),
    ("control", str, "standalone", "what valkey names: standalone, cluster or sentinel"),
    ("sentinel_primary", str, "", "the primary's name, with sentinel"),
    ("username", str, "", "at Valkey"),
    ("password_file", str, "", "file with the password at Valkey on its first line"),
    ("database", int, 0, "number of the database at Valkey"),
    ("tls", (bool, dict), False, "true or {ca_file, certificate_file, key_file, server_name, verify_peer}: TLS to Valkey"),
    ("node_tls", (bool, dict), False, "the same for the control connections to data nodes"),
    ("tenant", str, "", "required; 1 to 64 of A-Z a-z 0-9 _ . -"),
    ("key_file", str, "", "the tenant's secrets; required unless development"),
    ("development", bool, False, "no secrets: nothing is signed, nothing is authenticated"),
    ("salt_tenants", dict, {}, "{cache_salt: {tenant, key_file}}: salts with a tenant of their own; puts are then pushed"),
    ("provider", str, "soft", "fabric: soft, tcp, efa_direct or verbs"),
    ("interfaces", list, [], "names of interfaces, one rail each; empty: one rail"),
    ("host_lane", bool, True, "soft only: shared memory when node and server share a host"),
    ("l1_not_lazy", bool, False, "the operator's word that L1 is allocated at once, where LMCache does not say so"),
    ("max_capacity_gb", (int, float), 0, "GiB this server may store before LMCache evicts; 0: LMCache evicts nothing"),
    ("lease_ms", int, 10_000, "ms; longest age of a cached descriptor"),
    ("operation_limit_ms", int, 5_000, "ms; of one read (T_op), 1 to 60000"),
    ("control_timeout_ms", int, 1_000, "ms; of one request to Valkey"),
    ("queue_limit_ms", int, 5_000, "ms; a task that waited longer is failed without being started"),
    ("reader_lease_ms", int, 0, "ms; a lookup asks nodes to keep what it found readable that long"),
    ("cache_entries_max", int, 65_536, "descriptors kept"),
    ("in_flight_max", int, 64, "reads posted on one link and rail at once"),
    ("hash_threads", int, 0, "threads that compute checksums beside the calling one"),
    ("spin_us", int, 50, "us; poll that long before sleeping"),
    ("store_threads", int, 1, "store tasks at once, 1 to 64"),
    ("lookup_threads", int, 1, "lookup tasks at once, 1 to 64"),
    ("load_threads", int, 2, "load tasks at once, 1 to 64"),
    ("tracked_keys_max", int, 1_000_000, "keys kept for usage and listing"),
)
_FABRIC = ("lease_ms", "operation_limit_ms", "control_timeout_ms", "reader_lease_ms", "cache_entries_max", "in_flight_max",
           "hash_threads", "spin_us", "host_lane")
_RANGES = {"operation_limit_ms": (1, 60_000), "control_timeout_ms": (1, 60_000), "queue_limit_ms": (0, 60_000),
           "store_threads": (1, 64), "lookup_threads": (1, 64), "load_threads": (1, 64),
           "tracked_keys_max": (1, 1 << 28), "max_capacity_gb": (0, 1 << 40)}


@dataclass(frozen=True)
class SaltTenant:
    """A tenant that one cache_salt has for itself."""

    tenant: str
    key_file: str


def _fits(value: Any, wanted: Any) -> bool:
    kinds = wanted if isinstance(wanted, tuple) else (wanted,)
    if isinstance(value, bool):
        return bool in kinds
    return isinstance(value, kinds)


class OkvL2AdapterConfig(L2AdapterConfigBase):
    """Every option of ``_OPTIONS`` as an attribute. ValueError: an unknown name, a wrong type, out of range."""

    def __init__(self, params: Optional[Dict[str, Any]] = None):
        params = dict(params or {})
        params.pop("type", None)
        names = [name for name, _, _, _ in _OPTIONS]
        unknown = sorted(set(params) - set(names))
        if unknown:
            raise ValueError(f"unknown option {', '.join(map(repr, unknown))}; known are {', '.join(names)}")
        for name, kind, default, _ in _OPTIONS:
            value = params.get(name, default)
            if not _fits(value, kind):
                raise ValueError(f"{name} must not be {value!r}")
            least, greatest = _RANGES.get(name, (None, None))
            if least is not None and not least <= value <= greatest:
                raise ValueError(f"{name} must be from {least} to {greatest}")
            setattr(self, name, value)
        if not self.tenant:
            raise ValueError("tenant is required")
        if self.provider not in _PROVIDERS:
            raise ValueError(f"provider must be one of {', '.join(_PROVIDERS)}")
        if self.control not in [one.value for one in KvControl]:
            raise ValueError("control must be standalone, cluster or sentinel")
        self.salts = self._salt_tenants()
        self.addresses = _addresses(self.valkey)
        self.kv_configuration(None)  # what is wrong is said before the server runs

    @classmethod
    def from_dict(cls, d: Dict[str, Any]) -> "OkvL2AdapterConfig":
        return cls(d)

    @classmethod
    def help(cls) -> str:
        lines = [f"- {name} (default {default!r}): {what}" for name, _, default, what in _OPTIONS]
        return "Farlift L2 adapter, adapter_params:\n" + "\n".join(lines)

    @property
    def push(self) -> bool:
        """Several tenants share L1: no domain may let its peers read it, so this side writes."""
        return bool(self.salts)

    def kv_configuration(self, salt: Optional[str]) -> KvConfiguration:
        """Of the client that serves this salt; None: of all the others."""
        own = self.salts.get(salt) if salt is not None else None
        options: Dict[str, Any] = {name: getattr(self, name) for name in _FABRIC}
        for name, prefix in (("tls", "tls"), ("node_tls", "node_tls")):
            told = getattr(self, name)
            options["use_tls" if name == "tls" else "node_use_tls"] = bool(told)
            options[prefix] = _tls(name, told) if isinstance(told, dict) else None
        try:
            return KvConfiguration(
                self.addresses, tenant=own.tenant if own else self.tenant, key_file=own.key_file if own else self.key_file,
                development=self.development and own is None, control=KvControl(self.control),
                sentinel_primary=self.sentinel_primary, credentials=self._credentials(), database_id=self.database,
                provider=_PROVIDERS[self.provider](), interfaces=list(self.interfaces), register_on_demand=False, **options)
        except TypeError as error:
            raise ValueError(str(error)) from error

    def _credentials(self) -> Optional[ServerCredentials]:
        if not self.password_file:
            if self.username:
                raise ValueError("username needs password_file")
            return None
        try:
            with open(self.password_file, encoding="utf-8") as file:
                password = file.readline().rstrip("\r\n")
        except OSError as error:
            raise ValueError(f"password_file cannot be read: {error.strerror}") from error
        return ServerCredentials(password=password, username=self.username or None)

    def _salt_tenants(self) -> Dict[str, SaltTenant]:
        out: Dict[str, SaltTenant] = {}
        for salt, told in self.salt_tenants.items():
            if not salt or not isinstance(told, dict) or set(told) != {"tenant", "key_file"} \
                    or not all(isinstance(value, str) and value for value in told.values()):
                raise ValueError("salt_tenants must map a salt to {\"tenant\": NAME, \"key_file\": FILE}")
            out[salt] = SaltTenant(**told)
        names = [one.tenant for one in out.values()] + [self.tenant]
        if len(set(names)) != len(names):
            raise ValueError("salt_tenants: each salt needs a tenant of its own, and another than the default one")
        if out and self.provider == "tcp":
            raise ValueError("salt_tenants needs a provider that takes back write grants; tcp cannot")
        return out


def _addresses(told: Any) -> List[NodeAddress]:
    words = told.split(",") if isinstance(told, str) else told
    out = []
    for word in words:
        host, colon, port = word.strip().rpartition(":") if isinstance(word, str) else ("", "", "")
        if not colon or not host or not port.isdigit() or not 0 < int(port) < 65536:
            raise ValueError(f"valkey: {word!r} is not HOST:PORT")
        out.append(NodeAddress(host.strip("[]"), int(port)))
    if not out:
        raise ValueError("valkey must name a server")
    return out


def _tls(name: str, told: Dict[str, Any]) -> TlsConfiguration:
    unknown = sorted(set(told) - set(_TLS_NAMES))
    if unknown:
        raise ValueError(f"{name}: unknown {', '.join(unknown)}; known are {', '.join(_TLS_NAMES)}")
    return TlsConfiguration(**told)
