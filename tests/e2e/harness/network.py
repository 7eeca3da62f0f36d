"""Machines on one machine: network namespaces around a router, and partitions between them."""
import os
import subprocess
from typing import Any, Dict, Iterable, List, Set, Tuple


class Unavailable(Exception):
    """Namespaces cannot be made here; says why."""


def _ip(*words: str) -> None:
    done = subprocess.run(["ip", *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        raise Unavailable(f"ip {' '.join(words)}: {done.stdout.strip()}")


class Network:
    """One namespace a name, each behind the router. A partition drops what the router should forward, both ways, and tells
    nobody: connections stay up and silent, as between machines. Removed with all its interfaces by close()."""

    def __init__(self, names: Iterable[str]):
        if os.geteuid() != 0:
            raise Unavailable("network namespaces need root")
        self._prefix = f"farlift{os.getpid()}"
        self._namespaces: List[str] = []
        self.address: Dict[str, str] = {}
        self._parted: Set[Tuple[str, str]] = set()
        try:
            self._router = self._add("router")
            self._run(self._router, "sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward")
            for number, name in enumerate(names, 1):
                self._join(name, number)
        except BaseException:
            self.close()
            raise

    def _add(self, name: str) -> str:
        namespace = f"{self._prefix}-{name}"
        _ip("netns", "add", namespace)
        self._namespaces.append(namespace)
        _ip("-n", namespace, "link", "set", "lo", "up")
        return namespace

    def _run(self, namespace: str, *command: str) -> None:
        done = subprocess.run(["ip", "netns", "exec", namespace, *command], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True)
        if done.returncode != 0:
            raise Unavailable(f"{' '.join(command)}: {done.stdout.strip()}")

    def _join(self, name: str, number: int) -> None:
        namespace, port = self._add(name), f"port{number}"
        self.address[name] = f"10.213.{number}.2"
        _ip("-n", self._router, "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", namespace)
        _ip("-n", self._router, "address", "add", f"10.213.{number}.1/24", "dev", port)
        _ip("-n", self._router, "link", "set", port, "up")
        _ip("-n", namespace, "address", "add", f"{self.address[name]}/24", "dev", "eth0")
        _ip("-n", namespace, "link", "set", "eth0", "up")
        _ip("-n", namespace, "route", "add", "default", "via", f"10.213.{number}.1")

    def command(self, name: str, *words: Any) -> List[str]:
        """The command line that runs `words` on that machine."""
        return ["ip", "netns", "exec", f"{self._prefix}-{name}", *map(str, words)]

    def part(self, a: str, b: str) -> None:
        self._parted.add((a, b))
        for source, target in ((a, b), (b, a)):
            _ip("-n", self._router, "rule", "add", "from", self.address[source], "to", self.address[target], "blackhole")

    def heal(self, a: str, b: str) -> None:
        self._parted.discard((a, b))
        for source, target in ((a, b), (b, a)):
            _ip("-n", self._router, "rule", "del", "from", self.address[source], "to", self.address[target], "blackhole")

    def heal_all(self) -> None:
        for a, b in list(self._parted):
            self.heal(a, b)

    def close(self) -> None:
        for namespace in self._namespaces:
            subprocess.run(["ip", "netns", "del", namespace], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self._namespaces = []

    def __enter__(self) -> "Network":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()
