#!/usr/bin/env python3
"""The style run of `./test --tidy`: formatting, habits, soft limits, and clang-tidy 14 over src/.

    tools/run_tidy.py --build DIR [--jobs N] [--only REGEX]     exit 0: clean   1: findings
    The build tree was made by the `tidy` preset: compiling it has checked the lock annotations.
"""
import argparse
import concurrent.futures
import json
import os
import re
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def clang_tidy(build, path):
    done = subprocess.run(["clang-tidy-14", "-p", build, "--quiet", path], capture_output=True, text=True, check=False)
    return path, done.returncode, done.stdout


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
        paths = sorted({entry["file"] for entry in json.load(file)})
    paths = [p for p in paths if p.startswith(os.path.join(ROOT, "src")) and not re.search(r"_(test|bench|fuzz)\.cc$", p)
             and re.search(options.only, p)]
    print(f"-- clang-tidy, {len(paths)} files", flush=True)
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for path, code, words in pool.map(lambda p: clang_tidy(options.build, p), paths):
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
