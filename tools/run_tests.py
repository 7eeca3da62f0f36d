#!/usr/bin/env python3
"""Runs what ./test has built, sums it up, and sees that nothing is left behind.

Counted are the single cases: each GoogleTest case, each pytest case, each tool, each fuzz corpus. A
program that dies before it reports counts as one failure. Skips are listed with their reasons. The
last line is `N passed, N failed, N skipped`.
"""
import argparse
import ctypes
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PYTHON = "/usr/bin/python3"
SANITIZER_OPTIONS = {
    "ASAN_OPTIONS": "detect_leaks=1:abort_on_error=1:strict_string_checks=1:detect_stack_use_after_return=1"
                    ":handle_segv=1:allocator_may_return_null=1",
    "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1",
    "TSAN_OPTIONS": "halt_on_error=1:second_deadlock_stack=1:history_size=4:ignore_noninstrumented_modules=1"
                    ":report_signal_unsafe=0:suppressions="
                    + os.path.join(ROOT, "tools", "tsan.supp"),
    "LSAN_OPTIONS": "print_suppressions=0:suppressions=" + os.path.join(ROOT, "tools", "lsan.supp"),
}


class SanitizerReports:
    """What the sanitizers of all processes wrote, wherever their stderr went: a server that a test kills or restarts
    takes its log with it, and a report there must not be lost. A report is a failure, whatever the test said."""

    LINES_MAX = 80

    def __init__(self, folder):
        self.folder = folder
        self.seen = set()

    def options(self):
        """The environment of a sanitized run. The runtime adds the program's name and its pid to the path."""
        into = f":log_path={self.folder}/report:log_exe_name=1"
        return {name: value if name.startswith("LSAN") else value + into for name, value in SANITIZER_OPTIONS.items()}

    def collect(self, tally):
        if not os.path.isdir(self.folder):
            return
        for name in sorted(set(os.listdir(self.folder)) - self.seen):
            self.seen.add(name)
            with open(os.path.join(self.folder, name), encoding="utf-8", errors="replace") as file:
                lines = file.read().splitlines()
            summary = [line for line in lines if line.startswith("SUMMARY:") or "runtime error:" in line]
            tally.failed.append(f"sanitizer: {name}: {summary[0] if summary else 'no summary'}")
            print(f"-- sanitizer report {os.path.join(self.folder, name)}")
            for line in lines[:self.LINES_MAX]:
                print("   " + line)
            if len(lines) > self.LINES_MAX:
                print(f"   ... and {len(lines) - self.LINES_MAX} lines")
        sys.stdout.flush()


class Tally:
    """What passed, failed and was skipped, and the names behind the last two."""

    def __init__(self):
        self.passed = 0
        self.failed = []
        self.skipped = []

    def add_junit_case(self, suite, case):
        name = f"{suite}: {case.get('classname', '')}.{case.get('name', '')}"
        skip = case.find("skipped")
        if case.find("failure") is not None or case.find("error") is not None:
            self.failed.append(name)
        elif skip is not None or case.get("result") == "skipped":
            reason = "" if skip is None else (skip.get("message") or skip.text or "").strip()
            self.skipped.append((name, last_line(reason) or "no reason given"))
        elif case.get("status") == "notrun":
            self.skipped.append((name, "disabled"))
        else:
            self.passed += 1


def last_line(text):
    lines = [line.strip() for line in text.split("\n") if line.strip()]
    return lines[-1] if lines else ""


def read_gtest(folder, tally):
    """Sums the reports of the GoogleTest programs; returns {program: it had a failing case}."""
    seen = {}
    for name in sorted(os.listdir(folder)):
        program = re.sub(r"(_\d+)?\.xml$", "", name)
        try:
            root = ElementTree.parse(os.path.join(folder, name)).getroot()
        except ElementTree.ParseError:
            continue  # cut off: ctest reports the program as failed
        before = len(tally.failed)
        for case in root.iter("testcase"):
            tally.add_junit_case(program, case)
        seen[program] = seen.get(program, False) or len(tally.failed) > before
    return seen


