#!/usr/bin/env python3
"""Checks the habits that no compiler checks. Runs as a test.

    tools/tidy.py [--root DIR] [--warnings]   exit 0: clean   1: errors, one a line   2: wrong use

Errors:   columns over 100, tabs and trailing blanks in C++; banned calls; headers without
          `#pragma once`; conditionals in public headers; `[` or `{` inside a co_await expression
          (g++ 12 destroys such temporaries twice); source files that no CMakeLists.txt names;
          paths of one machine and hosts of package registries anywhere in the repository.
Warnings: files over 400 lines, functions over 70 (soft limits; shown with --warnings).

A line may be excused where that is right: `// tidy: allow <rule> <reason>` on it or above it.
"""
import argparse
import os
import re
import subprocess
import sys

COLUMNS = 100
FILE_LINES = 400
FUNCTION_LINES = 70
CXX = (".h", ".cc", ".c", ".hpp", ".cpp")
TEXT = CXX + (".py", ".sh", ".md", ".txt", ".cmake", ".json", ".toml", ".yml", ".yaml", ".in", ".lds",
              ".cfg", ".ini", "")

# rule, pattern, what to do instead; looked for in code with comments and literals blanked.
BANNED = [
    ("unbounded-copy", r"\b(strcpy|strcat|sprintf|vsprintf|gets|stpcpy)\s*\(", "bounded copies only"),
    ("loose-number", r"\b(atoi|atol|atoll|atof|sscanf)\s*\(", "core/codec parses numbers strictly"),
    ("hidden-state", r"\b(strtok|rand|srand|localtime|gmtime|asctime|ctime)\s*\(",
     "not thread-safe; Prng, Clock or the _r form"),
    ("shell", r"(?<![\w.>:])(system|popen)\s*\(", "no shell"),
    ("stack", r"\balloca\s*\(", "no stack allocation of unknown size"),
    ("sleep", r"\b(usleep|nanosleep|sleep_for|sleep_until)\s*\(|(?<![\w.>])sleep\s*\(",
     "wait for the event, not for time"),
    ("detach", r"\.detach\s*\(\s*\)", "threads are joined"),
    ("assert", r"(?<![\w])assert\s*\(", "ASSERT stays on in release"),
    ("fence", r"\batomic_(thread|signal)_fence\b", "ThreadSanitizer cannot see fences"),
    ("endl", r"\bstd::endl\b", "'\\n'"),
    ("heavy-header", r"#\s*include\s*<(iostream|regex)>", "too slow to compile; <cstdio>, core/codec"),
    ("throw", r"(?<![\w])throw\b(?!\s*\()", "no exceptions in src/; return Result"),
    ("signal", r"(?<![\w.>:])signal\s*\(", "sigaction"),
    ("temp-name", r"\b(tmpnam|tempnam|mktemp)\s*\(", "mkdtemp or memfd_create"),
]
ONLY_SRC = {"throw", "sleep", "heavy-header", "loose-number", "endl"}  # tests may, with care
TEST_FILE = re.compile(r"(_test|_bench|_fuzz|_test_base)\.(cc|h)$|/conformance\w*\.(cc|h)$|/fake_\w+\.h$")
# Put together so that this file does not contain what it looks for.
HOSTS = "|".join(("pypi", "pythonhosted", "npmjs", "crates", "proxy[.]golang", "deb[.]debian",
                  "repo[.]maven"))
PLACES = [
    ("machine-path", re.compile(r"(?<![\w.$}~-])/(?:work|root|Users)/\w|(?<![\w.$}~-])/home/\w")),
    ("registry-host", re.compile(rf"\b(?:{HOSTS})[.](?:org|io|net|com)\b")),
]


def listed_files(root):
    """Paths relative to root: what git tracks, or everything where there is no git."""
    if os.path.exists(os.path.join(root, ".git")):
        out = subprocess.run(["git", "-C", root, "ls-files", "-z"], check=True, capture_output=True)
        names = [n for n in out.stdout.decode().split("\0") if n]
        return [n for n in names if os.path.isfile(os.path.join(root, n))]
    found = []
    for folder, dirs, names in os.walk(root):
        dirs[:] = [d for d in dirs if d not in ("build", "__pycache__", ".git")]
        found += [os.path.relpath(os.path.join(folder, n), root) for n in names]
    return sorted(found)


def blank(text):
    """The text with comments, string and character literals replaced by blanks of equal shape."""
    pattern = re.compile(
        r'//[^\n]*|/\*.*?\*/|R"(?P<d>[^(\s]{0,16})\(.*?\)(?P=d)"|"(?:\\.|[^"\\\n])*"'
        r"|(?<![0-9a-fA-F])'(?:\\.|[^'\\\n])+'", re.S)
    return pattern.sub(lambda m: re.sub(r"[^\n]", " ", m.group(0)), text)


def excused(lines, index, rule):
    mark = f"tidy: allow {rule} "
    return mark in lines[index] or (index > 0 and mark in lines[index - 1])


