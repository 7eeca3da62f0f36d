"""The tools that guard the tree find what is planted, and stay quiet on a clean tree."""
import os
import re
import subprocess
import sys

import pytest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def run(tool, root, *more):
    done = subprocess.run([sys.executable, os.path.join(ROOT, "tools", tool), "--root", str(root), *more],
                          capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stdout + done.stderr


def plant(root, path, text):
    target = root / path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text, encoding="utf-8")


LAYERS = [
    ("src/core/store/a.cc", '#include "core/transfer/b.h"\n', "must not include core/transfer"),
    ("src/core/base/a.h", '#pragma once\n#include "core/codec/b.h"\n', "must not include core/codec"),
    ("src/core/net/a.cc", '#include "core/fabric/b.h"\n', "must not include core/fabric"),
    ("src/blob/wire/a.cc", '#include "core/net/b.h"\n', "must not include core/net"),
    ("src/blob/client/a.cc", '#include "blob/module/b.h"\n', "must not include blob/module"),
    ("src/blob/module/a.cc", '#include "kvcache/wire/b.h"\n', "must not include kvcache/wire"),
    ("src/core/digest/a.cc", '#include "apps/b.h"\n', "must not include apps"),
    ("include/farlift/a.h", '#pragma once\n#include "core/base/b.h"\n', "must not include core/base"),
    ("src/core/fabric/soft/a.cc", '#include "core/fabric/ofi/b.h"\n', "must not know core/fabric/ofi"),
    ("src/core/memory/a.cc", '#include "core/fabric/soft/b.h"\n', "must not know an implementation"),
    ("src/core/digest/a.h", "#pragma once\n#include <openssl/evp.h>\n", "third-party"),
    ("src/core/store/a.cc", "#include <CLI/CLI.hpp>\n", "belongs in src/apps/ only"),
    ("src/blob/client/a.cc", "#include <boost/asio.hpp>\n", "belongs in src/core/net/ only"),
    ("src/apps/a.cc", '#include "../core/base/b.h"\n', "no path from src/"),
    ("src/core/store/a.cc", '#include "tests/b.h"\n', "must not include tests"),
    ("src/misc/a.cc", "int x;\n", "belongs to no layer"),
]


@pytest.mark.parametrize("path,text,complaint", LAYERS, ids=[f"{p}-{c}" for p, _, c in LAYERS])
def test_check_layers_finds(tmp_path, path, text, complaint):
    plant(tmp_path, path, text)
    code, out = run("check_layers.py", tmp_path)
    assert code == 1 and complaint in out and path in out


def test_check_layers_accepts_the_allowed(tmp_path):
    plant(tmp_path, "src/core/store/a.h", '#pragma once\n#include "core/fabric/b.h"\n#include <vector>\n'
          "#include <sys/socket.h>\n#include <stdint.h>\n")
    plant(tmp_path, "src/core/store/a_test.cc", '#include "blob/module/b.h"\n#include <gtest/gtest.h>\n')
    plant(tmp_path, "src/core/fabric/ofi/a.h", "#pragma once\n#include <rdma/fabric.h>\n")
    plant(tmp_path, "src/blob/module/a.cc", '#include "blob/wire/b.h"\n#include "core/fabric/soft/c.h"\n')
    plant(tmp_path, "src/apps/a.cc", '#include <CLI/CLI.hpp>\n#include <farlift/client.h>\n')
    assert run("check_layers.py", tmp_path)[0] == 0


TIDY = [
    ("src/a.cc", "int x;" + " // " + "y" * 100 + "\n", "columns"),
    ("src/a.cc", "int\tx;\n", "tab"),
    ("src/a.cc", "int x; \n", "trailing blank"),
    ("src/a.cc", "void f(char* d) { strcpy(d, d); }\n", "unbounded-copy"),
    ("src/a.cc", "int f(char* d) { return atoi(d); }\n", "loose-number"),
    ("src/a.cc", "int f() { return rand(); }\n", "hidden-state"),
    ("src/a.cc", "void f() { std::this_thread::sleep_for(x); }\n", "sleep"),
    ("src/a.cc", "void f() { t.detach(); }\n", "detach"),
    ("src/a.cc", "void f() { assert(x); }\n", "assert"),
    ("src/a.cc", "void f() { throw 1; }\n", "throw"),
    ("src/a.cc", "#include <iostream>\n", "heavy-header"),
    ("src/a.cc", "void f() { std::atomic_thread_fence(x); }\n", "fence"),
    ("src/a.h", "int x;\n", "#pragma once"),
    ("src/a.h", "#pragma once\nusing namespace std;\n", "using namespace"),
    ("include/farlift/a.h", "#pragma once\n#ifdef X\n#endif\n", "conditional in a public header"),
    ("src/a.cc", "T f() { co_await g(\n  [s] { h(); }); }\n", "co_await"),
    ("src/a.cc", "T f() { co_await g(Req{.a = s}); }\n", "co_await"),
    ("src/dead.cc", "int x;\n", "dead file"),
    ("docs/a.md", "see /" + "work/main\n", "machine-path"),
    ("docs/a.md", "from py" + "pi.org\n", "registry-host"),
]


