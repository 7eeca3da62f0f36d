"""A private valkey-server in a temporary directory."""
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Optional

from . import MODULE
from .resp import Connection, RespError

VALKEY = os.environ.get("FARLIFT_VALKEY", shutil.which("valkey-server") or "/usr/bin/valkey-server")
# Set for a module built with a sanitizer: the library the server must preload.
PRELOAD = os.environ.get("FARLIFT_SERVER_PRELOAD", "")

SMALL = {"segment-size": "16mb", "max-object-size": "8mb", "chunk-size": "1mb", "fabric-interfaces": "lo"}


def eventually(check: Callable[[], Any], timeout: float = 30.0, what: str = "condition",
               first_pause: float = 0.002) -> Any:
    """Polls until check() is true (or stops raising AssertionError); the last failure is raised."""
    deadline = time.monotonic() + timeout
    pause = first_pause
    while True:
        try:
            value = check()
            if value:
                return value
            failure: BaseException = AssertionError(f"{what} not reached in {timeout} s, last value {value!r}")
        except AssertionError as error:
            failure = error
        if time.monotonic() > deadline:
            raise failure
        time.sleep(pause)
        pause = min(pause * 2, 0.1)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Server:
    """config: lines of valkey.conf; module: `largeobj.` settings, None for a server without the module; environment: what
    its process gets besides ours; ready_timeout: seconds until it answers, loading what it has saved included."""

    def __init__(self, config: Optional[Dict[str, str]] = None, module: Optional[Dict[str, str]] = SMALL,
                 tls: bool = False, expect_failure: bool = False, environment: Optional[Dict[str, str]] = None,
                 ready_timeout: float = 60.0):
        self.ready_timeout = ready_timeout
        self.environment = dict(environment or {})
        self.directory = Path(tempfile.mkdtemp(prefix="farlift-e2e-"))
        self.config_lines = dict(config or {})
        self.module = module
        self.tls = tls
        self.port = 0
        self.tls_port = 0
        self.process: Optional[subprocess.Popen] = None
        self.connections: List[Connection] = []
        if tls:
            make_certificates(self.directory)
        if not expect_failure:
            self.start()

    # life

    def start(self) -> None:
        for attempt in range(5):
            self._spawn()
            if self._wait_ready():
                return
            if "Address already in use" not in self.log() or attempt == 4:
                raise AssertionError(f"valkey-server did not start:\n{self.log()[-4000:]}")

    def try_start(self) -> bool:
        """For configurations that must be refused: False when the server ended by itself."""
        self._spawn()
        return self._wait_ready()

    def _spawn(self) -> None:
        if self.port == 0 or "Address already in use" in self.log():
            self.port = free_port()
            self.tls_port = free_port() if self.tls else 0
        (self.directory / "log").unlink(missing_ok=True)
        lines = [f"port {self.port}", "bind 127.0.0.1", f"dir {self.directory}", "daemonize no",
                 f"logfile {self.directory}/log", "enable-debug-command yes", "enable-module-command yes",
                 "repl-diskless-sync-delay 0", "repl-timeout 600"]
        config = {"save": '""', "appendonly": "no", **self.config_lines}
        if config.get("cluster-enabled") == "yes":
            config.setdefault("cluster-port", str(free_port()))
        if self.tls:
            d = self.directory
            config.update({"tls-port": str(self.tls_port), "tls-cert-file": f"{d}/server.crt",
                           "tls-key-file": f"{d}/server.key", "tls-ca-cert-file": f"{d}/ca.crt",
                           "tls-auth-clients": "no"})
        lines += [f"{name} {value}" for name, value in config.items()]
        if self.module is not None:
            lines.append(f"loadmodule {MODULE}")
            lines += [f"largeobj.{name} {value}" for name, value in self.module.items()]
        (self.directory / "valkey.conf").write_text("\n".join(lines) + "\n")
        environment = dict(os.environ)
        if PRELOAD:
            environment["LD_PRELOAD"] = PRELOAD
        environment.update(self.environment)
        # whatever ends this process, a time limit included, ends the server too
        leash = ["setpriv", "--pdeathsig", "KILL"] if shutil.which("setpriv") else []
        self.process = subprocess.Popen([*leash, VALKEY, str(self.directory / "valkey.conf")], env=environment,
                                        stdin=subprocess.DEVNULL, stdout=open(self.directory / "stdout", "ab"),
                                        stderr=subprocess.STDOUT)

    def _wait_ready(self) -> bool:
        deadline = time.monotonic() + self.ready_timeout
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                return False
            try:
                with Connection(self.port, timeout=5) as probe:
                    reply = probe.call("PING")
                    if reply == "PONG" or (isinstance(reply, RespError) and reply.code in ("NOAUTH", "MASTERDOWN")):
                        return True
            except OSError:
                pass
            time.sleep(0.01)
        raise AssertionError(f"valkey-server is not ready:\n{self.log()[-4000:]}")

    def alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    @property
    def pid(self) -> int:
        return self.process.pid

    def kill(self) -> None:
        if self.alive():
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()

    def stop(self) -> None:
        """SIGTERM, and a clean exit is demanded."""
        if not self.alive():
            return
        self.process.terminate()
        try:
            code = self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"valkey-server did not stop:\n{self.log()[-2000:]}")
        assert code == 0, f"valkey-server ended with {code}:\n{self.log()[-4000:]}"

    def restart(self, graceful: bool = True) -> None:
        self.forget_connections()
        self.stop() if graceful else self.kill()
        self.start()

    def forget_connections(self) -> None:
        for connection in self.connections:
            connection.close()
        self.connections.clear()

    def close(self) -> None:
        self.forget_connections()
        try:
            if self.alive():
                os.kill(self.pid, signal.SIGCONT)
            self.stop()
        finally:
            self.kill()
            shutil.rmtree(self.directory, ignore_errors=True)

    def __enter__(self) -> "Server":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def log(self) -> str:
        text = ""
        for name in ("log", "stdout"):
            path = self.directory / name
            if path.exists():
                text += path.read_text(errors="replace")
        return text

    # talking to it

    def connect(self, resp: int = 2, timeout: float = 60.0) -> Connection:
        connection = Connection(self.port, resp=resp, timeout=timeout)
        self.connections.append(connection)
        return connection

    def call(self, *words: Any) -> Any:
        with Connection(self.port) as connection:
            return connection.call(*words)

    def ok(self, *words: Any) -> Any:
        with Connection(self.port) as connection:
            return connection.ok(*words)

    def info(self, section: str = "largeobj") -> Dict[str, Any]:
        """Fields of INFO; of the module's own section without their prefix."""
        out: Dict[str, Any] = {}
        for line in self.ok("INFO", section).decode().splitlines():
            if ":" not in line or line.startswith("#"):
                continue
            name, value = line.split(":", 1)
            name = name[len("largeobj_"):] if name.startswith("largeobj_") else name
            out[name] = int(value) if value.lstrip("-").isdigit() else value
        return out

    def counter(self, name: str) -> int:
        return self.info()[name]

    @contextmanager
    def config(self, **settings: Any) -> Iterator[None]:
        """CONFIG SET for the duration; `__` in a name stands for `.`, `_` for `-`."""
        names = {name.replace("__", ".").replace("_", "-"): value for name, value in settings.items()}
        before = {}
        for name in names:
            before[name] = self.ok("CONFIG", "GET", name)[1]
        flat = [word for pair in names.items() for word in pair]
        self.ok("CONFIG", "SET", *flat)
        try:
            yield
        finally:
            if self.alive():
                for name, value in before.items():
                    self.ok("CONFIG", "SET", name, value)

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """The whole process is frozen (SIGSTOP) for the duration."""
        os.kill(self.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            if self.alive():
                os.kill(self.pid, signal.SIGCONT)


class Attached(Server):
    """A server that another process owns: it can be talked to, not started or stopped."""

    def __init__(self, port: int):
        self.port = port
        self.connections = []
        self.process = None


def make_certificates(directory: Path) -> None:
    """A throw-away authority and a certificate for 127.0.0.1 and localhost."""
    def openssl(*words: str) -> None:
        subprocess.run(["openssl", *words], cwd=directory, check=True, capture_output=True)

    openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
            "-subj", "/CN=farlift test authority", "-keyout", "ca.key", "-out", "ca.crt")
    openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj", "/CN=127.0.0.1",
            "-keyout", "server.key", "-out", "server.csr")
    (directory / "san.cnf").write_text("subjectAltName=IP:127.0.0.1,DNS:localhost\n")
    openssl("x509", "-req", "-in", "server.csr", "-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2",
            "-extfile", "san.cnf", "-out", "server.crt")


