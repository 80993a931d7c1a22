"""The page of the architecture names every folder, and its picture is the import graph."""

from __future__ import annotations

import re
from collections import defaultdict

from docs.pages import DOCS, blocks, text
from test_architecture import DATA, LEVEL, PAPER, imported, modules, unit

PAGE = DOCS / "architecture.md"
TOPS = {"configs", "examples", "tests", "docs", "results"}

Graph = dict[str, set[str]]


def room(module: str) -> str:
    """Its folder of r3l/; the files at the top of r3l/, one room, are the paper."""
    return "paper" if unit(module) in PAPER else unit(module)


def graph() -> Graph:
    """Room -> the rooms that it imports."""
    rooms: Graph = defaultdict(set)
    for module, path in modules().items():
        if module != "r3l":
            rooms[room(module)] |= {room(target) for target in imported(path)} - {room(module)}
    return dict(rooms)


def picture() -> Graph:
    """The arrows of the page's diagram."""
    (diagram,) = [block for block in blocks(PAGE) if block.startswith("graph")]
    arrows: Graph = defaultdict(set)
    for source, targets in re.findall(r"^\s+(\w+) --> (.+)$", diagram, re.MULTILINE):
        arrows[source] |= set(targets.split(" & "))
    return dict(arrows)


def below(arrows: Graph, source: str) -> set[str]:
    """Every room that can be reached from one."""
    targets = arrows.get(source, set())
    return targets.union(*(below(arrows, target) for target in targets))


def test_the_picture_is_the_import_graph():
    code, drawn = graph(), picture()
    assert {(s, t) for s, targets in drawn.items() for t in targets - code[s]} == set()
    assert {(s, t) for s, targets in code.items() for t in targets - below(drawn, s)} == set()


def test_every_folder_is_in_the_table():
    listed = re.findall(r"^\| `(?:r3l/)?(\w+)/` \|", text(PAGE), re.MULTILINE)
    assert sorted(listed) == sorted((set(LEVEL) - PAPER | TOPS) - DATA | {"configs", "examples"})


def test_the_table_says_what_each_folder_imports():
    rows = dict(re.findall(r"^\| `(?:r3l/)?(\w+)/` \|[^|]*\| ([^|]*) \|$", text(PAGE), re.MULTILINE))
    for source, targets in graph().items():
        if source != "paper":
            assert set(re.findall(r"\w+", rows[source])) - {"nothing"} == targets, source
