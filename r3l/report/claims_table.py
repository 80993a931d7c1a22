"""The claims with their verdicts as a table, and each in short for a page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby

from r3l.evaluation.statistics import FEWEST
from r3l.evaluation.verdicts import AHEAD, EQUIVALENT, INCONCLUSIVE
from r3l.report.claims import Claim, Claims
from r3l.report.findings import NOT_TESTED, Finding
from r3l.report.table import Cell, Column, Table, table


def claims_table(rows: Sequence[Finding], of: Claims) -> Table:
    """A section a claim, a line an environment; those in which it is not tested share one."""
    tested = sum(row.estimate is not None for row in rows)
    columns = [
        Column("env", partial(_where, everywhere=len(of.envs))),
        Column("effect", lambda line: _effect(line[0]), right=True, no_wrap=True),
        Column("95 % interval", lambda line: _interval(line[0]), right=True, no_wrap=True),
        Column("over", lambda line: over(line[0]), right=True, no_wrap=True),
        Column("MDE", lambda line: _mde(line[0]), right=True, no_wrap=True),
        Column("power", lambda line: None if line[0].power is None else f"{line[0].power:.2f}", right=True),
        Column("verdict", lambda line: Cell(line[0].verdict, bold=line[0].as_claimed), no_wrap=True),
        Column("paper", _papers, right=True),
    ]
    notes = dict.fromkeys(row.claim.note for row in rows if row.claim.note)
    shown = table(
        "Claims of the paper",
        columns,
        _lines(rows),
        "ahead, behind: the effect is shown to be above or below 0 (two-sided; at most 5 % of the effects so called "
        f"are false on average: Benjamini-Hochberg over the {tested} with an interval); equivalent: within "
        f"{of.margin:g} on either side of 0 (two one-sided tests at 5 % each, so the 90 % interval lies inside), "
        "whatever else is shown; inconclusive: neither; too "
        f"few: fewer than {FEWEST} seeds, whose values stand in place of an effect; not tested: nothing is stored. "
        "Bold: as claimed. Intervals are not corrected.",
        "over seeds: t-interval over training seeds, on the same test tasks; over tasks: one fixed model, bootstrap.",
        "MDE: minimum detectable effect (power 80 %); power: of showing the paper's effect, with the spread measured "
        "here; both at the level that the correction ends at.",
        f"paper: {of.backbone}; its effects on WebShop and ScienceWorld are of rewards, ours of success; beside "
        "Mathematics stands GSM8K. Lines of results/stored/published, and commands with their environment: the csv.",
        *(f"{note[0].upper()}{note[1:]}." for note in notes),
        by=lambda line: f"{sentence(line[0].claim)} [{line[0].claim.run}]",
    )
    return replace(shown, by="claim")


def sentence(claim: Claim) -> str:
    """The claim, and what it claims where that is not an effect above 0."""
    return claim.claim + ("" if claim.says == AHEAD else f" (claimed: {EQUIVALENT})")


def in_short(row: Finding) -> str:
    """``behind -0.161``; ``-0.002 (0.04)`` with the MDE where inconclusive; of one or two seeds their values."""
    if row.points or row.effect is None:
        return (_effect(row) or Cell(NOT_TESTED)).text + (f" ({over(row)})" if row.points else "")
    digits = 3 if row.claim.has_margin else 1
    effect = f"{row.effect:+.{digits}f}"
    if row.verdict != INCONCLUSIVE:
        return f"{row.verdict} {effect}"
    return effect if row.mde is None else f"{effect} ({row.mde:.{digits - 1}f})"


def over(row: Finding) -> str | None:
    """``20 seeds``; None where nothing is stored."""
    return f"{row.count} {row.over if row.count > 1 else row.over.removesuffix('s')}" if row.count else None


def _lines(rows: Sequence[Finding]) -> list[list[Finding]]:
    lines: list[list[Finding]] = []
    for _, group in groupby(rows, key=lambda row: row.claim.id):
        of_claim = list(group)
        untested = [row for row in of_claim if not row.count]
        lines += [[row] for row in of_claim if row.count] + ([untested] if untested else [])
    return lines


def _where(line: Sequence[Finding], everywhere: int) -> str:
    return "every environment" if len(line) == everywhere > 1 else ", ".join(row.label for row in line)


def _papers(line: Sequence[Finding]) -> str | None:
    if all(row.paper is None for row in line):
        return None
    return ", ".join("none" if row.paper is None else f"{row.paper:+.3f}" for row in line)


def _effect(row: Finding) -> Cell | None:
    if row.effect is None:
        return None
    return Cell(", ".join(f"{value:+.3f}" for value in row.points or (row.effect,)), row.effect)


def _interval(row: Finding) -> str | None:
    return "{:+.3f} to {:+.3f}".format(*row.estimate.bounds()) if row.estimate else None


def _mde(row: Finding) -> str | None:
    if row.estimate is None:
        return None
    return "no spread" if row.mde is None else f"{row.mde:.3f}"
