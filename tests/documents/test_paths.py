"""Every file, function and link that a document names is there; a class that is named is the only one of its name."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.documents import DOCUMENTS, HOUSES, ROOT, defined, sources, text_of

ARCHITECTURE = text_of("ARCHITECTURE.md")

# -- walks -------------------------------------------------------------------------------------------------

STEP = re.compile(r"^    (\d+) +([\w/*]+\.py(?:, [\w/]+\.py)*)(?:: ([\w.]+))?(?=  |$)")
NUMBERED = [line for line in ARCHITECTURE.splitlines() if re.match(r"    \d+ +\S", line)]


def test_every_numbered_step_of_a_walk_names_a_file() -> None:
    assert len(NUMBERED) > 40
    for line in NUMBERED:
        assert STEP.match(line), f"ARCHITECTURE.md: write this step as `1 folder/file.py: Class.method   what`:\n{line}"


@pytest.mark.parametrize("line", NUMBERED, ids=lambda line: " ".join(line.split()[:3]))
def test_a_step_of_a_walk_names_what_is_there(line: str) -> None:
    step = STEP.match(line)
    assert step is not None
    first, *others = step[2].split(", ")
    for path in (first, *(f"{Path(first).parent}/{other}" for other in others)):
        files = sorted(ROOT.glob(path))
        assert files, f"ARCHITECTURE.md: no file {path}"
        names = {name for file in files for name in defined(file)}
        if "*" in path:  # one of several classes that have such a method
            names |= {name.rpartition(".")[2] for name in names}
        assert step[3] is None or step[3] in names, f"ARCHITECTURE.md: {path} defines no {step[3]}, but {sorted(names)}"


@pytest.mark.parametrize("document", ["ARCHITECTURE.md", "DECISIONS.md"])
def test_a_function_named_with_its_file_is_there(document: str) -> None:
    named = re.findall(r"`([\w/]+\.py): ([\w.]+)`", text_of(document))
    assert named or document != "ARCHITECTURE.md"
    for path, name in named:
        assert name in defined(ROOT / path), f"{document}: {path} defines no {name}"


# -- names in backticks, links, and paths in the code ------------------------------------------------------

#: Files of the user, or made by a command.
MADE = {"report.md", "summary.md", "topology.md", "first.py", "job.py"}
#: Files that may be named without their folder, or with the last of their folders: documents, and tests.
DOCUMENT_NAMES = {Path(document).name for document in DOCUMENTS}
TESTS = sorted((ROOT / "tests").rglob("test_*.py"))


@pytest.mark.parametrize("document", sorted({*DOCUMENTS} - {"MAP.md"}))  # test_map.py: compared as a whole
def test_every_file_named_in_a_document_is_there(document: str) -> None:
    folders: set[Path] = set()
    for line in text_of(document).splitlines():
        if line.startswith("#"):
            folders = {ROOT, (ROOT / document).parent}
        paths = re.findall(r"(?<![\w/.-])((?:[\w*.-]+/)*[\w*-]+\.(?:py|md))\b", line)
        folders |= {(ROOT / path).parent for path in paths if "/" in path}
        for path in paths:
            if Path(path).name not in MADE | DOCUMENT_NAMES and not any(test.match(path) for test in TESTS):
                found = any(True for folder in folders for _ in folder.glob(path))
                assert found, f"{document}: no file {path}, neither at the top nor beside a file named above\n{line}"


@pytest.fixture(scope="module")
def everything() -> set[str]:
    """What all of the code defines: a parse of all files, in one of pytest's workers."""
    return {name for source in sources() for name in defined(source)}


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_class_and_method_named_in_a_document_is_there(document: str, everything: set[str]) -> None:
    for name in re.findall(r"`([A-Z]\w*[a-z]\w*\.[a-z_]\w*)(?:\(.*?\))?`", text_of(document)):
        assert name in everything, f"{document}: no class has `{name}`"


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_link_leads_somewhere(document: str) -> None:
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", text_of(document)):
        if not target.startswith(("http://", "https://")):
            assert ((ROOT / document).parent / target).exists(), f"{document}: the link to {target} leads nowhere"


def test_every_path_in_the_code_is_there() -> None:
    named = re.compile(rf"(?<![\w/.])((?:{'|'.join((*HOUSES, 'tests'))})(?:/\w+)+\.(?:py|md))\b")
    lost = [
        f"{source.relative_to(ROOT)}: {path}"
        for source in sources()
        if source != Path(__file__)
        for path in named.findall(source.read_text("utf-8"))
        if not (ROOT / path).is_file()
    ]
    assert not lost, "files that are named but not there:\n" + "\n".join(lost)


def test_no_two_classes_have_the_same_name() -> None:
    homes: dict[str, list[str]] = {}
    for source in (source for house in HOUSES for source in sorted((ROOT / house).rglob("*.py"))):
        for name in defined(source):
            if name[0].isupper() and "." not in name:
                homes.setdefault(name, []).append(str(source.relative_to(ROOT)))
    twice = {name: found for name, found in homes.items() if len(found) > 1}
    assert len(homes) > 200
    assert not twice, f"rename all but one of each: {twice}"
