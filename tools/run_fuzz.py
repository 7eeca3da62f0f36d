#!/usr/bin/env python3
"""Runs the fuzz targets that the `fuzz` preset built: `./test --fuzz` and the fuzz part of `./test --long`.

    tools/run_fuzz.py --build DIR [--seconds N] [--jobs N] [--only REGEX] [--merge]

First the canaries: the harness must find each bug planted in fuzz/canary_fuzz.cc, or nothing else counts. Then every
target for N seconds on its corpus, with AddressSanitizer, UndefinedBehaviorSanitizer and leak detection; inputs that
were found stay in DIR/corpus and are the start of the next run. Last the reach: the corpus must cover the share of
lines that fuzz/reach.txt names, so that a target that stops at its first check is noticed.

--merge adds to fuzz/corpus what reaches new code, smallest first. A failing input is left in DIR/findings; put it into
fuzz/corpus/TARGET under a name that says what it is, and fix the cause.

Exit status: 0 all passed, 1 a target failed. The last line is `N passed, N failed, N skipped`.
"""
import argparse
import concurrent.futures
import glob
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
CORPUS = os.path.join(ROOT, "fuzz", "corpus")
CANARIES = {  # the planted bug: what must be in the report
    "crash": "canary: the planted bug was found",
    "overread": "AddressSanitizer: heap-buffer-overflow",
    "overflow": "runtime error: signed integer overflow",
    "leak": "LeakSanitizer: detected memory leaks",
    "hang": "libFuzzer: timeout after",
    "memory": "libFuzzer: out-of-memory",
}
CANARY_SECONDS = 60  # they are found within one; the rest is for a busy machine
INPUTS_MAX = 100     # kept of one target by --merge, above its named seeds
INPUT_BYTES_MAX = 4096
ENVIRONMENT = dict(
    os.environ,
    LLVM_PROFILE_FILE="/dev/null",  # unless asked for
    ASAN_OPTIONS="detect_leaks=1:strict_string_checks=1:detect_stack_use_after_return=1:allocator_may_return_null=1",
    UBSAN_OPTIONS="print_stacktrace=1:halt_on_error=1")


def run(command, seconds, **more):
    """(exit status, output); the status is 124 when the program had to be ended."""
    env = dict(ENVIRONMENT, **more)
    try:
        done = subprocess.run(command, env=env, capture_output=True, text=True, errors="replace", check=False,
                              timeout=seconds, cwd=ROOT, stdin=subprocess.DEVNULL)
        return done.returncode, done.stdout + done.stderr
    except subprocess.TimeoutExpired as error:
        parts = [p.decode(errors="replace") if isinstance(p, bytes) else p or "" for p in (error.stdout, error.stderr)]
        return 124, "".join(parts)


class Target:
    def __init__(self, options, program):
        self.program = program
        self.name = os.path.basename(program).removesuffix("_fuzz")
        self.seeds = os.path.join(CORPUS, self.name)
        self.found = os.path.join(options.build, "corpus", self.name)
        self.findings = os.path.join(options.build, "findings")
        self.log = os.path.join(options.build, f"{self.name}.fuzz.log")
        dictionary = os.path.join(ROOT, "fuzz", "dict", f"{self.name}.dict")
        self.dictionary = [f"-dict={dictionary}"] if os.path.exists(dictionary) else []
        os.makedirs(self.found, exist_ok=True)
        os.makedirs(self.findings, exist_ok=True)

    def fuzz(self, seconds):
        """None, or what went wrong."""
        if not os.path.isdir(self.seeds) or not os.listdir(self.seeds):
            return "no seeds in fuzz/corpus"
        code, words = run([self.program, f"-max_total_time={seconds}", "-rss_limit_mb=2048", "-timeout=20",
                           "-print_final_stats=1", f"-artifact_prefix={self.findings}/{self.name}-", *self.dictionary,
                           self.found, self.seeds], seconds + 120)
        with open(self.log, "w", encoding="utf-8") as file:
            file.write(words)
        runs = re.search(r"number_of_executed_units: (\d+)", words)
        new = re.search(r"new_units_added: +(\d+)", words)
        print(f"   {self.name}: {runs[1] if runs else '?'} inputs, {new[1] if new else '?'} new", flush=True)
        if code == 0:
            return None
        last = [line for line in words.split("\n") if re.search(r"SUMMARY|assertion failed|runtime error", line)]
        return f"status {code}: {' / '.join(last[:3]) or 'no report'} (see {os.path.relpath(self.log, ROOT)})"

    def merge(self):
        """Adds the inputs that reach new code to the seeds."""
        with tempfile.TemporaryDirectory(prefix="farlift-merge.") as folder:
            for path in glob.glob(os.path.join(self.seeds, "*")):
                shutil.copy(path, folder)
            before = set(os.listdir(folder))
            code, words = run([self.program, "-merge=1", "-use_counters=0", f"-max_len={INPUT_BYTES_MAX}", folder,
                               self.found], 600)
            if code != 0:
                print(words[-2000:])
                return f"merge: status {code}"
            fresh = sorted(set(os.listdir(folder)) - before, key=lambda n: os.path.getsize(os.path.join(folder, n)))
            room = max(0, INPUTS_MAX - sum(re.fullmatch(r"[0-9a-f]{40}", n) is not None for n in before))
            for name in fresh[:room]:
                shutil.copy(os.path.join(folder, name), self.seeds)
            print(f"   {self.name}: {min(len(fresh), room)} inputs added", flush=True)
        return None

    def reach(self, folders):
        """{source file: (lines reached, lines)} of a run over what is in the folders."""
        with tempfile.TemporaryDirectory(prefix="farlift-reach.") as folder:
            raw, profile = os.path.join(folder, "raw"), os.path.join(folder, "profile")
            code, words = run([self.program, "-runs=0", "-timeout=60", *folders], 600, LLVM_PROFILE_FILE=raw)
            if code != 0 or not os.path.exists(raw):
                raise RuntimeError(f"{self.name}: replay ended with status {code}: {words[-400:]}")
            subprocess.run(["llvm-profdata-14", "merge", "-o", profile, raw], check=True)
            out = subprocess.run(["llvm-cov-14", "export", "--summary-only", f"--instr-profile={profile}", self.program],
                                 check=True, capture_output=True, text=True).stdout
        return {os.path.relpath(os.path.realpath(file["filename"]), ROOT):
                (file["summary"]["lines"]["covered"], file["summary"]["lines"]["count"])
                for file in json.loads(out)["data"][0]["files"]}


