"""A raw RESP2/RESP3 connection: sends exactly what it is told and keeps the replies' types apart."""
import socket
import ssl
from typing import Any, Iterable, Optional, Union

Word = Union[bytes, str, int, bytearray, memoryview]


class RespError(Exception):
    """An error reply. Equality and str() are of the text, code word included."""

    def __init__(self, text: str):
        super().__init__(text)
        self.text = text

    @property
    def code(self) -> str:
        return self.text.split(" ", 1)[0]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RespError) and other.text == self.text

    def __hash__(self) -> int:
        return hash(self.text)


class Disconnected(Exception):
    """The server closed the connection."""


def encode(words: Iterable[Word]) -> bytes:
    parts = [w if isinstance(w, (bytes, bytearray, memoryview)) else str(w).encode() for w in words]
    out = bytearray(b"*%d\r\n" % len(parts))
    for part in parts:
        out += b"$%d\r\n" % len(part)
        out += part
        out += b"\r\n"
    return bytes(out)


class Connection:
    """One RESP connection. `call` returns error replies as values; `ok` raises them."""

    def __init__(self, port: int, host: str = "127.0.0.1", resp: int = 2, timeout: float = 60.0,
                 tls: Optional[ssl.SSLContext] = None):
        self.sock: socket.socket = socket.create_connection((host, port), timeout=timeout)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if tls is not None:
            self.sock = tls.wrap_socket(self.sock, server_hostname=host)
        self._buffer = bytearray()
        self.nil: Optional[bytes] = None  # how the last nil was written: b"$-1", b"*-1" or b"_"
        self.pushes: list = []
        if resp == 3:
            self.ok("HELLO", 3)

    def __enter__(self) -> "Connection":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.sock.close()

    def send(self, *words: Word) -> None:
        if not any(isinstance(word, (bytes, bytearray, memoryview)) and len(word) > 65536 for word in words):
            self.sock.sendall(encode(words))
            return
        self.sock.sendall(b"*%d\r\n" % len(words))
        for word in words:
            part = word if isinstance(word, (bytes, bytearray, memoryview)) else str(word).encode()
            self.sock.sendall(b"$%d\r\n" % len(part))
            self.sock.sendall(part)
            self.sock.sendall(b"\r\n")

    def call(self, *words: Word) -> Any:
        self.send(*words)
        return self.read()

    def ok(self, *words: Word) -> Any:
        reply = self.call(*words)
        if isinstance(reply, RespError):
            raise reply
        return reply

    def client_id(self) -> int:
        return self.ok("CLIENT", "ID")

    def read(self) -> Any:
        while True:
            reply, push = self._read_one()
            if not push:
                return reply
            self.pushes.append(reply)

    def _more(self) -> None:
        chunk = self.sock.recv(1 << 20)
        if not chunk:
            raise Disconnected()
        self._buffer += chunk

    def _line(self) -> bytes:
        while True:
            at = self._buffer.find(b"\r\n")
            if at >= 0:
                line = bytes(self._buffer[:at])
                del self._buffer[:at + 2]
                return line
            self._more()

    def _bytes(self, count: int) -> bytes:
        if len(self._buffer) < count + 2:
            out = bytearray(count + 2)
            have = len(self._buffer)
            out[:have] = self._buffer
            self._buffer.clear()
            view = memoryview(out)
            while have < count + 2:
                got = self.sock.recv_into(view[have:])
                if got == 0:
                    raise Disconnected()
                have += got
            view.release()
            data = out
        else:
            data = self._buffer[:count + 2]
            del self._buffer[:count + 2]
        assert data[-2:] == b"\r\n", "bulk string without its end"
        return bytes(memoryview(data)[:count])

    def _read_one(self) -> Any:
        line = self._line()
        kind, rest = line[:1], line[1:]
        if kind == b"+":
            return rest.decode(), False
        if kind == b"-":
            return RespError(rest.decode("utf-8", "replace")), False
        if kind == b":":
            return int(rest), False
        if kind in (b"$", b"*") and rest == b"-1":
            self.nil = kind + rest
            return None, False
        if kind == b"_":
            self.nil = kind
            return None, False
        if kind == b"$":
            return self._bytes(int(rest)), False
        if kind == b"=":
            return self._bytes(int(rest))[4:], False
        if kind == b"#":
            return rest == b"t", False
        if kind == b",":
            return float(rest), False
        if kind in (b"*", b"~", b">"):
            return [self._read_one()[0] for _ in range(int(rest))], kind == b">"
        if kind == b"%":
            return {_key(self._read_one()[0]): self._read_one()[0] for _ in range(int(rest))}, False
        raise AssertionError(f"unknown reply type {line!r}")


def _key(value: Any) -> Any:
    return value if not isinstance(value, list) else tuple(value)
