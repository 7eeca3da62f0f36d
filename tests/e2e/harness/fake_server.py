"""A scripted RESP server with a fabric initiator of its own: what a real server would never do can be tried on a client."""
import socket
import threading
from typing import Any, Callable, Dict, List, Optional

from .resp import Disconnected


def encode_reply(value: Any) -> bytes:
    """str: status (or an error when it starts with '-'); bytes: bulk; int; None; bool; list; dict; Raw: as it is."""
    if isinstance(value, Raw):
        return value.data
    if value is None:
        return b"$-1\r\n"
    if isinstance(value, bool):
        return b"#t\r\n" if value else b"#f\r\n"
    if isinstance(value, int):
        return b":%d\r\n" % value
    if isinstance(value, str):
        return (value if value.startswith("-") else "+" + value).encode() + b"\r\n"
    if isinstance(value, (bytes, bytearray)):
        return b"$%d\r\n" % len(value) + bytes(value) + b"\r\n"
    if isinstance(value, dict):
        return b"%%%d\r\n" % len(value) + b"".join(encode_reply(k) + encode_reply(v) for k, v in value.items())
    return b"*%d\r\n" % len(value) + b"".join(encode_reply(item) for item in value)


class Raw:
    """Bytes to be sent as they are."""

    def __init__(self, data: bytes):
        self.data = data


class Cut(Exception):
    """Raised by a handler: the connection is closed without a reply."""


class FakeConnection:
    """One accepted connection; runs in a thread of its own, which also owns its initiator."""

    def __init__(self, server: "FakeServer", sock: socket.socket, number: int):
        self.server, self.sock, self.number = server, sock, number
        self.words: List[bytes] = []
        self.ended = threading.Event()
        self.peer_address: Optional[bytes] = None
        self._initiator = None
        self._buffer = bytearray()
        self.queued: Optional[List[List[bytes]]] = None
        threading.Thread(target=self._run, daemon=True).start()

    def _read_line(self) -> bytes:
        while b"\r\n" not in self._buffer:
            chunk = self.sock.recv(65536)
            if not chunk:
                raise Disconnected()
            self._buffer += chunk
        line, _, rest = bytes(self._buffer).partition(b"\r\n")
        self._buffer = bytearray(rest)
        return line

    def _read_command(self) -> List[bytes]:
        count = int(self._read_line()[1:])
        words = []
        for _ in range(count):
            length = int(self._read_line()[1:])
            while len(self._buffer) < length + 2:
                chunk = self.sock.recv(1 << 20)
                if not chunk:
                    raise Disconnected()
                self._buffer += chunk
            words.append(bytes(self._buffer[:length]))
            del self._buffer[:length + 2]
        return words

    def _run(self) -> None:
        try:
            while True:
                words = self._read_command()
                self.server._note(self, words)
                self.sock.sendall(encode_reply(self.server._answer(self, words)))
        except (Disconnected, ConnectionError, OSError, Cut):
            pass
        finally:
            if self._initiator is not None:
                self._initiator.close()
            self.sock.close()
            self.ended.set()

    # for handlers: the fabric

    def initiator(self):
        if self._initiator is None:
            self._initiator = self.server.domain.open_initiator(connect_deadline_ms=2000)
        return self._initiator

    def transfer(self, kind: str, key: int, addr: int, memory: Any) -> Optional[str]:
        """One operation on the client's memory; None for success, else the error's text."""
        initiator = self.initiator()
        peer = initiator.add_peer(self.peer_address)
        wanted = initiator.post(kind, peer, key, addr, memory)
        while True:
            for context, error in initiator.poll():
                if context == wanted:
                    return None if error is None else error[0]
            initiator.wait(1000)

    def write_value(self, triples: List[tuple], value: bytes) -> Optional[str]:
        """As RDMA_GET would: the value into the ranges, in order."""
        at = 0
        for key, addr, length in triples:
            piece = value[at:at + length]
            if piece:
                error = self.transfer("write", key, addr, piece)
                if error is not None:
                    return error
            at += length
        return None


def triples_of(words: List[bytes]) -> List[tuple]:
    """The ranges of a RDMA_GET (words[2:])."""
    numbers = [int(word) for word in words]
    return [tuple(numbers[i:i + 3]) for i in range(0, len(numbers), 3)]


Handler = Callable[[FakeConnection, List[bytes]], Any]


class FakeServer:
    """Answers handshakes by itself; `handlers` maps an upper-case command name to what answers it."""

    def __init__(self, domain, handlers: Optional[Dict[str, Handler]] = None):
        self.domain = domain
        self.handlers = dict(handlers or {})
        self.commands: List[List[bytes]] = []
        self.connections: List[FakeConnection] = []
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._lock:
                self.connections.append(FakeConnection(self, sock, len(self.connections)))

    def _note(self, connection: FakeConnection, words: List[bytes]) -> None:
        with self._lock:
            self.commands.append(words)

    def count(self, name: str) -> int:
        with self._lock:
            return sum(1 for words in self.commands if words[0].upper() == name.encode())

    def _answer(self, connection: FakeConnection, words: List[bytes]) -> Any:
        name = words[0].decode("latin-1").upper()
        handler = self.handlers.get(name)
        if handler is not None:
            return handler(connection, words)
        if name == "HELLO":
            return {b"server": b"valkey", b"version": b"8.0.1", b"proto": 3, b"id": connection.number, b"mode": b"standalone",
                    b"role": b"master", b"modules": []}
        if name == "PING":
            return "PONG"
        if name == "BLOB.RDMA_HELLO":
            return self.bind(connection, words)
        if name in ("CLIENT", "SELECT", "AUTH", "READONLY", "SET"):
            return "OK"
        if name in ("GET", "BLOB.TCP_GET"):
            return None
        return "-ERR unknown command"

    @staticmethod
    def bind(connection: FakeConnection, words: List[bytes]) -> List[bytes]:
        connection.peer_address = bytes.fromhex(words[1].decode())
        return [connection.initiator().address.hex().encode()]

    def close(self) -> None:
        self._listener.close()
        for connection in self.connections:
            try:
                connection.sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
        for connection in self.connections:
            connection.ended.wait(10)

    def __enter__(self) -> "FakeServer":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