def stream(command, env, log):
    """Runs a command, keeps its output in `log`, and yields its lines."""
    with open(log, "w", encoding="utf-8") as file, subprocess.Popen(
            command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
            cwd=ROOT, stdin=subprocess.DEVNULL) as process:
        for line in process.stdout:
            file.write(line)
            yield line.rstrip("\n")
        process.wait()
        yield process.returncode


def run_ctest(options, env, work, tally):
    """Two passes: programs that mind their neighbours (label serial) run alone, after the others."""
    print("-- unit tests and tools", flush=True)
    reports = os.path.join(work, "gtest")
    os.mkdir(reports)
    env = dict(env, GTEST_OUTPUT=f"xml:{reports}/")
    outcome = {}
    for which, jobs in (("-LE", options.jobs), ("-L", 1)):
        command = ["ctest", "--test-dir", options.build, which, "^serial$", "-j", str(jobs), "--output-on-failure",
                   "--no-tests=ignore"]
        if options.only:
            command += ["-R", options.only]
        log = os.path.join(options.build, f"ctest{which}.log")
        for line in stream(command, env, log):
            if isinstance(line, int):
                break
            match = re.match(r"\s*(\d+/\d+) Test +#\d+: (\S+) \.+ *(.*?) +([\d.]+) sec", line)
            if match:
                count, name, result, seconds = match.groups()
                outcome[name] = result.strip("* ")
                print(f"   [{count}] {name}: {outcome[name]} ({seconds} s)", flush=True)
            elif not re.match(r"\s*Start +\d+:|Test project|Internal ctest|$", line) \
                    and not re.match(r"\d+% tests passed|Total Test time|Label Time|.*sec\*proc", line):
                print("     " + line, flush=True)
    had_failure = read_gtest(reports, tally)
    for name, result in outcome.items():
        if result == "Passed":
            if name not in had_failure:
                tally.passed += 1  # no GoogleTest program: a tool, a corpus, a script
        elif result.startswith("Skipped") or result == "Not Run (Disabled)":
            tally.skipped.append((name, "ctest: " + result))
        elif not had_failure.get(name, False):
            tally.failed.append(f"{name}: {result}")
    if not outcome and not options.only:
        tally.failed.append("ctest: ran nothing")


VERBS = ("ofi_verbs_test", "kv_verbs_test")  # what tools/roce_tests.sh runs
LONG_RC_PARAMS = "max_success=2000"  # rapidcheck: cases per property, 100 otherwise
LONG_ROCE_REPEATS, LONG_ROCE_SECONDS = "5", "1800"


def run_soft_roce(options, env, work, tally):
    """The verbs cases on real verbs, in a throw-away VM with Soft-RoCE. Replaces the programs' own skips: a machine
    without a card skips every case."""
    print("-- verbs on Soft-RoCE (a VM; about two minutes, longer the first time)", flush=True)
    passed, failed, said, status = [], [], "", None
    log = os.path.join(options.build, "soft-roce.log")
    repeats = "1"
    if options.mode in ("long", "full"):
        repeats = LONG_ROCE_REPEATS
        env = dict(env, FARLIFT_ROCE_SECONDS=LONG_ROCE_SECONDS)
    for line in stream(["tools/roce_tests.sh", options.build, repeats], env, log):
        if isinstance(line, int):
            status = line
            break
        said = line or said
        if match := re.match(r"\[ +(OK|FAILED) +\] (\S+) \(", line):
            if match[2] not in (passed if match[1] == "OK" else failed):  # named once, however often it was repeated
                (passed if match[1] == "OK" else failed).append(match[2])
            print(f"   {match[2]}: {match[1]}", flush=True)
    if status == 77:
        print("   " + said, flush=True)
        return
    if status != 0 and not failed or status == 0 and not passed:
        failed.append(f"soft-roce: status {status}: {said} (see {log})")
    passed = [name for name in passed if name not in failed]
    tally.skipped = [one for one in tally.skipped if not one[0].startswith(VERBS)]
    tally.passed += len(passed)
    tally.failed += [f"verbs on Soft-RoCE: {name}" for name in failed]


