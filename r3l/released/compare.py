"""Run checks on clones: cases, both answers, what differs."""

from __future__ import annotations

import importlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from r3l.processes.progress import tracked
from r3l.released.check import Check, Mismatch, Outcome, Reading, agree, answer
from r3l.released.checks import SUBJECTS
from r3l.released.process import ask


def checks_of(subject: str) -> Sequence[Check | Reading]:
    """The checks of a subject."""
    checks: Sequence[Check | Reading] = importlib.import_module(SUBJECTS[subject]).CHECKS
    return checks


def compare(check: Check | Reading, clone: Path) -> Outcome:
    """All cases of one check on a clone of its release."""
    return _executed(check, clone) if isinstance(check, Check) else _read(check, clone)


def _read(check: Reading, clone: Path) -> Outcome:
    files = sorted(str(path.relative_to(clone)) for path in (clone / check.folder).rglob("*.yaml"))
    outcome = Outcome(check.subject, check.name, check.release.name, files, missing=[] if files else [check.folder])
    for case, ours, theirs in check.read(clone):
        outcome.cases += 1
        if not agree(ours, theirs, 0.0):
            outcome.mismatches.append(Mismatch(case, ours, theirs, check.explain(case, ours, theirs)))
    return outcome


def _executed(check: Check, clone: Path) -> Outcome:
    paths = [code.path for code in check.code]
    outcome = Outcome(check.subject, check.name, check.release.name, paths)
    outcome.missing = [path for path in paths if not (clone / path).is_file()]
    if outcome.missing:
        return outcome
    cases = json.loads(json.dumps(list(check.cases())))
    sources = {path: (clone / path).read_text(encoding="utf-8") for path in paths}
    answers = ask(SUBJECTS[check.subject], check.name, sources, cases)
    outcome.cases = len(cases)
    for case, theirs in zip(cases, answers, strict=True):
        ours = answer(check.ours, case)
        if not agree(ours, theirs, check.tolerance):
            outcome.mismatches.append(Mismatch(case, ours, theirs, check.explain(case, ours, theirs)))
    return outcome


def run(subjects: Sequence[str], clones: Mapping[str, Path]) -> list[Outcome]:
    """The checks of ``subjects`` on the clones by the name of their release; a release without a clone is left out."""
    checks = [check for subject in subjects for check in checks_of(subject)]
    ready = [check for check in checks if check.release.name in clones]
    return [compare(check, clones[check.release.name]) for check in tracked(ready, "checks")]
