"""Partitions between client, data node and Valkey, each healed (spec kv 10, 11): real namespaces, real packets that vanish.

Needs root. Every process outlives its partition: nothing is restarted to make things work again."""
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from harness import PYTHONPATH
from harness.network import Network, Unavailable
from harness.node import BINARY
from harness.server import VALKEY, eventually

SIZE = 3_000_000
BOUND = 30.0  # seconds for what must end within 2 T_op and the control timeout (5 s): generous, but no hang


class Agent:
    """harness.kv_agent on a machine of the network."""

    def __init__(self, fleet, machine="client"):
        options = {"host": fleet.network.address["valkey"], "port": 6379, "key_file": str(fleet.keys),
                   "provider": fleet.provider}
        self.log = open(fleet.directory / f"agent-{machine}.log", "ab")
        self.process = subprocess.Popen(
            fleet.network.command(machine, "env", f"PYTHONPATH={PYTHONPATH}:{Path(__file__).parent}", sys.executable, "-m",
                                  "harness.kv_agent", json.dumps(options)),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log, text=True)
        assert self._read()["ready"]

    def _read(self):
        line = self.process.stdout.readline()
        assert line, f"the agent ended: {Path(self.log.name).read_text()}"
        return json.loads(line)

    def ask(self, do, **words):
        self.process.stdin.write(json.dumps({"do": do, **words}) + "\n")
        self.process.stdin.flush()
        answer = self._read()
        assert not answer["late"], f"bytes came after a read was reported: {words}"
        assert answer["seconds"] < BOUND, (do, words, answer)
        return answer

    def get(self, key, seed):
        """The status; OK only with the right bytes."""
        answer = self.ask("get", key=key, seed=seed, size=SIZE)
        assert answer["right"] or answer["status"] != "OK", (key, answer)
        return answer["status"]

    def put(self, key, seed):
        return self.ask("put", key=key, seed=seed, size=SIZE)["status"]

    def close(self):
        self.process.stdin.close()
        try:
            assert self.process.wait(60) == 0, Path(self.log.name).read_text()
        finally:
            self.process.kill()
            self.process.wait()
            self.process.stdout.close()
            self.log.close()


