"""The tree in ARCHITECTURE.md: every file it names is there, and every folder is in it."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent


def tree() -> list[tuple[Path, str]]:
    """The lines of the tree, each with its folder; rooms that are to come are left out."""
    text = (ROOT / "ARCHITECTURE.md").read_text()
    lines, folders = [], dict[int, str]()
    for line in text.partition("\n    broker/\n")[2].partition("\n\n")[0].splitlines():
        depth, words = len(line) - len(line.lstrip()), line.split()
        if depth <= 8:
            folders = {level: name for level, name in folders.items() if level < depth}
            if words[0].endswith("/"):
                folders[depth] = words[0]
        if "(to come)" not in line:
            lines.append(
                (ROOT / folders.get(4, "broker/") / "".join(folders[level] for level in folders if level > 4), line)
            )
    return lines


def test_every_file_that_the_tree_names_is_there() -> None:
    named, missing = 0, []
    for folder, line in tree():
        top = ROOT / folder.relative_to(ROOT).parts[0]
        if top.name == "sim":  # its lines go on in the second of two columns
            continue
        rooms = [top / name for name in re.findall(r" ([a-z]+)/ ", line)]
        for name in re.findall(r"\b[a-z_0-9/]+\.py\b", line):
            named += 1
            if not any((base / name).exists() for base in (folder, folder.parent, *rooms)):
                missing.append(f"{folder.relative_to(ROOT)}: {name}")
    assert named > 80
    assert not missing


def test_every_folder_is_in_the_tree() -> None:
    drawn = "\n".join(line for _, line in tree())
    folders = {
        path.parent.name for top in ("broker", "network", "clients", "sim") for path in (ROOT / top).glob("*/*.py")
    }
    assert len(folders) > 20
    assert not [name for name in folders if f"{name}/" not in drawn]
