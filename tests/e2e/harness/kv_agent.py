"""A client of the one-sided cache in a process of its own, which does what it is told.

    python3 -m harness.kv_agent OPTIONS        JSON: host, port, key_file, provider

Reads one JSON object a line from stdin and answers with one: {"do": "put", "key", "seed", "size"}, {"do": "get", "key",
"seed", "size"}, {"do": "exists", "key"}, {"do": "count", "name"}. A get says whether the bytes are those of the seed; it
reads into memory that it watches afterwards: "late" in a later answer says that bytes came after a read was reported."""
import json
import sys
import time

from .pattern import SENTINEL, pattern

from farlift import NodeAddress, RdmaProvider
from farlift.kv import KvClient, KvConfiguration, KvPutMode, KvReadMode

ROOM = 8 << 20


class Agent:
    def __init__(self, told):
        provider = RdmaProvider.Tcp() if told["provider"] == "tcp" else RdmaProvider.Soft()
        self.client = KvClient(KvConfiguration(
            valkey=[NodeAddress(told["host"], told["port"])], tenant="t1", key_file=told["key_file"], provider=provider,
            host_lane=False, lease_ms=2000, operation_limit_ms=2000))
        self.landing = bytearray(ROOM)
        self.source = bytearray(ROOM)
        self.memory = [self.client.register_memory(self.landing), self.client.register_memory(self.source)]
        self.quiet = None  # of a failed read: what its memory held when it was reported

    def moved_since(self):
        return self.quiet is not None and bytes(self.landing) != self.quiet

    def put(self, told):
        size = told["size"]
        self.source[:size] = pattern(size, seed=told["seed"])
        result = self.client.put(told["key"], memoryview(self.source)[:size], KvPutMode.REPLACE)
        return {"status": result.status.name}

    def get(self, told):
        size = told["size"]
        self.landing[:] = bytes([SENTINEL]) * ROOM
        self.quiet = None
        result = self.client.get(told["key"], memoryview(self.landing)[:size], KvReadMode.FRAMED)
        if not result.ok:
            self.quiet = bytes(self.landing)
        return {"status": result.status.name, "right": bytes(self.landing[:size]) == pattern(size, seed=told["seed"])}

    def exists(self, told):
        return {"there": self.client.exists(told["key"])}

    def count(self, told):
        return {"count": dict(self.client.statistics())[told["name"]]}


def main() -> int:
    agent = Agent(json.loads(sys.argv[1]))
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        told = json.loads(line)
        late = agent.moved_since()
        start = time.monotonic()
        answer = getattr(agent, told["do"])(told)
        print(json.dumps({**answer, "seconds": time.monotonic() - start, "late": late}), flush=True)
    agent.client.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
