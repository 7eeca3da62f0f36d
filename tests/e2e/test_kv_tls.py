"""`farlift node` and `farlift kv` over TLS: to Valkey, and on the control connections between client and node."""
import subprocess
import tempfile
from pathlib import Path

import pytest

from harness.node import BINARY, DataNode
from harness.pattern import pattern
from harness.server import Server


@pytest.fixture
def folder():
    with tempfile.TemporaryDirectory(prefix="farlift-kv-") as path:
        yield Path(path)


@pytest.fixture
def secure(folder):
    """A server that speaks TLS beside plain, a key ring, a file."""
    (folder / "t1.keys").write_text("1 " + "5a" * 32 + "\n")
    (folder / "file").write_bytes(pattern(200_000))
    with Server(tls=True) as server:
        yield server


def kv(*words):
    return subprocess.run([BINARY, "kv", *map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          timeout=120)


def tenant(folder):
    return ["--tenant", f"t1,keys={folder}/t1.keys,quota=32m"]


def where(folder, port, *words):
    return ["--valkey", f"127.0.0.1:{port}", "--tenant", "t1", "--keys", folder / "t1.keys", *words]


def goes_round(folder, place):
    done = kv("put", *place, "--replace", "k", folder / "file")
    assert done.returncode == 0, done.stderr
    done = kv("get", *place, "k", folder / "out")
    assert done.returncode == 0, done.stderr
    assert (folder / "out").read_bytes() == (folder / "file").read_bytes()


def test_the_directory_over_tls(secure, folder):
    authority = secure.directory / "ca.crt"
    with DataNode(secure.tls_port, *tenant(folder), "--tls", "--cacert", authority):
        goes_round(folder, where(folder, secure.tls_port, "--tls", "--cacert", authority))
        goes_round(folder, where(folder, secure.tls_port, "--tls", "--insecure"))
        for words in (["--tls"], ["--tls", "--cacert", authority, "--server-name", "elsewhere.example"], []):
            done = kv("get", *where(folder, secure.tls_port, *words), "k", folder / "no")
            assert done.returncode == 4 and not (folder / "no").exists(), (words, done.stderr)


def test_control_connections_over_tls(secure, folder):
    d = secure.directory
    own = ["--link-cert", d / "server.crt", "--link-key-file", d / "server.key", "--link-cacert", d / "ca.crt"]
    with DataNode(secure.port, *tenant(folder), *own):
        goes_round(folder, where(folder, secure.port, "--node-tls", "--node-cacert", d / "ca.crt"))
        for words in ([], ["--node-tls"], ["--node-tls", "--node-cacert", d / "ca.crt", "--node-server-name", "no.example"]):
            done = kv("get", *where(folder, secure.port, *words), "k", folder / "no")
            assert done.returncode == 4 and not (folder / "no").exists(), (words, done.stderr)


def test_clients_that_must_show_a_certificate(secure, folder):
    d = secure.directory
    own = ["--link-cert", d / "server.crt", "--link-key-file", d / "server.key", "--link-cacert", d / "ca.crt"]
    trust = ["--node-tls", "--node-cacert", d / "ca.crt"]
    with DataNode(secure.port, *tenant(folder), *own, "--link-mutual"):
        goes_round(folder, where(folder, secure.port, *trust, "--node-cert", d / "server.crt", "--node-key-file",
                                 d / "server.key"))
        done = kv("get", *where(folder, secure.port, *trust), "k", folder / "no")
        assert done.returncode == 4 and not (folder / "no").exists(), done.stderr


def test_flags_that_do_not_fit_are_said(folder, secure):
    cases = [
        (["--cacert", "x"], "--tls"),
        (["--tls", "--cacert", folder / "none"], "none"),
        (["--link-cert", "x"], "--link-key-file"),
        (["--link-mutual"], "--link-cert"),
        (["--link-cert", folder / "none", "--link-key-file", folder / "none"], "--link-cert"),
    ]
    for words, text in cases:
        done = subprocess.run([BINARY, "node", *tenant(folder), *map(str, words)], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True, timeout=60)
        assert done.returncode == 2 and text in done.stderr, (words, done.returncode, done.stderr)