def run_fuzz(options, env, tally):
    """The fuzz targets of another build, for a bounded time each."""
    print(f"-- fuzz targets, {options.fuzz_seconds} s each", flush=True)
    log, failed, status = os.path.join(options.build, "fuzz.log"), len(tally.failed), None
    command = [PYTHON, "tools/run_fuzz.py", "--build", options.fuzz_build, "--seconds", str(options.fuzz_seconds),
               "--jobs", str(options.jobs)]
    for line in stream(command, env, log):
        if isinstance(line, int):
            status = line
        elif match := re.fullmatch(r"(\d+) passed, \d+ failed, \d+ skipped", line):
            tally.passed += int(match[1])
        elif line.startswith("FAILED: "):
            tally.failed.append("fuzz: " + line.removeprefix("FAILED: "))
        else:
            print("   " + line, flush=True)
    if status != 0 and len(tally.failed) == failed:
        tally.failed.append(f"fuzz: ended with status {status} (see {log})")


def run_simulation(options, env, tally):
    """The cache's simulation, many seeds on all cores. What the time did not suffice for counts as skipped."""
    program = os.path.join(options.build, "tests", "sim", "kvcache_sim_test")
    title = f"simulation of {options.seeds} seeds"
    print(f"-- {title}, for {options.seed_seconds} s at most", flush=True)
    status, lines = None, []
    command = [program, "--from", "1", "--count", str(options.seeds), "--seconds", str(options.seed_seconds),
               "--jobs", str(options.jobs), "--progress", "60"]
    for line in stream(command, env, os.path.join(options.build, "simulation.log")):
        if isinstance(line, int):
            status = line
        elif not re.match(r" *\d+ (get|put|remove|rogue|strike)", line):
            print("   " + line, flush=True)
            lines.append(line)
    left = next((line for line in lines if re.match(r"\d+ remain", line)), None)
    if status != 0:
        tally.failed.append(f"{title}: " + next((line for line in lines if line.startswith("seed ")), f"status {status}"))
    elif left:
        tally.skipped.append((title, left))
    else:
        tally.passed += 1


def preload_of(options):
    """What a Python or server binary built without the sanitizer must load first."""
    library = {"asan": "libasan.so", "tsan": "libtsan.so"}.get(options.preset)
    if library is None:
        return ""
    out = subprocess.run(["g++", f"-print-file-name={library}"], capture_output=True, text=True, check=True)
    runtime = os.path.realpath(out.stdout.strip())
    allocator = os.path.join(options.build, "lib", "liballocator.so")  # tests/sanitizer
    for needed in (runtime, allocator):
        if not os.path.isabs(needed) or not os.path.exists(needed):
            sys.exit(f"run_tests: {needed} is missing, which the {options.preset} run needs")
    return f"{runtime} {allocator}"


def run_pytest(options, env, work, tally, folders, title, python=PYTHON, sanitized=True, only=""):
    print(f"-- {title}", flush=True)
    report = os.path.join(work, re.sub(r"\W+", "_", title) + ".xml")
    command = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-o", "console_output_style=count",
               f"--junitxml={report}", f"--basetemp={work}/pytest", "-rfE", "--tb=short"] + folders
    if options.mode in ("long", "full") and folders[0] in ("tests/e2e", "python/tests"):
        command.append("--long")
    if options.only or only:
        command += ["-k", " and ".join(filter(None, (options.only, only)))]
    if options.sanitizer_preload and sanitized:
        # libstdc++ as well: the runtime looks for its throw when it starts, and Python brings none.
        env = dict(env, LD_PRELOAD=options.sanitizer_preload + " libstdc++.so.6", PYTHONMALLOC="malloc",
                   ASAN_OPTIONS=env["ASAN_OPTIONS"] + ":detect_leaks=0")
    code = None
    for line in stream(command, env, os.path.join(options.build, "pytest.log")):
        if isinstance(line, int):
            code = line
        elif line:
            print("   " + line, flush=True)
    try:
        root = ElementTree.parse(report).getroot()
    except (OSError, ElementTree.ParseError):
        tally.failed.append(f"{title}: pytest ended with status {code} and wrote no report")
        return
    failed = len(tally.failed)
    for case in root.iter("testcase"):
        tally.add_junit_case("pytest", case)
    if code not in (0, 1, 5) or (code == 1 and len(tally.failed) == failed):
        tally.failed.append(f"{title}: pytest ended with status {code}")
    if code == 5 and not options.only and not only:
        tally.failed.append(f"{title}: pytest found no test")


