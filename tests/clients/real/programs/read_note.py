import pathlib


def read_note() -> str:
    """Reads the note."""
    return pathlib.Path("note.txt").read_text()
