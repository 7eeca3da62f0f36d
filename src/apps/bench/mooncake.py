"""The Mooncake rows of `farlift bench kv`: one process that lends the memory, and one that reads and writes it.

    python -c THIS store|client PARENT_PORT MASTER_PORT LARGEST

Both connect to the parent and say "ready". The client then takes a command a line and answers a line: `prepare SIZE`,
`get SECONDS`, `put SECONDS` (microseconds of each transfer), `check`; "error TEXT" is the other answer to all of them.
Values lie in memory registered with the engine; get_into and upsert_from are the calls without a copy in Python.
"""
import ctypes
import mmap
import os
import socket
import sys
import time

SEGMENT = 2 << 30
OPS_MIN = 3
KEY = "bench"


def open_store(role, master, largest):
    from mooncake.store import MooncakeDistributedStore
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    store = MooncakeDistributedStore()
    segment = SEGMENT if role == "store" else 0
    code = store.setup(f"127.0.0.1:{port}", "P2PHANDSHAKE", segment, max(largest, 64 << 20), "tcp", "",
                       f"127.0.0.1:{master}")
    if code != 0:
        raise RuntimeError(f"setup answered {code}")
    return store


class Client:
    def __init__(self, store, largest):
        self.store, self.largest, self.size = store, largest, 0
        self.memory = mmap.mmap(-1, 2 * largest)
        self.source = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))
        self.landing = self.source + largest
        if (code := store.register_buffer(self.source, 2 * largest)) != 0:
            raise RuntimeError(f"register_buffer answered {code}")

    def prepare(self, size):
        self.size = int(size)
        block = os.urandom(min(self.size, 1 << 20))
        for at in range(0, self.size, len(block)):
            now = min(len(block), self.size - at)
            self.memory[at:at + now] = block[:now]
        self.memory[self.largest:self.largest + self.size] = b"\x01" * self.size
        self.put_once()
        self.get_once()
        return self.check()

    def get_once(self):
        if (got := self.store.get_into(KEY, self.landing, self.size)) != self.size:
            raise RuntimeError(f"get_into answered {got}")

    def put_once(self):
        if (code := self.store.upsert_from(KEY, self.source, self.size)) != 0:
            raise RuntimeError(f"upsert_from answered {code}")

    def check(self):
        if self.memory[:self.size] != self.memory[self.largest:self.largest + self.size]:
            raise RuntimeError("what landed is not what was put")
        return "ok"

    @staticmethod
    def repeat(once, seconds):
        times, last = [], time.perf_counter()
        end = last + float(seconds)
        while last < end or len(times) < OPS_MIN:
            once()
            now = time.perf_counter()
            times.append(now - last)
            last = now
        return " ".join(f"{one * 1e6:.1f}" for one in times)

    def serve(self, line):
        word, *rest = line.split()
        if word == "prepare":
            return self.prepare(*rest)
        if word == "check":
            return self.check()
        return self.repeat(self.get_once if word == "get" else self.put_once, *rest)


def main(role, parent, master, largest):
    with socket.create_connection(("127.0.0.1", int(parent))) as link:
        talk = link.makefile("rw")

        def say(text):
            talk.write(text.replace("\n", " ") + "\n")
            talk.flush()

        try:
            store = open_store(role, int(master), int(largest))
            client = Client(store, int(largest)) if role == "client" else None
        except Exception as error:  # told to the parent, whatever it is
            return say(f"error {error}")
        say("ready")
        for line in talk:
            try:
                say(client.serve(line))
            except Exception as error:
                say(f"error {error}")
        store.close()


main(*sys.argv[1:])
os._exit(0)  # its threads do not all end by themselves
