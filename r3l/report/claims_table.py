"""The claims with their verdicts as a table, and each in short for a page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby

from r3l.report.claim_rows import NOT_TESTED, ClaimVerdict
from r3l.report.claims import Claim, Claims, Family
from r3l.report.frame import ALL
from r3l.report.labels import env_label
from r3l.report.table import Cell, Column, Table, table
from r3l.stats.comparison import Verdict
from r3l.stats.intervals import MIN_SEEDS


def claims_table(rows: Sequence[ClaimVerdict], claims_file: Claims) -> Table:
    """The table of claims: a section for each, a line for each environment, bold if as claimed.

    ``rows``: the rows of one claim follow one another. Environments without runs share a line.
    """

    def where(line: Sequence[ClaimVerdict]) -> str:
        if len(line) == len(claims_file.envs) > 1:
            return "every environment"
        return ", ".join(row.label for row in line)

    def interval(line: Sequence[ClaimVerdict]) -> str | None:
        row = line[0]
        if row.effect is None or row.points:
            return None
        return "{:+.3f} to {:+.3f}".format(*row.effect.bounds())

    def mde(line: Sequence[ClaimVerdict]) -> str | None:
        compared = line[0].comparison
        if compared is None:
            return None
        return "no spread" if compared.mde_adjusted is None else f"{compared.mde_adjusted:.3f}"

    def published(line: Sequence[ClaimVerdict]) -> str | None:
        if all(row.paper is None for row in line):
            return None
        return ", ".join("none" if row.paper is None else f"{row.paper:+.3f}" for row in line)

    columns = [
        Column("env", where),
        Column("effect", lambda line: _effect(line[0]), right=True, no_wrap=True),
        Column("95 % interval", interval, right=True, no_wrap=True),
        Column("over", lambda line: over(line[0]), right=True, no_wrap=True),
        Column("MDE", mde, right=True, no_wrap=True),
        Column("power", lambda line: None if line[0].power is None else f"{line[0].power:.2f}", right=True),
        Column("verdict", lambda line: Cell(line[0].verdict, bold=line[0].as_claimed), no_wrap=True),
        Column("paper", published, right=True),
    ]
    # The notes say how many effects each family's correction covers, and what single claims need.
    judged = [row.claim.family for row in rows if row.comparison is not None]
    families = [f"{family} ({judged.count(family)} effects)" for family in Family if family in judged]
    notes = dict.fromkeys(row.claim.note for row in rows if row.claim.note)
    shown = table(
        "Claims",
        columns,
        _lines(rows),
        "ahead, behind: the effect is shown to be above or below 0 (two-sided test; Benjamini-Hochberg "
        f"within each family: {', '.join(families)}; so that on average at most 5 % of a family's findings "
        f"are false); equivalent: shown to lie within {claims_file.margin:g} of 0 on either side (two "
        "one-sided tests at 5 % each: the 90 % interval lies inside), even if it is also shown to differ from 0; "
        "inconclusive: neither, or shown at unequal learning rates alone (the csv's note has both rates, and "
        f"the effect at equal ones); too few: fewer than {MIN_SEEDS} seeds, shown as their values; not "
        "tested: nothing is stored, or not all of the seeds that were registered. Bold: as claimed. "
        "Intervals are not corrected.",
        "over seeds: t-interval over training seeds, on the same test tasks; over tasks: bootstrap over the "
        "tasks of one fixed model.",
        "MDE: minimum detectable effect (power 80 %); power: probability of showing the paper's effect with "
        "the spread measured here; both at the level at which the correction ends.",
        f"paper: published effect for {claims_file.backbone}, of rewards on WebShop and ScienceWorld, where "
        "ours is of success; Mathematics is compared with GSM8K. The csv has the lines of results/stored/published, "
        "and the commands that make the runs. RATE: GRPO's learning rate in ENV.",
        *(f"{note[0].upper()}{note[1:]}." for note in notes),
        by=lambda line: f"{sentence(line[0].claim)} [{command(line[0].claim)}]",
    )
    return replace(shown, by="claim")


def _lines(rows: Sequence[ClaimVerdict]) -> list[list[ClaimVerdict]]:
    """Each row is a line, except that untested rows of a claim with equally many planned seeds share one."""
    lines: list[list[ClaimVerdict]] = []
    for _, same_claim in groupby(rows, key=lambda row: row.claim.id):
        of_claim = list(same_claim)
        lines += [[row] for row in of_claim if row.count]
        untested = sorted((row for row in of_claim if not row.count), key=lambda row: row.seeds_planned)
        lines += [list(alike) for _, alike in groupby(untested, key=lambda row: row.seeds_planned)]
    return lines


def sentence(claim: Claim) -> str:
    """The claim in words.

    In brackets: what it claims if that is not an effect above 0, its family if not the paper, and the
    prediction for each environment ("predicted for ENV: ...").
    """
    said = [] if claim.says == "ahead" else [f"claimed: {claim.says}"]
    said += [] if claim.family is Family.PAPER else [claim.family]
    said += [f"predicted for {env_label(env)}: {text}" for env, text in claim.predicted.items()]
    return claim.claim + (f" ({'; '.join(said)})" if said else "")


def command(claim: Claim) -> str:
    """The command that prints a claim's comparison, or else ``runs: `` and the command that makes its runs.

    Only claims of the paper that compare final scores of two methods have the former, which is
    ``r3l compare METHOD --against OTHER --env ENV --offline``; the latter is ``Claim.run``.
    """
    test = claim.score
    if test is None or claim.family is not Family.PAPER or test.beyond or test.unsolved_by:
        return f"runs: {claim.run}"
    group = "" if test.group == ALL else f" --group {test.group}"
    return f"r3l compare {test.method} --against {test.against}{group} --env ENV --offline"


def in_short(row: ClaimVerdict) -> str:
    """The effect in a few characters: ``behind -0.161``; ``-0.002 (0.04)``, with the MDE, if inconclusive.

    One or two seeds are shown as their values. ``+0.020 (5 of 10 seeds)`` while registered seeds are missing,
    ``(rates differ)`` if unequal learning rates may explain it, ``not tested`` without an effect.
    """
    if row.points or row.effect is None:
        return (_effect(row) or Cell(NOT_TESTED)).text + (f" ({over(row)})" if row.points else "")
    digits = 3 if row.claim.has_margin else 1
    effect = f"{row.effect.mean:+.{digits}f}"
    if row.seeds_due:
        return f"{effect} ({row.count} of {row.seeds_planned} seeds)"
    if row.rates_decide:
        return f"{effect} (rates differ)"
    if row.verdict != Verdict.INCONCLUSIVE:
        return f"{row.verdict} {effect}"
    mde = row.comparison and row.comparison.mde_adjusted
    if mde is None:
        return effect
    while mde and round(mde, digits - 1) == 0:  # an MDE of 0.248 is no 0
        digits += 1
    return f"{row.effect.mean:+.{digits}f} ({mde:.{digits - 1}f})"


def over(row: ClaimVerdict) -> str | None:
    """The number of seeds (or other units) that a claim was tested on, such as ``20 seeds``; None if none."""
    return f"{row.count} {row.over if row.count > 1 else row.over.removesuffix('s')}" if row.count else None


def _effect(row: ClaimVerdict) -> Cell | None:
    if row.effect is None:
        return None
    return Cell(", ".join(f"{value:+.3f}" for value in row.points or (row.effect.mean,)), row.effect.mean)
