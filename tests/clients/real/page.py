"""The blocks of docs/tools.md, from which the clients are configured."""

import pathlib
import re

PAGE = pathlib.Path(__file__).resolve().parents[3] / "docs" / "tools.md"
BLOCK = re.compile(r"```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
FILE = re.compile(r"In `([^`]+)`:\s*$")
PROGRAMS = ("python", "js")


def sections():
    """Returns the text of each section, by its heading."""
    parts = re.split(r"^## (.*)\n", PAGE.read_text(), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def blocks(heading, number=0):
    """Returns the files of a section by path, and the program to run: its language and its text.

    A block after "In `PATH`:" is a file. `number` is the index among the other blocks.
    """
    text = sections()[heading]
    files, runs = {}, []
    for found in BLOCK.finditer(text):
        named = FILE.search(text[:found.start()])
        if named:
            files[named[1]] = found[2]
        else:
            runs.append((found[1], found[2]))
    return files, runs[number]


def exceptions():
    """Returns the exceptions of each library in the page's table, by what is wrong: `money`, `key` and `model`."""
    rows = [line.strip("| ").split(" | ") for line in sections()["When something is wrong"].splitlines()
            if line.startswith("| ")]
    head = next(at for at, row in enumerate(rows) if row[0] == "library")
    return {row[0]: {wrong: re.search(r"`(\w+)`", cell)[1] for wrong, cell in zip(rows[head][1:], row[1:], strict=True)}
            for row in rows[head + 1:]}
