#!/usr/bin/env python3
"""Checks the direction of includes: the tree is the architecture.

    tools/check_layers.py [--root DIR]      exit 0: clean    1: violations, one a line    2: wrong use

Every C++ file below src/ and include/ belongs to a layer (the table ALLOWED). A file may include
its own layer and the layers below it, transitively; tests (`*_test.cc`, `*_bench.cc`, `*_fuzz.cc`)
may include anything. Headers besides carry no third-party type, and some libraries are confined to
one folder wherever they appear.
"""
import argparse
import os
import re
import sys

# layer: the layers it may include directly. The closure is taken below.
ALLOWED = {
    "core/base": [],
    "core/codec": ["core/base"],
    "core/digest": ["core/base"],
    "core/fabric": ["core/base", "core/codec", "core/digest"],
    "core/disk": ["core/base", "core/codec", "core/digest"],
    "core/net": ["core/base", "core/codec", "core/digest"],
    "core/memory": ["core/fabric"],
    "core/store": ["core/memory", "core/digest"],
    "core/transfer": ["core/memory", "core/digest"],
    "include": [],
}
CORE = [name for name in ALLOWED if name.startswith("core/")]
WIRE = ["core/base", "core/codec", "core/digest"]
DOORS = {
    "blob": {"client": [], "module": []},
    "kvcache": {"client": ["control"], "control": [], "node": ["control"]},
    "s3": {"client": [], "gateway": ["catalog"], "catalog": [], "object": [], "volume": []},
}
for door, processes in DOORS.items():
    ALLOWED[f"{door}/wire"] = WIRE
    for process, siblings in processes.items():
        ALLOWED[f"{door}/{process}"] = (
            CORE + ["include", f"{door}/wire"] + [f"{door}/{s}" for s in siblings])
ALLOWED["apps"] = [name for name in ALLOWED if name != "apps"]

# Subfolders that are alternatives of each other: none knows the other.
ALTERNATIVES = {
    "core/fabric": ["soft", "ofi", "dc", "sim"],
    "core/disk": ["uring", "posix", "sim"],
    "core/net": ["asio", "sim"],
}

STANDARD_C = set("""aio alloca arpa assert byteswap complex cpuid ctype dirent dlfcn elf endian errno
execinfo fcntl fenv float fnmatch ftw getopt glob grp ifaddrs immintrin inttypes langinfo libgen
limits link linux locale malloc math mntent netdb netinet net nmmintrin poll pthread pty pwd regex
sched search semaphore setjmp signal spawn stdalign stdarg stdatomic stdbool stddef stdint stdio
stdlib string strings sys sysexits syslog termios threads time ucontext unistd utime wchar wctype
wmmintrin x86intrin asm arm_acle arm_neon smmintrin tmmintrin emmintrin xmmintrin""".split())

# Third-party headers allowed in our headers, by folder prefix (relative to src/).
HEADER_ALLOWED = [
    ("", "tl/expected.hpp"),  # what Result is made of
    ("core/fabric/ofi/", "rdma/"),
    ("core/fabric/dc/", "infiniband/"),
    ("core/disk/uring/", "liburing.h"),
    ("core/net/asio/", "boost/"),
]
# Libraries confined to a folder, in sources too (relative to the root).
CONFINED = [
    (re.compile(r"^boost/(asio|beast)"), "src/core/net/"),
    (re.compile(r"^CLI/"), "src/apps/"),
    (re.compile(r"^toml\+\+"), "src/apps/"),
    (re.compile(r"^pybind11/"), "python/"),
    (re.compile(r"^rdma/"), "src/core/fabric/ofi/"),
    (re.compile(r"^infiniband/"), "src/core/fabric/dc/"),
]
INCLUDE = re.compile(r'^\s*#\s*include\s*(["<])([^">]+)[">]')


def closure(layer):
    """The layers that `layer` may include, transitively, itself included."""
    seen, todo = set(), [layer]
    while todo:
        one = todo.pop()
        if one not in seen:
            seen.add(one)
            todo.extend(ALLOWED.get(one, []))
    return seen


