#!/usr/bin/env python3
"""Formats C++ files: clang-format 14, after comments over 100 columns were wrapped by hand's rules.

    tools/format.py [--check] [PATH...]     default: every C++ file that git tracks
                                            exit 0: nothing to do, or done   1: --check found some

clang-format breaks long comments without regard for hanging indents ("Threads:  any ..."), so they
are wrapped here first; what then fits is left alone by it.
"""
import argparse
import os
import re
import subprocess
import sys
import textwrap

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
COLUMNS = 100
CXX = (".h", ".cc", ".c")
LABEL = re.compile(r"^( *)([A-Z][a-zA-Z ]{2,12}[:.]) +")
SECTIONS = ("Invariants", "Threads", "Errors", "Lifetime", "Ownership", "Fork", "Not kept")  # always hang
CODE = re.compile(r"^ {2,}.*[;{}](\s*//.*)?$")  # an example, indented: its lines are never joined


def paragraphs(texts):
    """Groups comment texts into paragraphs: a list of dicts with first indent, hanging indent, lines."""
    out = []
    for text in texts:
        lead, body, code = len(text) - len(text.lstrip(" ")), text.strip(), CODE.match(text) is not None
        label = None if code else LABEL.match(text)
        last = out[-1] if out else None
        joins = last and body and last["lines"][0].strip() and not (code or last["code"] or label) \
            and not re.match(r"[-*] ", body)
        if joins and last["open"] and (lead > last["first"] or (lead == last["first"] and not last["section"])):
            last["hang"], last["open"] = lead, False
            last["lines"].append(text)
        elif joins and lead == last["hang"]:
            last["lines"].append(text)
        else:
            section = bool(label) and (lead > 0 or label.group(2)[:-1] in SECTIONS)
            out.append({"first": lead, "hang": label.end() if section else lead, "open": bool(label), "code": code,
                        "section": section, "lines": [text]})
    return out


def wrap_block(indent, texts):
    """Lines of a comment block; only paragraphs that are too wide change."""
    room = COLUMNS - len(indent) - 3
    for paragraph in paragraphs(texts):
        if all(len(text) <= room for text in paragraph["lines"]):
            yield from ((indent + "// " + text).rstrip() for text in paragraph["lines"])
            continue
        words = " ".join(text.strip() for text in paragraph["lines"])
        label = LABEL.match(paragraph["lines"][0])
        start = " " * paragraph["first"]
        if label:
            head = paragraph["lines"][0][paragraph["first"]:label.end()]
            start, words = start + head, words[len(head):]
        yield from textwrap.wrap(words, COLUMNS, initial_indent=indent + "// " + start,
                                 subsequent_indent=indent + "// " + " " * paragraph["hang"],
                                 break_long_words=False, break_on_hyphens=False)


def wrap_comments(text):
    lines, out, at = text.split("\n"), [], 0
    while at < len(lines):
        match = re.match(r"^(\s*)//(?: |$)", lines[at])
        if not match:
            out.append(lines[at])
            at += 1
            continue
        indent, block = match.group(1), []
        while at < len(lines):
            line = re.match("^" + re.escape(indent) + r"//(?: (.*)|)$", lines[at])
            if not line:
                break
            block.append(line.group(1) or "")
            at += 1
        out += list(wrap_block(indent, block))
    return "\n".join(out)


def formatted(path):
    with open(path, encoding="utf-8") as file:
        before = file.read()
    done = subprocess.run(["clang-format-14", "--style=file", f"--assume-filename={path}"], input=wrap_comments(before),
                          capture_output=True, text=True, check=True, cwd=ROOT)
    return before, done.stdout


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--check", action="store_true", help="change nothing, name what would change")
    parser.add_argument("paths", nargs="*")
    options = parser.parse_args()
    paths = [os.path.abspath(path) for path in options.paths]
    if not paths:
        listed = subprocess.run(["git", "-C", ROOT, "ls-files", "-z"], capture_output=True, text=True, check=True)
        paths = [os.path.join(ROOT, name) for name in listed.stdout.split("\0") if name.endswith(CXX)]
    changed = 0
    for path in paths:
        before, after = formatted(path)
        if before != after:
            changed += 1
            print(os.path.relpath(path, ROOT))
            if not options.check:
                with open(path, "w", encoding="utf-8") as file:
                    file.write(after)
    print(f"format: {len(paths)} files, {changed} {'to change' if options.check else 'changed'}")
    return 1 if changed and options.check else 0


if __name__ == "__main__":
    sys.exit(main())