def check_cxx(path, text):
    lines, code = text.split("\n"), blank(text)
    bare = code.split("\n")
    for index, line in enumerate(lines):
        where = f"{path}:{index + 1}: "
        if len(line) > COLUMNS and "http" not in line and not excused(lines, index, "columns"):
            yield where + f"{len(line)} columns, at most {COLUMNS}"
        if "\t" in bare[index]:
            yield where + "tab"
        if line != line.rstrip():
            yield where + "trailing blank"
        for rule, pattern, instead in BANNED:
            if rule in ONLY_SRC and (not path.startswith("src/") or TEST_FILE.search(path)):
                continue
            searched = line if rule == "heavy-header" else bare[index]
            if re.search(pattern, searched) and not excused(lines, index, rule):
                yield where + f"banned ({rule}): {instead}"
        if re.search(r"\busing namespace\b", bare[index]) and path.endswith(".h"):
            yield where + "using namespace in a header"
        if path.startswith("include/") and re.match(r"\s*#\s*(if|ifdef|ifndef)\b", line):
            yield where + "conditional in a public header"
    if path.endswith((".h", ".hpp")) and "#pragma once" not in text:
        yield f"{path}:1: header without #pragma once"
    for match in re.finditer(r"\bco_await\b[^;]*;", code, re.S):
        if re.search(r"[\[{]", match.group(0)):
            line = code.count("\n", 0, match.start()) + 1
            yield f"{path}:{line}: '[' or '{{' inside a co_await expression; name it first"


def functions(text):
    """(first line, last line) of the bodies of functions, methods among them; lambdas count with what holds them."""
    code = re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", lambda m: "\n" * m.group(0).count("\n"), blank(text), flags=re.M)
    scopes, since = [], 0  # kinds of the open braces: a scope of declarations, a function, anything else
    for match in re.finditer(r"[{};]", code):
        mark, at = match.group(0), match.start()
        if mark == "{":
            head = code[since:at].strip()
            head = re.sub(r"^(public|private|protected)\s*:", "", head).strip()
            kind, outside = "other", all(k == "scope" for k, _ in scopes)
            if outside and re.search(r"\b(namespace|class|struct|union|enum|extern)\b", head) and \
                    not re.search(r"\)\s*(const|noexcept|override|final|\s)*$", head):
                kind = "scope"
            elif outside and re.search(r"\)[^=]*$", head):
                kind = "function"
            scopes.append((kind, code.count("\n", 0, at) + 1))
        elif mark == "}" and scopes:
            kind, start = scopes.pop()
            if kind == "function":
                yield start, code.count("\n", 0, at) + 1
        since = at + 1


def long_parts(path, text):
    if text.count("\n") > FILE_LINES:
        yield f"{path}:1: warning: {text.count(chr(10))} lines, aim at {FILE_LINES}"
    for start, end in functions(text):
        if end - start > FUNCTION_LINES:
            yield f"{path}:{start}: warning: function of {end - start} lines, aim at {FUNCTION_LINES}"


def check_dead(root, files):
    """Every compiled file is named by the CMakeLists.txt of its folder or of one above."""
    lists = {}
    for path in files:
        if os.path.basename(path) == "CMakeLists.txt":
            with open(os.path.join(root, path), encoding="utf-8") as file:
                lists[os.path.dirname(path)] = file.read()
    for path in files:
        if not path.endswith((".cc", ".c", ".cpp")) or path.startswith("tests/install/"):
            continue
        folder, named = os.path.dirname(path), False
        while not named:
            relative = os.path.relpath(path, folder or ".")
            named = re.search(rf"(?<![\w/.-]){re.escape(relative)}(?![\w-])", lists.get(folder, "")) \
                is not None or f"/{path}" in lists.get(folder, "")
            if not folder:
                break
            folder = os.path.dirname(folder)
        if not named and path not in "\n".join(read_cmake_modules(root, files)):
            yield f"{path}:1: dead file: no CMakeLists.txt names it"


def read_cmake_modules(root, files):
    for path in files:
        if path.endswith(".cmake"):
            with open(os.path.join(root, path), encoding="utf-8") as file:
                yield file.read()


def check_places(path, text):
    for number, line in enumerate(text.split("\n"), 1):
        for rule, pattern in PLACES:
            if pattern.search(line) and f"tidy: allow {rule}" not in line:
                yield f"{path}:{number}: {rule}: the repository names no machine and no registry host"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--root", default=os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    parser.add_argument("--warnings", action="store_true", help="show the soft limits too")
    options = parser.parse_args()
    root, errors, warnings = options.root, [], []
    files = listed_files(root)
    if not files:
        print(f"tidy: nothing below {root}", file=sys.stderr)
        return 2
    for path in files:
        if os.path.splitext(path)[1] not in TEXT:
            continue
        try:
            with open(os.path.join(root, path), encoding="utf-8") as file:
                text = file.read()
        except UnicodeDecodeError:
            continue  # a corpus file
        errors += check_places(path, text)
        if path.endswith(CXX):
            errors += check_cxx(path, text)
            warnings += long_parts(path, text)
    errors += check_dead(root, files)
    for line in errors + (warnings if options.warnings else []):
        print(line)
    print(f"tidy: {len(files)} files, {len(errors)} errors, {len(warnings)} soft limits passed")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