def layer_of(path):
    """Layer of a path relative to src/ (or beginning with include/), or None."""
    parts = path.split("/")
    if parts[0] in ("include", "farlift"):
        return "include"
    if parts[0] == "apps":
        return "apps"
    if len(parts) >= 2 and "/".join(parts[:2]) in ALLOWED:
        return "/".join(parts[:2])
    return None


def alternative_of(path):
    for folder, subs in ALTERNATIVES.items():
        for sub in subs:
            if path.startswith(f"{folder}/{sub}/"):
                return f"{folder}/{sub}"
    return None


def is_test(path):
    return re.search(r"(_test|_bench|_fuzz|_test_base)\.(cc|h)$|/conformance\w*\.(cc|h)$|/fake_\w+\.h$", path) is not None


def is_third_party(name):
    if name.startswith("farlift/"):
        return False
    first = name.split("/")[0]
    if "/" not in name and not re.search(r"\.h(pp|h)?$", name):
        return False  # <vector>
    return re.sub(r"\.h$", "", first) not in STANDARD_C


def sources(root):
    for top in ("src", "include", "python", "tests", "fuzz", "bench"):
        for folder, dirs, names in os.walk(os.path.join(root, top)):
            dirs[:] = sorted(d for d in dirs if d not in ("build", "__pycache__", "node_modules"))
            for name in sorted(names):
                if name.endswith((".h", ".cc", ".c", ".hpp", ".cpp")):
                    yield os.path.relpath(os.path.join(folder, name), root)


def check_file(root, path):
    with open(os.path.join(root, path), encoding="utf-8") as file:
        lines = file.read().split("\n")
    inside = path[4:] if path.startswith("src/") else path
    layer = layer_of(inside) if path.startswith(("src/", "include/")) else None
    if path.startswith("src/") and layer is None:
        yield f"{path}:1: belongs to no layer; see the tree in ARCHITECTURE.md"
        return
    allowed = closure(layer) if layer else None
    for number, line in enumerate(lines, 1):
        match = INCLUDE.match(line)
        if not match:
            continue
        quoted, name = match.group(1) == '"', match.group(2)
        where = f"{path}:{number}: "
        for pattern, home in CONFINED:
            if pattern.match(name) and not path.startswith((home, "tests/", "fuzz/", "bench/")) \
                    and not is_test(path):
                yield where + f"<{name}> belongs in {home} only"
        if allowed is None or is_test(path):
            continue
        target = layer_of(name) if quoted or name.startswith("farlift/") else None
        if quoted and target is None and not name.startswith("tests/"):
            yield where + f'"{name}" is no path from src/ (project includes are written from src/)'
        elif quoted and name.startswith("tests/"):
            yield where + f"{layer} must not include tests"
        elif target is not None and target not in allowed:
            yield where + f'{layer} must not include {target} ("{name}")'
        elif target is not None:
            mine, theirs = alternative_of(inside), alternative_of(name)
            if mine and theirs and mine != theirs:
                yield where + f"{mine} must not know {theirs}"
            if theirs and not mine and target in ALTERNATIVES and layer not in (target,) \
                    and layer.startswith("core/"):
                yield where + f'{layer} must not know an implementation ("{name}")'
        if not quoted and path.endswith((".h", ".hpp")) and is_third_party(name):
            if not any(inside.startswith(p) and name.startswith(n) for p, n in HEADER_ALLOWED):
                yield where + f"third-party <{name}> in a header; keep it in a .cc"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--root", default=os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    root = parser.parse_args().root
    count = files = 0
    for path in sources(root):
        files += 1
        for violation in check_file(root, path):
            print(violation)
            count += 1
    if files == 0:
        print(f"check_layers: no C++ file below {root}", file=sys.stderr)
        return 2
    print(f"check_layers: {files} files, {count} violations")
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main())