def canary(program, build, bug, words):
    findings = os.path.join(build, "findings", f"canary-{bug}-")
    code, report = run([program, "-max_len=16", f"-max_total_time={CANARY_SECONDS}", "-timeout=5", "-seed=1",
                        "-malloc_limit_mb=1024", "-rss_limit_mb=2048", f"-artifact_prefix={findings}"],
                       CANARY_SECONDS + 60, FARLIFT_CANARY=bug)
    for path in glob.glob(glob.escape(findings) + "*"):
        os.unlink(path)
    if code != 0 and words in report:
        return None
    return f"the planted bug was not found (status {code}): {report[-300:]}"


def read_reach():
    """[(target, source file, least percent)] of fuzz/reach.txt"""
    rows = []
    with open(os.path.join(ROOT, "fuzz", "reach.txt"), encoding="utf-8") as file:
        for line in file:
            words = line.split("#")[0].split()
            if words:
                rows.append((words[0], words[1], float(words[2])))
    return rows


def check_reach(targets, failed):
    """Counts what passed; prints the share of lines of every file that reach.txt names."""
    passed, known = 0, {}
    rows = read_reach()
    for target in targets:
        wanted = [row for row in rows if row[0] == target.name]
        if not wanted:
            failed.append(f"reach of {target.name}: fuzz/reach.txt names no file for it")
            continue
        try:
            known = target.reach([target.seeds, target.found])
        except (RuntimeError, subprocess.CalledProcessError) as error:
            failed.append(f"reach of {target.name}: {error}")
            continue
        for _, path, least in wanted:
            covered, count = known.get(path, (0, 0))
            share = 100.0 * covered / count if count else 0.0
            print(f"   {target.name}: {path}: {covered} of {count} lines, {share:.1f} % (at least {least:g} %)", flush=True)
            if share < least:
                failed.append(f"reach of {target.name}: {path}: {share:.1f} %, wanted {least:g} %")
            else:
                passed += 1
    return passed


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--build", required=True)
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--only", default="")
    parser.add_argument("--merge", action="store_true")
    options = parser.parse_args()
    options.build = os.path.abspath(options.build)
    started, passed, failed = time.monotonic(), 0, []
    programs = sorted(glob.glob(os.path.join(options.build, "fuzz", "*_fuzz")))
    canaries = [p for p in programs if os.path.basename(p) == "canary_fuzz"]
    targets = [Target(options, p) for p in programs if p not in canaries and re.search(options.only, p)]
    if not canaries or not targets:
        print("run_fuzz: nothing to run; build it with: cmake --preset fuzz && ninja -C build/fuzz fuzz_targets")
        return 1
    print("-- canaries: the harness finds what was planted", flush=True)
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for bug, wrong in zip(CANARIES, pool.map(lambda c: canary(canaries[0], options.build, *c), CANARIES.items())):
            print(f"   {bug}: {'found' if wrong is None else 'NOT FOUND'}", flush=True)
            passed += wrong is None
            if wrong is not None:
                failed.append(f"canary {bug}: {wrong}")
        print(f"-- {len(targets)} targets, {options.seconds} s each", flush=True)
        for target, wrong in zip(targets, pool.map(lambda t: t.fuzz(options.seconds), targets)):
            passed += wrong is None
            if wrong is not None:
                failed.append(f"{target.name}: {wrong}")
    if options.merge:
        print("-- merging", flush=True)
        failed += [f"{t.name}: {wrong}" for t in targets if (wrong := t.merge()) is not None]
    print("-- reach", flush=True)
    passed += check_reach(targets, failed)
    print(f"-- took {time.monotonic() - started:.0f} s")
    for line in failed:
        print(f"FAILED: {line}")
    print(f"{passed} passed, {len(failed)} failed, 0 skipped", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