def adopt_orphans():
    """Grandchildren whose parent died become ours, so that nothing we started can outlive us unseen."""
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    return prctl(36, 1, 0, 0, 0) == 0  # PR_SET_CHILD_SUBREAPER


def children():
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
                name, rest = re.match(r"\d+ \((.*)\) (.*)", file.read(), re.S).groups()
        except (OSError, AttributeError):
            continue
        state, parent = rest.split()[:2]
        if int(parent) == os.getpid():
            found.append((int(pid), name, state))
    return found


def reap_left_behind(tally):
    """Ends processes that outlived their test, by pid; a test that leaves one has failed."""
    deadline, killed = time.monotonic() + 10, set()
    while True:
        alive = []
        for pid, name, state in children():
            if state == "Z":
                try:
                    os.waitpid(pid, os.WNOHANG)
                except ChildProcessError:
                    pass
            else:
                alive.append((pid, name))
        if not alive or time.monotonic() > deadline:
            break
        if time.monotonic() > deadline - 8:  # two seconds to leave by themselves
            for pid, name in alive:
                if pid not in killed:
                    tally.failed.append(f"left behind: process {name} ({pid})")
                    killed.add(pid)
                    os.kill(pid, signal.SIGKILL)
        time.sleep(0.05)


def shared_memory():
    try:
        return set(os.listdir("/dev/shm"))
    except OSError:
        return set()


def remove_left_behind(work, shared_before, tally):
    """Temporary files that tests forgot. Ours by name only: this machine may run other things."""
    for name in sorted(shared_memory() - shared_before):
        if "farlift" in name:
            tally.failed.append(f"left behind: /dev/shm/{name}")
            os.unlink(os.path.join("/dev/shm", name))
    temp = os.path.join(work, "tmp")
    for name in sorted(os.listdir(temp)):
        if name.startswith("farlift"):
            tally.failed.append(f"left behind: temporary {name}")


def environment(options, work, reports):
    env = dict(os.environ, TMPDIR=os.path.join(work, "tmp"), LC_ALL="C.UTF-8", PYTHONDONTWRITEBYTECODE="1", PYTHONUNBUFFERED="1",
               FARLIFT_BUILD=options.build,
               FARLIFT_MODULE=os.path.join(options.build, "lib", "libfarlift_blob.so"),
               FARLIFT_BINARY=os.path.join(options.build, "bin", "farlift"),
               FARLIFT_PYTHONPATH=os.path.join(options.build, "python"))
    os.mkdir(env["TMPDIR"])
    if options.mode in ("long", "full"):
        env.update(FARLIFT_LONG="1", RC_PARAMS=LONG_RC_PARAMS)
    if options.preset in ("asan", "tsan"):
        env.update(reports.options(), FARLIFT_SANITIZER=options.preset,
                   FARLIFT_SERVER_PRELOAD=options.sanitizer_preload)
    return env


def full_python(options, name="full", what="heavy Python peers"):
    """A virtual environment with what tests/requirements-NAME.txt pins; None when it cannot be made."""
    folder = os.path.join(os.path.dirname(options.build), "venv-" + name)
    python = os.path.join(folder, "bin", "python3")
    if not os.path.exists(python):
        subprocess.run([PYTHON, "-m", "venv", *(["--system-site-packages"] if name == "full" else []), folder], check=True)
    wanted = os.path.join(ROOT, "tests", f"requirements-{name}.txt")
    print(f"-- installing {what} (tests/requirements-{name}.txt)", flush=True)
    done = subprocess.run([python, "-m", "pip", "install", "-q", "-r", wanted], check=False)
    return python if done.returncode == 0 else None


