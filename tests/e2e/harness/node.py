"""Data nodes of the one-sided cache, as processes of their own."""
import os
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from . import MODULE
from .server import eventually

BINARY = os.environ.get("FARLIFT_BINARY", str(Path(MODULE).parents[1] / "bin" / "farlift"))


class DataNode:
    """`farlift node` beside the server on `port`; words: more of its command line, tenants above all."""

    def __init__(self, port: int, *words: Any, identity: int = 1, arena_size: str = "16m"):
        self.directory = Path(tempfile.mkdtemp(prefix="farlift-node-"))
        self.ready = self.directory / "port"
        command = [BINARY, "node", "--valkey", f"127.0.0.1:{port}", "--id", str(identity), "--arena-size", arena_size,
                   "--ready-file", str(self.ready), *map(str, words)]
        leash = ["setpriv", "--pdeathsig", "KILL"] if shutil.which("setpriv") else []
        self.process = None
        self.start_words = [*leash, *command]
        try:
            self.start()
        except BaseException:
            self.close()
            raise

    def start(self) -> None:
        """The first time, and again after kill(): another incarnation."""
        self.ready.unlink(missing_ok=True)
        with open(self.directory / "log", "ab") as log:
            self.process = subprocess.Popen(self.start_words, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        eventually(lambda: self.ready.exists() or self.process.poll() is not None)
        assert self.process.poll() is None, f"the data node did not start:\n{self.log()}"

    def log(self) -> str:
        return (self.directory / "log").read_text(errors="replace")

    def pause(self) -> None:
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def close(self) -> None:
        try:
            if self.process is not None and self.process.poll() is None:
                self.resume()
                self.process.terminate()
                try:
                    code = self.process.wait(60)
                except subprocess.TimeoutExpired:
                    self.kill()
                    raise AssertionError(f"the data node did not stop:\n{self.log()[-4000:]}")
                assert code == 0, f"the data node ended with {code}:\n{self.log()[-4000:]}"
        finally:
            shutil.rmtree(self.directory, ignore_errors=True)

    def __enter__(self) -> "DataNode":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
