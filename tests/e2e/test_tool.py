"""The `farlift` binary, as a person uses it: up, put, get, demo, doctor, bench, and its exit statuses."""
import json
import os
import signal
import subprocess
import tempfile
from pathlib import Path

import pytest

from harness import MODULE, SOURCE
from harness.pattern import pattern
from harness.resp import Connection
from harness.server import Server, eventually

BINARY = os.environ.get("FARLIFT_BINARY", str(Path(MODULE).parents[1] / "bin" / "farlift"))
SMALL_STACK = ["--segment-size", "16mb", "--max-object-size", "8mb", "--module-set", "chunk-size=1mb"]


def farlift(*words, check=True, env=None):
    done = subprocess.run([BINARY, *map(str, words)], capture_output=True, text=True, timeout=120,
                          env=dict(os.environ, FARLIFT_MODULE=MODULE, **(env or {})))
    if check:
        assert done.returncode == 0, f"farlift {words}: status {done.returncode}\n{done.stdout}{done.stderr}"
    return done


def gone(pid):
    """No such process, or one that has ended and only waits for its parent to notice."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


@pytest.fixture
def folder():
    with tempfile.TemporaryDirectory(prefix="farlift-tool-") as path:
        yield Path(path)


@pytest.fixture
def stack(folder):
    """A detached `farlift up` with small segments; its directory."""
    directory = folder / "stack"
    farlift("up", "--detach", "--dir", directory, *SMALL_STACK)
    yield directory
    farlift("up", "--stop", "--dir", directory, check=False)


def port_of(directory):
    return json.loads(farlift("up", "--status", "--dir", directory, "--json").stdout)["port"]


def test_put_get_round_trip(stack, folder):
    source = folder / "source"
    for size in (1, 4095, 4096, 1 << 20, (1 << 20) + 7, 8 << 20):
        source.write_bytes(pattern(size, seed=size))
        put = json.loads(farlift("put", "--dir", stack, "--json", "key", source).stdout)
        got = json.loads(farlift("get", "--dir", stack, "--json", "key", folder / "copy").stdout)
        assert (folder / "copy").read_bytes() == source.read_bytes()
        assert put["bytes"] == got["bytes"] == size and put["crc32c"] == got["crc32c"]
    assert source.read_bytes() == pattern(8 << 20, seed=8 << 20)  # the source was never written


def test_what_the_tool_stored_is_what_the_server_serves(stack, folder):
    (folder / "source").write_bytes(pattern(70000))
    farlift("put", "--dir", stack, "key", folder / "source")
    with Connection(port_of(stack)) as connection:
        assert connection.ok("BLOB.TCP_GET", "key") == pattern(70000)


def test_failed_get_leaves_the_old_file_and_nothing_else(stack, folder):
    target = folder / "target"
    target.write_text("old")
    before = sorted(os.listdir(folder))
    assert farlift("get", "--dir", stack, "absent", target, check=False).returncode == 3
    with Connection(port_of(stack)) as connection:
        connection.ok("SET", "string", "x")
    assert farlift("get", "--dir", stack, "string", target, check=False).returncode == 1
    assert target.read_text() == "old" and sorted(os.listdir(folder)) == before


def test_exit_statuses_and_words(stack, folder):
    (folder / "file").write_bytes(b"x" * (9 << 20))
    (folder / "empty").write_bytes(b"")
    cases = [
        (["put", "--dir", stack, "k", folder / "file"], 1, "largeobj.max-object-size"),
        (["put", "--dir", stack, "k", folder / "empty"], 2, "empty"),
        (["put", "--dir", stack, "k", folder / "absent"], 1, "absent"),
        (["put", "--dir", folder, "k", folder / "file"], 4, "farlift up"),
        (["get", "--port", "1", "k", folder / "out"], 4, "127.0.0.1"),
        (["get", "--dir", stack, "--provider", "pigeon", "k", "x"], 2, "pigeon"),
        (["up", "--dir", stack], 2, "in use"),
        (["up", "--dir", folder / "a", "--bind", "0.0.0.0"], 2, "--password"),
        (["up", "--dir", folder / "b", "--module-set", "operating-mode=Tiered"], 1, "Tiered"),
        (["up", "--dir", folder / "c", "--module-set", "nonsense"], 2, "NAME=VALUE"),
        (["bench", "blob", "--sizes", "pony"], 2, "pony"),
        (["pony"], 2, "doctor"),
        ([], 2, "--help"),
    ]
    for words, status, text in cases:
        done = farlift(*words, check=False)
        assert done.returncode == status and text in done.stderr, (words, done.returncode, done.stderr)
    assert not (folder / "out").exists()


def test_errors_are_json_when_asked(stack, folder):
    done = farlift("get", "--dir", stack, "--json", "absent", folder / "x", check=False)
    answer = json.loads(done.stdout)
    assert done.returncode == answer["exit_code"] == 3 and "absent" in answer["error"]


def test_help_is_complete():
    for words in (["--help"], ["up", "--help"], ["get", "--help"], ["put", "--help"], ["demo", "--help"],
                  ["doctor", "--help"], ["bench", "blob", "--help"]):
        assert "--help" in farlift(*words).stdout
    assert "Exit status" in farlift("--help").stdout
    assert farlift("--version").stdout.startswith("farlift ")


def test_up_keeps_its_data_and_stops_what_it_started(folder):
    directory = folder / "stack"
    (folder / "source").write_bytes(pattern(50000))
    farlift("up", "--detach", "--dir", directory, *SMALL_STACK)
    first = json.loads((directory / "farlift.json").read_text())
    farlift("put", "--dir", directory, "kept", folder / "source")
    farlift("up", "--stop", "--dir", directory)
    for pid in (first["valkey_pid"], first["supervisor_pid"]):
        assert gone(pid)
    assert not (directory / "farlift.json").exists()
    assert farlift("up", "--status", "--dir", directory, check=False).returncode == 4
    farlift("up", "--detach", "--dir", directory, *SMALL_STACK)
    farlift("get", "--dir", directory, "kept", folder / "copy")
    farlift("up", "--stop", "--dir", directory)
    assert (folder / "copy").read_bytes() == pattern(50000)


@pytest.mark.parametrize("place", ["on PATH", "below", "elsewhere"])
def test_what_up_says_can_be_typed(folder, place):
    """put, get and stop word by word as `up` prints them, in the shell and the folder that it was called from."""
    here = {"on PATH": folder, "below": Path(BINARY).resolve().parents[1], "elsewhere": folder}[place]
    path = os.environ["PATH"] + (f":{Path(BINARY).resolve().parent}" if place == "on PATH" else "")

    def typed(command):
        return subprocess.run(command, shell=True, cwd=here, capture_output=True, text=True, timeout=120, check=False,
                              env=dict(os.environ, FARLIFT_MODULE=MODULE, PATH=path))

    (folder / "source").write_bytes(pattern(50000))
    said = typed(f"{BINARY} up --detach --dir {folder}/stack {' '.join(map(str, SMALL_STACK))}").stdout
    lines = {line.split()[0]: line.split(None, 1)[1] for line in said.splitlines() if line.startswith("  ")}
    put, get = lines["put,"].split(None, 1)[1].split("     ")
    stop = lines["stop"]
    try:
        for command, file in ((put, folder / "source"), (get, folder / "copy")):
            done = typed(command.replace("KEY", "k").replace("FILE", str(file)))
            assert done.returncode == 0, (command, done.stderr)
    finally:
        done = typed(stop)
    assert done.returncode == 0 and str(folder / "stack") in done.stdout, (stop, done)
    assert (folder / "copy").read_bytes() == pattern(50000)
    assert not (folder / "stack" / "farlift.json").exists()


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_up_in_the_foreground_takes_its_server_along(folder, how):
    directory = folder / "stack"
    process = subprocess.Popen([BINARY, "up", "--dir", str(directory), *SMALL_STACK, "--quiet"],
                               env=dict(os.environ, FARLIFT_MODULE=MODULE))
    try:
        eventually(lambda: (directory / "farlift.json").exists(), what="farlift.json")
        server = json.loads((directory / "farlift.json").read_text())["valkey_pid"]
        process.send_signal(how)
        assert process.wait(60) == (-9 if how == signal.SIGKILL else 0)
        eventually(lambda: gone(server), what="the server's end")
    finally:
        process.kill()
        process.wait()


def test_up_reports_a_server_that_dies(folder):
    directory = folder / "stack"
    process = subprocess.Popen([BINARY, "up", "--dir", str(directory), *SMALL_STACK], stderr=subprocess.PIPE,
                               stdout=subprocess.DEVNULL, text=True, env=dict(os.environ, FARLIFT_MODULE=MODULE))
    try:
        eventually(lambda: (directory / "farlift.json").exists(), what="farlift.json")
        os.kill(json.loads((directory / "farlift.json").read_text())["valkey_pid"], signal.SIGKILL)
        _, words = process.communicate(timeout=60)
        assert process.returncode == 1 and "was ended by signal 9" in words
    finally:
        process.kill()
        process.wait()


def test_password(folder):
    directory = folder / "stack"
    farlift("up", "--detach", "--dir", directory, "--password", 'se"cret', *SMALL_STACK)
    try:
        answer = json.loads(farlift("up", "--status", "--dir", directory, "--json").stdout)
        assert "password" not in answer
        assert (directory / "farlift.json").stat().st_mode & 0o077 == 0
        (folder / "source").write_bytes(pattern(5000))
        farlift("put", "--dir", directory, "k", folder / "source")
        words = ["get", "--port", str(answer["port"]), "k", folder / "copy"]
        refused = farlift(*words, check=False)
        assert refused.returncode != 0 and "FARLIFT_PASSWORD" in refused.stderr
        farlift(*words, env={"FARLIFT_PASSWORD": 'se"cret'})
        assert (folder / "copy").read_bytes() == pattern(5000)
    finally:
        farlift("up", "--stop", "--dir", directory, check=False)


def test_get_over_a_unix_socket_and_from_a_server_without_module(folder):
    with Server({}, None) as bare:
        done = farlift("get", "--port", bare.port, "k", folder / "x", check=False)
        assert done.returncode == 1 and "libfarlift_blob.so" in done.stderr
    directory = folder / "stack"
    farlift("up", "--detach", "--dir", directory, "--unix", folder / "socket", *SMALL_STACK)
    try:
        (folder / "source").write_bytes(pattern(5000))
        farlift("put", "--unix", folder / "socket", "k", folder / "source")
        farlift("get", "--unix", folder / "socket", "k", folder / "copy")
        assert (folder / "copy").read_bytes() == pattern(5000)
    finally:
        farlift("up", "--stop", "--dir", directory, check=False)


def test_demo_lifts_given_files_and_leaves_nothing(folder):
    (folder / "a").write_bytes(pattern(3 << 20))
    (folder / "b").write_bytes(pattern(17))
    env = {"TMPDIR": str(folder / "tmp")}
    (folder / "tmp").mkdir()
    rows = json.loads(farlift("demo", "--json", folder / "a", folder / "b", env=env).stdout)
    assert [(r["door"], r["bytes"], r["checked"]) for r in rows] == [
        (door, size, True) for door in ("blob", "kvcache") for size in (3 << 20, 17)]
    assert not any((folder / "tmp").iterdir())


def test_demo_keep(folder):
    (folder / "a").write_bytes(pattern(100000))
    done = farlift("demo", "--keep", "--dir", folder / "stack", folder / "a")
    try:
        assert "every byte" in done.stdout and "farlift up --stop" in done.stdout
        farlift("get", "--dir", folder / "stack", "demo:a", folder / "copy")
        assert (folder / "copy").read_bytes() == pattern(100000)
    finally:
        farlift("up", "--stop", "--dir", folder / "stack")


def test_doctor_finds_what_is_needed():
    done = farlift("doctor", "--json")
    lines = {line["name"].strip(): line for line in json.loads(done.stdout)}
    for name in ("processor", "locked memory", "valkey-server", "module", "soft provider", "host lane", "libfabric"):
        assert name in lines
    for line in lines.values():
        assert line["state"] == "ok" or line["advice"], line
    assert farlift("doctor", check=False, env={"FARLIFT_VALKEY": "no-such-server"}).returncode == 1


def test_bench_blob_measures_everything_it_names():
    done = farlift("bench", "blob", "--quick", "--sizes", "64k", "--in-flight", "1,2", "--json", "--quiet")
    rows = json.loads(done.stdout)
    names = {(row["what"], row["lane"]) for row in rows}
    for what in ("blob.rdma_get", "blob.rdma_set"):
        assert (what, "remote") in names and (what, "host") in names
    for what in ("blob.tcp_get", "blob.tcp_set", "valkey.get", "valkey.set", "raw_tcp", "libfabric.push", "memcpy",
                 "process_vm_readv", "shared_mapping"):
        assert (what, "") in names
    for row in rows:
        assert row["size"] == 65536 and row["in_flight"] in (1, 2) and isinstance(row["verified"], bool)
        assert row["gb_per_s"] > 0 and 0 < row["p50_us"] <= row["p99_us"] and row["cpu_s_per_gb"] > 0
    assert {row["verified"] for row in rows if row["what"] == "blob.rdma_get"} == {True, False}


def test_quickstart_and_test_scripts_explain_themselves():
    for script in ("quickstart", "test"):
        done = subprocess.run([str(SOURCE / script), "--help"], capture_output=True, text=True, timeout=30)
        assert done.returncode == 0 and "--" in done.stdout
        done = subprocess.run([str(SOURCE / script), "--pony"], capture_output=True, text=True, timeout=30)
        assert done.returncode == 2 and "--pony" in done.stderr
