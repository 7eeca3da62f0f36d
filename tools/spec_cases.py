#!/usr/bin/env python3
"""Finds specification cases that no test carries.

    tools/spec_cases.py [--root DIR] [--list DOOR]   exit 0: complete   1: cases missing   2: bad list

The list is tests/spec_cases.txt. A case of a delivered door needs a test named after it: C++
`TEST(Suite, B028_...)`, Python `test_B028_...` (leading zeros are free), or an excuse in the list.
An excuse for a case that has a test is refused too: it would outlive its reason.
"""
import argparse
import os
import re
import sys

EXPECTED = {"B": 114, "K": 85, "S": 116, "R": 59}
CXX_TEST = re.compile(r"\bTEST(?:_F|_P)?\s*\(\s*\w+\s*,\s*((?:[BKSR]\d+_)+)\w*\s*\)")
PYTHON_TEST = re.compile(r"^\s*(?:async\s+)?def\s+test_((?:[BKSR]\d+_)+)\w*\s*\(", re.M)
ONE_ID = re.compile(r"([BKSR])0*(\d+)_")


def read_list(path):
    """(delivered doors, {id: (door, title, excuse or None)}, complaints)"""
    delivered, cases, complaints = set(), {}, []
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            line = line.strip()
            if not line or line.startswith("#"):
                continue
            if line.startswith("delivered:"):
                delivered |= set(line.split(":", 1)[1].split())
                continue
            fields = [field.strip() for field in line.split("|")]
            match = re.fullmatch(r"([BKSR])0*(\d+)", fields[0])
            if not match or len(fields) not in (3, 4) or not fields[2]:
                complaints.append(f"{path}:{number}: want 'id | door | title [| excuse: why]'")
                continue
            excuse = None
            if len(fields) == 4:
                excuse = fields[3].removeprefix("excuse:").strip()
                if not fields[3].startswith("excuse:") or not excuse:
                    complaints.append(f"{path}:{number}: an excuse needs its reason")
            key = (match.group(1), int(match.group(2)))
            if key in cases:
                complaints.append(f"{path}:{number}: {fields[0]} is listed twice")
            cases[key] = (fields[1], fields[2], excuse)
    for letter, last in EXPECTED.items():
        for number in range(1, last + 1):
            if (letter, number) not in cases:
                complaints.append(f"{path}: {letter}{number} is not listed")
    return delivered, cases, complaints


def tested_ids(root):
    """{id: 'path:line' of the first test that carries it}"""
    found = {}
    for top in ("src", "tests", "python", "fuzz"):
        for folder, dirs, names in os.walk(os.path.join(root, top)):
            dirs[:] = sorted(d for d in dirs if d not in ("build", "__pycache__"))
            for name in sorted(names):
                pattern = {".cc": CXX_TEST, ".py": PYTHON_TEST}.get(os.path.splitext(name)[1])
                if pattern is None:
                    continue
                path = os.path.join(folder, name)
                with open(path, encoding="utf-8") as file:
                    text = file.read()
                for match in pattern.finditer(text):
                    where = f"{os.path.relpath(path, root)}:{text.count(chr(10), 0, match.start()) + 1}"
                    for letter, number in ONE_ID.findall(match.group(1)):
                        found.setdefault((letter, int(number)), where)
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--root", default=os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    parser.add_argument("--list", metavar="DOOR", help="print every case of a door and its test")
    options = parser.parse_args()
    delivered, cases, complaints = read_list(os.path.join(options.root, "tests", "spec_cases.txt"))
    found = tested_ids(options.root)
    if complaints:
        print("\n".join(complaints))
        print(f"spec_cases: the list is broken in {len(complaints)} places")
        return 2
    missing = stale = excused = tested = 0
    for (letter, number), (door, title, excuse) in sorted(cases.items()):
        where = found.get((letter, number))
        if options.list == door:
            print(f"{letter}{number:<4} {where or ('excused: ' + excuse if excuse else '-'):48} {title}")
        if door not in delivered:
            continue
        if where and excuse:
            print(f"{letter}{number}: excused, yet tested at {where}; drop the excuse")
            stale += 1
        elif where:
            tested += 1
        elif excuse:
            excused += 1
        else:
            print(f"{letter}{number}: no test: {title}")
            missing += 1
    for letter, number in sorted(set(found) - set(cases)):
        print(f"{letter}{number}: tested at {found[(letter, number)]} but no such case exists")
        stale += 1
    waiting = sum(1 for door, _, _ in cases.values() if door not in delivered)
    print(f"spec_cases: {tested} tested, {excused} excused, {missing} missing, {stale} stale; "
          f"{waiting} belong to doors not delivered yet")
    return 1 if missing or stale else 0


if __name__ == "__main__":
    sys.exit(main())
