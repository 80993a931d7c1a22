"""The tables of README and pages of docs: ``python docs/site/stored_tables.py`` fills them in.

A table stands between ``<!-- stored: NAME -->`` and ``<!-- end -->``; what is around it is written by hand.
Its environments are those of the pre-registration, or follow the name: ``<!-- stored: NAME ENV ENV -->``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache

import pandas as pd

from docs.site.claim_tables import every_claim, lead_arms, learning, training
from docs.site.method_rows import filled_methods, teachers, verdicts_against
from docs.site.probe_tables import published_probes
from docs.site.score_tables import arms, core, summary
from r3l.files.paths import ROOT, STORED
from r3l.files.writing import write_text_atomic
from r3l.report import claim_verdicts, claims, probes
from r3l.report.claim_rows import ClaimVerdict
from r3l.report.frame import with_further
from r3l.report.reading import read_runs
from r3l.report.registered import Registered, load_registered, of_base_checkpoints
from r3l.runs.run_paths import CURVES, HINT_GAP, find_runs

GATE = "gate"  # folder of stored probes of further SFT recipes
PAGES = (ROOT / "README.md", *(ROOT / "docs" / page for page in ("results.md", "methods.md", "tiers.md")))
BLOCK = re.compile(r"(<!-- stored: (\w+)((?: \w+)*) -->\n)(.*?)(<!-- end -->)", re.DOTALL)

TABLES: dict[str, Callable[[pd.DataFrame, Registered], str]] = {
    "arms": arms,
    "summary": summary,
    "teachers": teachers,
}
OF_VERDICTS: dict[str, Callable[[Sequence[ClaimVerdict], Registered], str]] = {
    "claims": every_claim,
    "lead_arms": lead_arms,
    "learning": learning,
    "training": training,
}


def filled(text: str, runs: pd.DataFrame, curves: pd.DataFrame | None = None) -> str:
    """``text`` with its tables as ``runs`` give them, and ``curves``: runs that were scored on the way."""
    of_plan = load_registered()

    @cache
    def verdicts() -> list[ClaimVerdict]:
        further = read_runs(find_runs(STORED / HINT_GAP, may_be_none=True))
        return claim_verdicts.claim_verdicts(
            pd.concat([runs, further]), probes.read_folders([STORED]), claims.load_claims(), curves
        )

    def table(found: re.Match[str]) -> str:
        beginning, name, envs, body, end = found.groups()
        if name == "methods":
            everything = runs if curves is None else pd.concat([runs, curves])
            return f"{beginning}\n{filled_methods(body, everything)}\n\n{end}"
        if name == "against":
            return f"{beginning}\n{verdicts_against(runs, of_plan.against)}\n\n{end}"
        if name == "published_probes":
            return f"{beginning}\n{published_probes(probes.read_folders([STORED, STORED / GATE]))}\n\n{end}"
        if name in OF_VERDICTS:
            return f"{beginning}\n{OF_VERDICTS[name](verdicts(), of_plan)}\n\n{end}"
        seen = runs if curves is None else with_further(runs, curves)
        if name != "arms":
            seen = of_base_checkpoints(seen, of_plan, envs.split() or of_plan.envs)
        if name == "core":
            return f"{beginning}\n{core(of_base_checkpoints(runs, of_plan), seen, of_plan)}\n\n{end}"
        return f"{beginning}\n{TABLES[name](seen, of_plan)}\n\n{end}"

    return BLOCK.sub(table, text)


def write() -> None:
    """Fill in the tables of every page."""
    runs, curves = (read_runs(find_runs(folder, may_be_none=True)) for folder in (STORED, STORED / CURVES))
    for page in PAGES:
        write_text_atomic(page, filled(page.read_text(encoding="utf-8"), runs, curves))


if __name__ == "__main__":
    write()
