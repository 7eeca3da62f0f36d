"""A whole S3 stack in a temporary directory: volume servers, object service, gateway; ends with the block."""
import os
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

BUILD = os.environ.get("FARLIFT_BUILD", str(Path(__file__).resolve().parents[2] / "build" / "release"))
BINARY = os.environ.get("FARLIFT_BINARY", f"{BUILD}/bin/farlift")
KEYS = ("AKFARLIFTSTORIES", "secret/with+odd=characters")


class Process:
    """One of our processes; `ready` has what it wrote into its ready file."""

    def __init__(self, folder, name, *words, environment=None):
        self.folder, self.name, self.words = Path(folder), name, [str(word) for word in words]
        self.environment = environment or {}
        self.process = None
        self.ready = []

    def start(self, timeout=60.0):
        ready = self.folder / f"{self.name}.ready"
        ready.unlink(missing_ok=True)
        leash = ["setpriv", "--pdeathsig", "KILL"] if shutil.which("setpriv") else []
        with open(self.folder / f"{self.name}.log", "ab") as log:
            self.process = subprocess.Popen([*leash, BINARY, *self.words, "--ready-file", str(ready)], stdout=log,
                                            stderr=log, stdin=subprocess.DEVNULL, env={**os.environ, **self.environment})
        deadline = time.monotonic() + timeout
        while not ready.exists():
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                raise AssertionError(f"{self.name} did not start:\n{self.log()[-3000:]}")
            time.sleep(0.01)
        self.ready = ready.read_text().split()
        return self

    def log(self):
        return (self.folder / f"{self.name}.log").read_text(errors="replace")

    def alive(self):
        return self.process is not None and self.process.poll() is None

    def signal(self, number):
        self.process.send_signal(number)

    def kill(self):
        if self.alive():
            self.process.kill()
        if self.process is not None:
            self.process.wait()

    def stop(self, timeout=60.0):
        if not self.alive():
            return
        self.process.terminate()
        try:
            code = self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"{self.name} did not stop:\n{self.log()[-3000:]}")
        assert code == 0, f"{self.name} ended with {code}:\n{self.log()[-3000:]}"


class Stack:
    """volumes: how many volume servers; volume_flags, gateway_flags: further words of their command lines."""

    def __init__(self, volumes=1, volume_flags=(), gateway_flags=(), keys=KEYS):
        self.folder = Path(tempfile.mkdtemp(prefix="farlift-s3-"))
        self.keys = keys
        self.processes = []
        try:
            self.volumes = [self.add(f"volume{n}", "volume", "--dir", self.folder / f"volume{n}", "--port", 0,
                                     *volume_flags) for n in range(volumes)]
            addresses = [word for one in self.volumes for word in ("--volume", f"127.0.0.1:{one.ready[0]}")]
            self.gateway = self.add("gateway", "s3", "--dir", self.folder / "catalog", "--port", 0, *addresses,
                                    "--access-key", keys[0], "--access-log", self.folder / "access.log", "--sweep-s", 1,
                                    *gateway_flags, environment={"FARLIFT_S3_SECRET_KEY": keys[1]})
        except BaseException:
            self.close()
            raise

    def add(self, name, *words, environment=None):
        process = Process(self.folder, name, *words, environment=environment)
        self.processes.append(process)
        return process.start()

    @property
    def endpoint(self):
        return f"http://127.0.0.1:{self.gateway.ready[0]}"

    def restart(self, process, how=signal.SIGTERM):
        """On the same port as before."""
        process.kill() if how == signal.SIGKILL else process.stop()
        words = process.words
        words[words.index("--port") + 1] = process.ready[0]
        process.start()

    def close(self):
        failures = []
        for process in reversed(self.processes):
            try:
                process.stop()
            except AssertionError as failure:
                failures.append(failure)
        shutil.rmtree(self.folder, ignore_errors=True)
        if failures:
            raise failures[0]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
