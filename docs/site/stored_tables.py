"""The tables of README.md and docs/results.md: ``python docs/site/stored_tables.py`` fills them in.

A table stands between ``<!-- stored: NAME -->`` and ``<!-- end -->``; what is around it is written by hand. Its
environments are those of the pre-registration, or follow the name: ``<!-- stored: NAME ENV ENV -->``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from r3l.files.paths import ROOT, STORED
from r3l.files.writing import write_text_atomic
from r3l.report import claims, layout, probes, records, scores
from r3l.report.figures.bars import ENDINGS, ending_shares
from r3l.report.labels import env_label, method_label
from r3l.report.paired import MDE
from r3l.report.published import Reference
from r3l.report.records import Record
from r3l.report.registered import (
    Registered,
    load_registered,
    of_base_checkpoints,
    registered_rows,
    registered_table,
)
from r3l.runs.places import find_runs
from r3l.workflow import plan

PAGES = (ROOT / "README.md", ROOT / "docs" / "results.md")
BLOCK = re.compile(r"(<!-- stored: (\w+)((?: \w+)*) -->\n).*?(<!-- end -->)", re.DOTALL)
NOTHING = "No such run is stored yet."
Rows = dict[str, dict[str, str]]  # texts by the row's name and by column; of means with how many seeds, in brackets


def filled(text: str, runs: Sequence[Record]) -> str:
    """``text`` with its tables as ``runs`` give them; only those that began from today's base checkpoints."""
    of_plan = load_registered()

    def table(found: re.Match[str]) -> str:
        beginning, name, envs, end = found.groups()
        seen = of_base_checkpoints(runs, of_plan, envs.split() or of_plan.envs)
        return f"{beginning}\n{TABLES[name](seen, of_plan)}\n\n{end}"

    return BLOCK.sub(table, text)


def core(runs: Sequence[Record], of_plan: Registered) -> str:
    """Base checkpoint and both methods of the primary comparisons, and what those say."""
    rows = _scores(runs, ["zero_shot", of_plan.against, of_plan.method])
    difference = f"{method_label(of_plan.method)} minus {method_label(of_plan.against)}, paired by seed"
    names = {difference: "difference", "97 % interval": "interval"}
    names |= {"minimum detectable effect": MDE, "verdict": "verdict"}
    compared = [row for row in registered_rows(runs, of_plan) if row.pairs and not row.earlier]
    for cells in registered_table(compared, of_plan).sections[0].rows if compared else ():
        for name, column in names.items():
            rows.setdefault(name, {})[cells["env"].text] = cells[column].text
    return _pipes(rows)


def every_claim(runs: Sequence[Record], of_plan: Registered) -> str:
    """A row a claim with evidence, of the runs and the stored probes: verdict and effect; below, the other claims."""
    of = claims.load_claims()
    rows = claims.findings(runs, probes.read_folders([STORED]), of)
    tested = {row.claim.id for row in rows if row.count}
    cells: Rows = {}
    for row in rows:
        if row.claim.id in tested:
            cells.setdefault(claims.sentence(row.claim), {})[row.label] = claims.in_short(row)
    others = dict.fromkeys(claims.sentence(row.claim) for row in rows if row.claim.id not in tested)
    return _pipes(cells) + (f"\n\n{len(others)} more claims are not tested: they are in the picture." if others else "")


def variants(runs: Sequence[Record], of_plan: Registered) -> str:
    """Both methods of the primary comparisons and all methods with runs that are in no table: scores, and the
    share of test episodes by the reason that ended them, seeds together.
    """
    others = sorted({run.method for run in runs} - set(plan.tables()["table1"].methods))
    methods = [of_plan.against, of_plan.method, *others]
    rows = _scores(runs, methods)
    cells: dict[tuple[str, str], list[Record]] = {}
    for run in runs:
        if run.method in methods:
            cells.setdefault((run.method_label, env_label(run.env)), []).append(run)
    shares = {cell: ending_shares(seeds) for cell, seeds in cells.items()}
    seen = {reason for of_cell in shares.values() for reason in of_cell} - {"success"}
    names = {reason: name for reason, (name, _) in ENDINGS.items() if reason in seen}
    for (label, env), of_cell in shares.items():
        rows[label] |= {f"{env}, {name}": f"{of_cell.get(reason, 0.0):.3f}" for reason, name in names.items()}
    return _pipes(rows)


TABLES: dict[str, Callable[[Sequence[Record], Registered], str]] = {
    "claims": every_claim,
    "core": core,
    "variants": variants,
}


def _scores(runs: Sequence[Record], methods: Sequence[str]) -> Rows:
    """Over all tasks."""
    texts: Rows = {}
    for row in scores.score_rows(runs, methods, "zero_shot", 0, reference=Reference([])):
        if row.score is not None and row.group == "all":
            seeds = f" ({row.seeds_done})" if row.seeds_done else ""
            texts.setdefault(row.label, {})[env_label(row.env)] = layout.plus_minus(row.score, row.unit) + seeds
    return texts


def _pipes(rows: Rows) -> str:
    if not rows:
        return NOTHING
    columns = list(dict.fromkeys(name for texts in rows.values() for name in texts))
    lines = [[name, *(texts.get(column, "") for column in columns)] for name, texts in rows.items()]
    return "\n".join(f"| {' | '.join(line)} |" for line in (["", *columns], ["---"] * (1 + len(columns)), *lines))


def write() -> None:
    """Both pages."""
    runs = records.load(find_runs(STORED, may_be_none=True))
    for page in PAGES:
        write_text_atomic(page, filled(page.read_text(encoding="utf-8"), runs))


if __name__ == "__main__":
    write()
