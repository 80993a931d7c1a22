"""Published training data without duplicates, contradictions and test problems; what each rule dropped is counted.

Two problems are the same when they differ in layout only: case, white space, punctuation, and LaTeX commands that say
how to print something rather than what it is. Translations are not recognised (a fifth of DAPO is Chinese).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass

_LAYOUT = re.compile(
    r"\\(?:left|right|displaystyle|text|mathrm|textbf|mathbf|textit|emph|operatorname|mbox)(?![a-z])"
    r"|\\[!,;: ()\[\]]|[\s~${}.,:;?!*\"'`’‘“”_\\]"
)
_FRACTION = re.compile(r"\\[dt]frac")


@dataclass(frozen=True)
class CleaningReport:
    """What became of the rows. ``overlaps``: clusters dropped by the test set that they also stand in."""

    rows: int
    duplicates: int
    clusters: int
    conflicting: int
    overlaps: Mapping[str, int]
    train: int
    test: int

    def as_dict(self) -> dict[str, object]:
        """For JSON."""
        return asdict(self)


def normalise(problem: str) -> str:
    """The problem without layout; equal texts are one problem."""
    return _LAYOUT.sub("", _FRACTION.sub(r"\\frac", problem.lower()))


def key_of(problem: str) -> str:
    """A name for a problem that does not depend on layout or on where a copy of the data has it."""
    return hashlib.sha256(normalise(problem).encode()).hexdigest()


def clean(
    rows: Iterable[tuple[str, str]], tests: Mapping[str, Sequence[str]], held_out: int
) -> tuple[list[tuple[str, str, str]], list[tuple[str, str, str]], CleaningReport]:
    """(train, test, report) of (problem, gold) rows; ``tests`` holds the problems of every test set.

    Both parts are lists of (key, problem, gold) in the order of their keys; test is the first ``held_out``. Of a
    cluster's texts the first in alphabetical order stays, so that the result does not depend on the rows' order.
    """
    clusters: dict[str, set[tuple[str, str]]] = {}
    count = 0
    for problem, gold in rows:
        clusters.setdefault(key_of(problem), set()).add((problem, gold))
        count += 1
    where = {key_of(problem): name for name, problems in tests.items() for problem in problems}
    overlaps = {name: sum(where.get(key) == name for key in clusters) for name in tests}
    agreed = {key: texts for key, texts in clusters.items() if len({gold for _, gold in texts}) == 1}
    problems = sorted((key, *min(texts)) for key, texts in agreed.items() if key not in where)
    test, train = problems[:held_out], problems[held_out:]
    report = CleaningReport(
        rows=count,
        duplicates=count - len(clusters),
        clusters=len(clusters),
        conflicting=len(clusters) - len(agreed),
        overlaps=overlaps,
        train=len(train),
        test=len(test),
    )
    return train, test, report