@pytest.mark.parametrize("path,text,complaint", TIDY, ids=[f"{p}-{c}-{i}" for i, (p, _, c) in enumerate(TIDY)])
def test_tidy_finds(tmp_path, path, text, complaint):
    plant(tmp_path, path, text)
    plant(tmp_path, "src/CMakeLists.txt", "farlift_library(NAME x SRCS a.cc)\n")
    code, out = run("tidy.py", tmp_path)
    assert code == 1 and complaint in out and path in out
    assert out.rstrip().endswith("soft limits passed") and " 1 errors" in out


def test_tidy_accepts_the_clean_and_the_excused(tmp_path):
    plant(tmp_path, "src/CMakeLists.txt", "farlift_library(NAME x SRCS a.cc)\n")
    plant(tmp_path, "src/a.cc", '// strcpy( in a comment is no call\nconst char* s = "rand() atoi(";\n'
          "static_assert(sizeof(int) == 4);\n"
          "void f() { sleep_for(x); }  // tidy: allow sleep the card has no wait object here\n"
          "T g() { auto r = Req{.a = s}; co_await h(std::move(r)); }\n")
    code, out = run("tidy.py", tmp_path)
    assert code == 0, out


def test_tidy_warns_about_long_files_and_functions(tmp_path):
    plant(tmp_path, "src/CMakeLists.txt", "a.cc\n")
    plant(tmp_path, "src/a.cc", "int f() {\n" + "  g();\n" * 450 + "}\n")
    code, out = run("tidy.py", tmp_path, "--warnings")
    assert code == 0 and "function of 451 lines" in out and "a.cc:1: warning: 452 lines" in out


LIST = os.path.join(ROOT, "tests", "spec_cases.txt")


def cases(root, edit=lambda text: text):
    with open(LIST, encoding="utf-8") as file:
        text = edit(file.read())
    plant(root, "tests/spec_cases.txt", text)
    doors = next(line for line in text.split("\n") if line.startswith("delivered:")).split()[1:]
    rows = [[field.strip() for field in line.split("|")] for line in text.split("\n") if "|" in line and line[0] != "#"]
    return [fields[0] for fields in rows if len(fields) == 3 and fields[1] in doors]


def all_tests(ids):
    half = len(ids) // 2
    cxx = "".join(f"TEST(Suite, {i[0]}{int(i[1:]):03d}_words) {{}}\n" for i in ids[:half])
    return cxx, "".join(f"{'def'} test_{i}_words():\n    pass\n\n" for i in ids[half:])


def test_spec_cases_complete(tmp_path):
    cxx, python = all_tests(cases(tmp_path))
    plant(tmp_path, "src/a_test.cc", cxx)
    plant(tmp_path, "tests/e2e/test_a.py", python)
    code, out = run("spec_cases.py", tmp_path)
    assert code == 0 and "0 missing" in out, out


def test_spec_cases_finds_a_missing_one(tmp_path):
    ids = cases(tmp_path)
    ids.remove("B28")
    cxx, python = all_tests(ids)
    plant(tmp_path, "src/a_test.cc", cxx + "// TEST(Suite, B28 mentioned only)\n")
    plant(tmp_path, "tests/e2e/test_a.py", python)
    code, out = run("spec_cases.py", tmp_path)
    assert code == 1 and "B28: no test" in out and "1 missing" in out


def test_spec_cases_refuses_an_outlived_excuse(tmp_path):
    ids = cases(tmp_path)
    cxx, python = all_tests(ids + ["B79"])
    plant(tmp_path, "src/a_test.cc", cxx)
    plant(tmp_path, "tests/e2e/test_a.py", python)
    code, out = run("spec_cases.py", tmp_path)
    assert code == 1 and "B79: excused, yet tested" in out