class Fleet:
    """valkey, node, client and another client, each a machine of its own."""

    def __init__(self, provider):
        self.provider = provider
        self.directory = Path(tempfile.mkdtemp(prefix="farlift-fleet-"))
        self.keys = self.directory / "t1.keys"
        self.keys.write_text("1 " + "5a" * 32 + "\n")
        self.processes = []
        self.agents = []
        self.network = Network(["valkey", "node", "client", "stranger"])
        try:
            self._start_processes()
        except BaseException:
            self.close()
            raise

    def _spawn(self, machine, *command):
        log = open(self.directory / f"{machine}.log", "ab")
        leash = ["setpriv", "--pdeathsig", "KILL"] if shutil.which("setpriv") else []
        self.processes.append(subprocess.Popen([*leash, *self.network.command(machine, *command)], stdin=subprocess.DEVNULL,
                                               stdout=log, stderr=log))
        log.close()

    def _start_processes(self):
        place = f"{self.network.address['valkey']}:6379"
        self._spawn("valkey", VALKEY, "--bind", self.network.address["valkey"], "--port", 6379, "--save", "",
                    "--protected-mode", "no", "--dir", self.directory)
        eventually(lambda: self.valkey("PING") == "PONG")
        ready = self.directory / "ready"
        self._spawn("node", BINARY, "node", "--valkey", place, "--listen", self.network.address["node"], "--arena-size",
                    "16m", "--tenant", f"t1,keys={self.keys},quota=64m", "--provider", self.provider, "--ready-file", ready,
                    "--operation-limit-ms", 2000)
        eventually(lambda: ready.exists() or self.processes[-1].poll() is not None)
        assert self.processes[-1].poll() is None, (self.directory / "node.log").read_text()

    def valkey(self, *words):
        """Asked on its own machine, whatever is parted."""
        done = subprocess.run(self.network.command("valkey", "valkey-cli", "-h", self.network.address["valkey"], *words),
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        return done.stdout.strip()

    def agent(self, machine="client"):
        self.agents.append(Agent(self, machine))
        return self.agents[-1]

    def announced(self):
        return self.valkey("EXISTS", "okv:n:{1}") == "1"

    def close(self):
        try:
            self.network.heal_all()
            for agent in self.agents:
                agent.close()
        finally:
            for process in reversed(self.processes):
                process.terminate()
            codes = [process.wait(60) for process in reversed(self.processes)]
            log = (self.directory / "node.log").read_text() if len(codes) > 1 else ""
            self.network.close()
            shutil.rmtree(self.directory, ignore_errors=True)
        assert not any(codes), (codes, log)


@pytest.fixture(params=["soft", "tcp"])
def fleet(request):
    try:
        made = Fleet(request.param)
    except Unavailable as reason:
        pytest.skip(str(reason))
    yield made
    made.close()


def test_K071_client_and_node_are_parted(fleet):
    agent = fleet.agent()
    assert agent.put("k", 1) == "OK"
    assert agent.get("k", 1) == "OK"
    fleet.network.part("client", "node")
    first = agent.get("k", 1)  # over a link that is up: posted, and never answered
    assert first in ("TIMEOUT", "UNREACHABLE"), first
    assert agent.get("k", 1) in ("TIMEOUT", "UNREACHABLE")
    assert agent.put("other", 2) in ("TIMEOUT", "UNREACHABLE")
    fleet.network.heal("client", "node")
    eventually(lambda: agent.get("k", 1) == "OK")
    eventually(lambda: agent.put("other", 3) == "OK")
    assert agent.get("other", 3) == "OK"


def test_K071_client_and_valkey_are_parted(fleet):
    agent = fleet.agent()
    assert agent.put("k", 1) == "OK"
    assert agent.get("k", 1) == "OK"
    fleet.network.part("client", "valkey")
    # What is cached serves until its lease ends, then the client says that it cannot know.
    eventually(lambda: agent.get("k", 1) == "CONTROL_DOWN")
    assert agent.put("k", 2) in ("CONTROL_DOWN", "UNREACHABLE")
    assert agent.ask("exists", key="k")["there"] is False
    fleet.network.heal("client", "valkey")
    eventually(lambda: agent.get("k", 1) == "OK")
    eventually(lambda: agent.put("k", 3) == "OK")
    assert agent.get("k", 3) == "OK"


def test_K071_node_and_valkey_are_parted(fleet):
    agent = fleet.agent()
    assert agent.put("k", 1) == "OK"
    assert agent.get("k", 1) == "OK"
    fleet.network.part("node", "valkey")
    eventually(lambda: not fleet.announced(), what="the end of the node's record")
    assert agent.get("k", 1) == "OK"  # a link that is up stays valid
    stranger = fleet.agent("stranger")
    assert stranger.get("k", 1) == "UNREACHABLE"
    assert agent.put("other", 2) in ("CONTROL_DOWN", "UNREACHABLE", "TIMEOUT")
    fleet.network.heal("node", "valkey")
    eventually(fleet.announced)
    eventually(lambda: stranger.get("k", 1) == "OK")
    eventually(lambda: agent.put("other", 3) == "OK")
    assert stranger.get("other", 3) == "OK"


def test_K071_everybody_is_parted_from_everybody(fleet):
    agent = fleet.agent()
    assert agent.put("k", 1) == "OK"
    pairs = [("client", "node"), ("client", "valkey"), ("node", "valkey")]
    for pair in pairs:
        fleet.network.part(*pair)
    for _ in range(3):
        assert agent.get("k", 1) != "OK"
        assert agent.put("k", 2) != "OK"
    for pair in reversed(pairs):
        fleet.network.heal(*pair)
    eventually(lambda: agent.put("k", 3) == "OK")
    assert agent.get("k", 3) == "OK"