class Cluster:
    """Masters that share the slots evenly, formed and agreed."""

    def __init__(self, masters: int = 2, replicas: int = 0, module: Optional[Dict[str, str]] = SMALL):
        config = {"cluster-enabled": "yes", "cluster-node-timeout": "20000"}
        self.nodes: List[Server] = []
        try:
            for _ in range(masters + replicas):
                self.nodes.append(Server(config, module))
            self.masters, self.replicas = self.nodes[:masters], self.nodes[masters:]
            self._form()
        except BaseException:
            self.close()
            raise

    def _form(self) -> None:
        count = len(self.masters)
        for i, node in enumerate(self.masters):
            node.ok("CLUSTER", "ADDSLOTSRANGE", 16384 * i // count, 16384 * (i + 1) // count - 1)
            node.ok("CLUSTER", "SET-CONFIG-EPOCH", i + 1)
        first = self.nodes[0]
        bus = first.ok("CONFIG", "GET", "cluster-port")[1]
        for node in self.nodes[1:]:
            node.ok("CLUSTER", "MEET", "127.0.0.1", first.port, bus)

        def known() -> bool:
            return all(len(n.ok("CLUSTER", "NODES").splitlines()) == len(self.nodes) for n in self.nodes)

        eventually(known, 60, "cluster nodes know each other")
        for i, replica in enumerate(self.replicas):
            replica.ok("CLUSTER", "REPLICATE", self.masters[i % count].ok("CLUSTER", "MYID"))

        def agreed() -> bool:
            return all(b"cluster_state:ok" in n.ok("CLUSTER", "INFO") and
                       b"cluster_slots_ok:16384" in n.ok("CLUSTER", "INFO") for n in self.nodes)

        eventually(agreed, 60, "cluster state ok")
        for replica in self.replicas:
            eventually(lambda: replica.info("replication")["master_link_status"] == "up", 60, "replica link")

    def owner(self, key: str) -> Server:
        slot = self.nodes[0].ok("CLUSTER", "KEYSLOT", key)
        count = len(self.masters)
        return next(self.masters[i] for i in range(count) if slot < 16384 * (i + 1) // count)

    def key_on(self, node: Server, prefix: str = "k") -> str:
        for i in range(10000):
            if self.owner(f"{prefix}{i}") is node:
                return f"{prefix}{i}"
        raise AssertionError("no key for this node")

    def close(self) -> None:
        for node in self.nodes:
            node.close()

    def __enter__(self) -> "Cluster":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
