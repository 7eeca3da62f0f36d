#!/usr/bin/env python3
"""The style run of `./test --tidy`: formatting, habits, soft limits, and clang 14 over every file.

    tools/run_tidy.py --build DIR [--jobs N] [--only REGEX]     exit 0: clean   1: findings
    DIR was configured by the `tidy` preset; nothing needs to be built. The product's files go through clang-tidy, whose
    front end checks the lock annotations; tests, benchmarks and fuzz targets through the front end alone.
"""
import argparse
import concurrent.futures
import json
import os
import re
import shlex
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def clang_tidy(build, path):
    done = subprocess.run(["clang-tidy-14", "-p", build, "--quiet", path], capture_output=True, text=True, check=False)
    return path, done.returncode, done.stdout


def front_end(entry):
    """Compiles without making anything: clang's warnings, the lock annotations among them, are errors."""
    words = shlex.split(entry["command"])
    words = words[next(i for i, word in enumerate(words) if "clang" in os.path.basename(word)):]
    at = words.index("-o")
    del words[at:at + 2]
    done = subprocess.run([*words, "-fsyntax-only"], cwd=entry["directory"], capture_output=True, text=True, check=False)
    return entry["file"], done.returncode, done.stdout + done.stderr


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--build", required=True)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    passed, failed = 0, []
    for tool in (["format.py", "--check"], ["tidy.py", "--warnings"], ["check_layers.py"]):
        print(f"-- {tool[0]}", flush=True)
        if subprocess.run([sys.executable, os.path.join(ROOT, "tools", tool[0]), *tool[1:]], check=False).returncode:
            failed.append(tool[0])
        else:
            passed += 1
    with open(os.path.join(options.build, "compile_commands.json"), encoding="utf-8") as file:
        entries = {entry["file"]: entry for entry in json.load(file) if re.search(options.only, entry["file"])}
    paths = [p for p in sorted(entries) if p.startswith(os.path.join(ROOT, "src"))
             and not re.search(r"_(test|bench|fuzz)\.cc$|/conformance\w*\.cc$", p)]
    others = [entries[p] for p in sorted(entries) if p not in paths and p.endswith((".cc", ".cpp"))]
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for title, check, items in (("clang-tidy", lambda p: clang_tidy(options.build, p), paths),
                                    ("clang's front end", front_end, others)):
            print(f"-- {title}, {len(items)} files", flush=True)
            for path, code, words in pool.map(check, items):
                if code == 0:
                    passed += 1
                else:
                    failed.append(os.path.relpath(path, ROOT))
                    print(words, flush=True)
    for name in failed:
        print(f"FAILED: {name}")
    print(f"{passed} passed, {len(failed)} failed, 0 skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