def run_s3(options, env, work, tally):
    """The S3 door by real clients: the distribution's boto3, aws and rclone, then the newest boto3."""
    run_pytest(options, env, work, tally, ["tests/s3"], "S3 clients", sanitized=False)
    python = full_python(options, "s3", "the newest boto3")
    if python is None:
        tally.skipped.append(("the newest boto3", "could not be installed from PyPI"))
        return
    run_pytest(options, env, work, tally, ["tests/s3"], "S3, the newest boto3", python, sanitized=False, only="boto3")


def run_lmcache(options, env, work, tally):
    """The adapter against the real package; both it and our double of it run the same tests."""
    python = full_python(options, "lmcache")
    if python is None:
        tally.skipped.append(("LMCache itself", "could not be installed from PyPI"))
        return
    run_pytest(options, dict(env, FARLIFT_LMCACHE="real"), work, tally, ["tests/lmcache"], "LMCache itself", python)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--build", required=True)
    parser.add_argument("--preset", default="release")
    parser.add_argument("--mode", choices=["normal", "quick", "long", "full"], default="normal")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--only", default="")
    parser.add_argument("--seeds", type=int, default=1_000_000, help="of the simulation, in long runs")
    parser.add_argument("--seed-seconds", type=int, default=10_800, help="for them, at most")
    parser.add_argument("--fuzz-build", default="", help="run the fuzz targets of this build, too")
    parser.add_argument("--fuzz-seconds", type=int, default=60)
    options = parser.parse_args()
    options.build = os.path.abspath(options.build)
    options.sanitizer_preload = preload_of(options)
    reports = SanitizerReports(os.path.join(options.build, "sanitizer-reports"))
    shutil.rmtree(reports.folder, ignore_errors=True)
    os.makedirs(reports.folder)
    tally, started, shared_before = Tally(), time.monotonic(), shared_memory()
    adopt_orphans()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    work = tempfile.mkdtemp(prefix="flt.")
    try:
        env = environment(options, work, reports)
        run_ctest(options, env, work, tally)
        reports.collect(tally)
        run_pytest(options, env, work, tally, ["tests/tools"], "tests of the tools", sanitized=False)
        if options.mode != "quick":
            python = PYTHON
            if options.mode == "full":
                python = full_python(options)
                if python is None:
                    tally.skipped.append(("heavy Python peers", "could not be installed from PyPI"))
                    python = PYTHON
            run_pytest(options, env, work, tally, ["tests/e2e"], "end to end", python)
            run_pytest(options, env, work, tally, ["python/tests"], "Python client", python)
            run_pytest(options, env, work, tally, ["tests/lmcache"], "LMCache adapter, against a double of LMCache", python)
            run_s3(options, env, work, tally)
            if options.preset == "release" and not options.only:
                run_soft_roce(options, env, work, tally)
            if options.mode == "full":
                run_pytest(options, env, work, tally, ["tests/full"], "heavy Python peers", python)
                run_lmcache(options, env, work, tally)
        if options.fuzz_build:
            run_fuzz(options, env, tally)
        if options.mode in ("long", "full") and options.preset == "release" and not options.only:
            run_simulation(options, env, tally)
        reap_left_behind(tally)
        reports.collect(tally)
        remove_left_behind(work, shared_before, tally)
    finally:
        reap_left_behind(tally)
        shutil.rmtree(work, ignore_errors=True)
    print(f"-- took {time.monotonic() - started:.0f} s")
    for name, reason in tally.skipped:
        print(f"skipped: {name}: {reason}")
    for name in tally.failed:
        print(f"FAILED: {name}")
    print(f"{tally.passed} passed, {len(tally.failed)} failed, {len(tally.skipped)} skipped", flush=True)
    return 1 if tally.failed or not tally.passed else 0


if __name__ == "__main__":
    sys.exit(main())
