"""Reports the test coverage of each part: `report.py ROOT JSON LCOV`, with two exports of llvm-cov.

Prints a table of lines and regions, and then the uncovered lines, and the uncovered regions within lines. Unit tests in the
same file are excluded, because they cover themselves.
"""

import json
import pathlib
import re
import sys

PARTS = [
    ("pure rules: `rules` of every crate", r"crates/\w+/src/rules(\.rs|/)"),
    ("SQL: `store` of every crate, and `crates/db`", r"crates/(\w+/src/store(\.rs|/)|db/)"),
    ("who may do what: `crates/tenants/src/access`, `crates/keys/src/access.rs`, `crates/api/src/gate`",
     r"crates/((tenants|keys)/src/access|api/src/gate)(\.rs|/)"),
    ("`crates/billing` without rules and SQL", r"crates/billing/src/(?!rules|store)"),
    ("`crates/web`", r"crates/web/"),
    ("`crates/api`", r"crates/api/"),
    ("everything", r"(src|crates)/"),
]


def tests_from(path):
    """Returns the first line of the tests in a file, which are at its end."""
    if path.name == "tests.rs":
        return 0
    source = path.read_text()
    found = re.search(r"^#\[cfg\(test\)\]\n(#\[.*\]\n)*mod tests \{", source, re.M)
    return source.count("\n", 0, found.start() if found else None) + 1


def read_lines(root, lcov, ends):
    lines, file = {}, None
    for line in pathlib.Path(lcov).read_text().splitlines():
        if line.startswith("SF:"):
            file = name_of(root, line[3:])
        elif line.startswith("DA:") and file in ends:
            number, count = map(int, line[3:].split(",")[:2])
            if number < ends[file]:
                lines[file, number] = max(count, lines.get((file, number), 0))
    return lines


def read_regions(root, text, ends):
    """Returns the regions. Code in several binaries counts once, and so does a generic function for several types."""
    regions = {}
    for function in json.loads(pathlib.Path(text).read_text())["data"][0]["functions"]:
        names = [name_of(root, name) for name in function["filenames"]]
        for first, column, last, end, count, file, _, kind in function["regions"]:
            name = names[file]
            if kind == 0 and name in ends and first < ends[name]:
                key = name, first, column, last, end
                regions[key] = max(count, regions.get(key, 0))
    return regions


def name_of(root, path):
    return path.removeprefix(root + "/")


def share(counts):
    counts = list(counts)
    reached = sum(count > 0 for count in counts)
    return f"{reached} of {len(counts)}, {100 * reached / max(1, len(counts)):.1f} %"


def ranges(numbers):
    found = []
    for number in sorted(numbers):
        if found and number == found[-1][1] + 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return found


def main(root, text, lcov):
    files = sorted(path for folder in ("src", "crates") for path in pathlib.Path(root, folder).rglob("*.rs"))
    ends = {name_of(root, str(path)): tests_from(path) for path in files}
    lines, regions = read_lines(root, lcov, ends), read_regions(root, text, ends)
    print("| part | lines | regions |\n|---|---|---|")
    for name, pattern in PARTS:
        within = re.compile(pattern).match
        some = share(count for (file, _), count in lines.items() if within(file))
        print(f"| {name} | {some} | {share(count for key, count in regions.items() if within(key[0]))} |")
    print()
    for file in ends:
        source = pathlib.Path(root, file).read_text().splitlines()
        missed = {number for (name, number), count in lines.items() if name == file and count == 0}
        for first, last in ranges(missed):
            print(f"{file}:{first}-{last}: {source[first - 1].strip()}")
        for name, first, column, last, end in sorted(key for key, count in regions.items() if count == 0):
            if name == file and first not in missed and first == last:
                print(f"{file}:{first}:{column}: `{source[first - 1][column - 1:end - 1]}` in `{source[first - 1].strip()}`")


main(*sys.argv[1:])
