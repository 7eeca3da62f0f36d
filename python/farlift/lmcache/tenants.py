"""The clients behind an adapter: one for the default tenant, one for each salt that has a tenant of its own; each has the
whole L1 arena registered once, for landing only where several tenants share it.

Threads: any. Errors: those of KvClient at construction; afterwards statuses.
"""
import time
from typing import Any, Callable, Dict, Iterator, List, Sequence, Tuple

from ..kv import KvClient, KvGet, KvMemory, KvPut, KvPutMode, KvReadMode, KvResult, KvStatus
from .config import OkvL2AdapterConfig
from .keys import key_bytes, salt_of

_BAD_KEY = KvResult(KvStatus.BAD_ARG, text="the key is longer than 1024 bytes")
_OUTSIDE = KvResult(KvStatus.BAD_ARG, text="the object does not lie in the registered L1 arena")
_LATE = KvResult(KvStatus.TIMEOUT)


class Tenants:
    def __init__(self, config: OkvL2AdapterConfig, address: int, size: int):
        self._address, self._size = address, size
        self._push = config.push
        self.budget_s = (2 * config.operation_limit_ms + config.control_timeout_ms) / 1000  # of one task
        self._clients: Dict[Any, Tuple[KvClient, KvMemory]] = {}
        try:
            for salt in [None, *config.salts]:
                client = KvClient(config.kv_configuration(salt))
                self._clients[salt] = (client, None)
                self._clients[salt] = (client, client.register_address(address, size))
        except BaseException:
            self.close()
            self.release()
            raise

    def load(self, keys: Sequence[Any], objects: Sequence[Any]) -> List[KvResult]:
        """Each value straight into its object."""
        def request(key: bytes, window: Any) -> KvGet:
            return KvGet(key, window, KvReadMode.PAYLOAD_ONLY)
        return self._move(keys, objects, request, lambda client, requests: client.mget(requests))

    def store(self, keys: Sequence[Any], objects: Sequence[Any]) -> List[KvResult]:
        """Each object's bytes, unless the key has a value."""
        def request(key: bytes, window: Any) -> KvPut:
            return KvPut(key, window, KvPutMode.IF_ABSENT, push=self._push)
        return self._move(keys, objects, request, lambda client, requests: client.mput(requests))

    def exists(self, keys: Sequence[Any]) -> List[bool]:
        out = [False] * len(keys)
        for (client, _), places in self._by_client(keys):
            texts = [key_bytes(keys[i]) for i in places]
            asked = [i for i, text in zip(places, texts) if text is not None]
            for i, found in zip(asked, client.exists([text for text in texts if text is not None])):
                out[i] = found
        return out

    def delete(self, keys: Sequence[Any]) -> List[KvResult]:
        """One after the other, until the time of one task is over."""
        out, deadline = [_LATE] * len(keys), time.monotonic() + self.budget_s
        for (client, _), places in self._by_client(keys):
            for i in places:
                text = key_bytes(keys[i])
                if text is None:
                    out[i] = _BAD_KEY
                elif time.monotonic() < deadline:
                    out[i] = client.delete(text)
        return out

    def statistics(self) -> Dict[str, int]:
        """Counters of all clients, added up."""
        out: Dict[str, int] = {}
        for client, _ in list(self._clients.values()):
            for name, value in client.statistics.items():
                out[name] = out.get(name, 0) + value
        return out

    def close(self) -> None:
        """Endpoints and registrations: when this has returned, nothing touches L1 any more. Calls end as TIMEOUT."""
        for client, _ in self._clients.values():
            client.close()

    def release(self) -> None:
        """After close(), when no call is under way: the clients themselves go, with their descriptors."""
        for _, memory in self._clients.values():
            if memory is not None:
                memory.close()
        self._clients = {}

    def _by_client(self, keys: Sequence[Any]) -> Iterator[Tuple[Tuple[KvClient, KvMemory], List[int]]]:
        if len(self._clients) == 1:
            yield self._clients[None], list(range(len(keys)))
            return
        places: Dict[Any, List[int]] = {}
        for i, key in enumerate(keys):
            salt = salt_of(key)
            places.setdefault(salt if salt and salt in self._clients else None, []).append(i)
        for salt, of_salt in places.items():
            yield self._clients[salt], of_salt

    def _move(self, keys: Sequence[Any], objects: Sequence[Any], request: Callable[[bytes, Any], Any],
              call: Callable[[KvClient, List[Any]], List[KvResult]]) -> List[KvResult]:
        out, deadline = [_LATE] * len(keys), time.monotonic() + self.budget_s
        for (client, memory), places in self._by_client(keys):
            if time.monotonic() > deadline:  # of several tenants one took it all
                break
            requests, asked = [], []
            for i in places:
                text, offset, length = key_bytes(keys[i]), objects[i].data_ptr - self._address, objects[i].get_size()
                if text is None:
                    out[i] = _BAD_KEY
                elif offset < 0 or length < 0 or offset + length > self._size:
                    out[i] = _OUTSIDE
                else:
                    requests.append(request(text, memory.window(offset, length)))
                    asked.append(i)
            for i, result in zip(asked, call(client, requests) if requests else []):
                out[i] = result
        return out