@pytest.mark.parametrize("edit,complaint", [
    (lambda t: t.replace("B28 | blob", "B29 | blob"), "B28 is not listed"),
    (lambda t: t.replace("excuse: Tiered mode is refused at load for now", "excuse:", 1), "needs its reason"),
    (lambda t: t.replace("B28 | blob |", "B28 | blob"), "want 'id | door"),
])
def test_spec_cases_refuses_a_broken_list(tmp_path, edit, complaint):
    cases(tmp_path, edit)
    code, out = run("spec_cases.py", tmp_path)
    assert code == 2 and complaint in out


def load(tool):
    import importlib.util
    spec = importlib.util.spec_from_file_location(tool, os.path.join(ROOT, "tools", tool + ".py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_format_keeps_hanging_indents():
    wide = "word " * 22
    text = ("// Purpose.\n//\n// Threads:    any. " + wide + "\n//             second line.\n"
            "// Errors:     none.\nint x;  // " + "y" * 120 + "\n  // short\n")
    out = load("format").wrap_comments(text).split("\n")
    assert out[0] == "// Purpose." and out[1] == "//"
    assert out[2].startswith("// Threads:    any. word") and len(out[2]) <= 100
    assert out[3].startswith("//             word") and out[3].endswith("second line.")
    assert out[4] == "// Errors:     none." and out[6] == "  // short"


def test_format_leaves_what_fits():
    text = "// a\n//   code();\n//   more();\n//\n// b  c\n#include <x>\n"
    assert load("format").wrap_comments(text) == text


def fuzz_build(folder, canary, target):
    """A build folder with programs that are shell scripts."""
    for name, text in (("canary_fuzz", canary), ("codec_fuzz", target)):
        plant(folder, f"fuzz/{name}", "#!/bin/sh\n" + text)
        (folder / "fuzz" / name).chmod(0o755)
    return subprocess.run([sys.executable, os.path.join(ROOT, "tools", "run_fuzz.py"), "--build", str(folder),
                           "--seconds", "1", "--jobs", "4"], capture_output=True, text=True, timeout=60, check=False)


FINDS_ALL = """case $FARLIFT_CANARY in
crash) echo 'canary: the planted bug was found' ;; overread) echo 'AddressSanitizer: heap-buffer-overflow' ;;
overflow) echo 'runtime error: signed integer overflow' ;; leak) echo 'LeakSanitizer: detected memory leaks' ;;
hang) echo 'libFuzzer: timeout after 5' ;; memory) echo 'libFuzzer: out-of-memory' ;;
esac >&2; exit 77
"""


def test_run_fuzz_fails_when_a_planted_bug_is_not_found(tmp_path):
    done = fuzz_build(tmp_path, "exit 0\n", "exit 0\n")
    assert done.returncode == 1 and "FAILED: canary crash: the planted bug was not found" in done.stdout
    done = fuzz_build(tmp_path, FINDS_ALL.replace("hang)", "sleepy)"), "exit 0\n")
    assert done.returncode == 1 and "FAILED: canary hang" in done.stdout and "canary leak" not in done.stdout


def test_run_fuzz_reports_a_target_that_fails_and_one_that_reaches_nothing(tmp_path):
    done = fuzz_build(tmp_path, FINDS_ALL, "echo 'SUMMARY: AddressSanitizer: heap-use-after-free' >&2; exit 1\n")
    assert "FAILED: codec: status 1: SUMMARY: AddressSanitizer: heap-use-after-free" in done.stdout
    assert "canary" not in "".join(line for line in done.stdout.split("\n") if line.startswith("FAILED"))
    assert done.returncode == 1 and re.search(r"^6 passed, 2 failed, 0 skipped$", done.stdout, re.M)
    done = fuzz_build(tmp_path, FINDS_ALL, "exit 0\n")
    assert done.returncode == 1 and "FAILED: reach of codec" in done.stdout


def test_a_sanitizer_report_fails_the_run_once(tmp_path):
    run_tests = load("run_tests")
    reports, tally = run_tests.SanitizerReports(str(tmp_path)), run_tests.Tally()
    for name in ("ASAN_OPTIONS", "UBSAN_OPTIONS", "TSAN_OPTIONS"):
        assert f"log_path={tmp_path}/report" in reports.options()[name]
    reports.collect(tally)
    assert tally.failed == []
    plant(tmp_path, "report.valkey-server.7", "====\nWARNING: ThreadSanitizer: data race\n" + "  #0 f\n" * 200
          + "SUMMARY: ThreadSanitizer: data race a.cc:1 in f\n")
    reports.collect(tally)
    reports.collect(tally)
    assert tally.failed == ["sanitizer: report.valkey-server.7: SUMMARY: ThreadSanitizer: data race a.cc:1 in f"]
