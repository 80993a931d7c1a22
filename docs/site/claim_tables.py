"""Tables of the verdicts on claims: those of the paper, on learning curves, and on R3L with one part changed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from docs.site.pipe_table import Rows, pipe_table
from r3l.files.paths import STORED
from r3l.report import claim_verdicts, claims, claims_table, probes
from r3l.report.claim_rows import ClaimVerdict
from r3l.report.frame import Bench
from r3l.report.registered import Registered
from r3l.stats.comparison import Verdict
from r3l.stats.intervals import MIN_SEEDS

DECIDED = (Verdict.AHEAD, Verdict.BEHIND, Verdict.EQUIVALENT)
SEEDS = 5  # of a claim whose row does not name its number of seeds
LEARNING = {  # rows of the table of learning: the claims by id
    "held-out success after 10 updates": "learns_10_{}",
    "after 20": "learns_20_{}",
    "after 30": "learns_30_{}",
    "after 60": "learns_60_{}",
    "at equal tokens (10 updates of the cheaper one)": "learns_tokens_10_{}",
    "at equal tokens (20)": "learns_tokens_20_{}",
    "at equal tokens (30)": "learns_tokens_30_{}",
    "at equal tokens (60)": "learns_tokens_60_{}",
    "updates saved until 95 % of the other's end": "saves_updates_held_out_{}",
    "thousand tokens saved until then": "saves_tokens_held_out_{}",
    "early (10, 20) minus late (60)": "lead_ends_{}",
    "training success, updates 1 to 20": "trains_1_20_{}",
    "training success, updates 51 to 60": "trains_51_60_{}",
}
LEAD_ARMS = {  # rows of the table of arms that isolate why a lead ends: methods in the claims' ids
    "the critic's feedback": "r3l@feedback=environment",
    "retries after failures only": "r3l@reflect_when=failed_only",
    "no retries after update 20": "r3l@retries_until=0.3334",
    "no amplification after update 20": "r3l@amplify_until=0.3334",
    "imitation twice as heavy": "r3l@sft_coef=2",
    "imitation 4 times as heavy": "r3l@sft_coef=4",
    "GRPO with amplification, minus GRPO": "grpo_amplified",
}


def _listed(sentences: Iterable[str]) -> str:
    """Sentences in one, their beginning once where several have it: R3L is ahead of RAFT, OPMD."""
    ends: dict[str, list[str]] = {}
    for sentence in sentences:
        found = re.fullmatch(r"(.* (?:than|itself|ahead of)) (.+)", sentence)
        stem, end = found.groups() if found else (sentence, "")
        ends.setdefault(stem, []).append(end)
    return "; ".join(f"{stem} {', '.join(of_stem)}".strip() for stem, of_stem in ends.items())


def every_claim(rows: Sequence[ClaimVerdict], of_plan: Registered) -> str:
    """A row a claim of the paper with a verdict somewhere; below, its other claims.

    Replaced base checkpoints have the last columns.
    """
    rows = [row for row in rows if row.claim.family in (claims.Family.PAPER, claims.Family.REPLACED)]
    rows.sort(key=lambda row: row.claim.family is claims.Family.REPLACED)
    tested = {row.claim.id for row in rows if row.count}
    decided = {row.claim.id for row in rows if row.verdict in DECIDED}
    most: dict[str, int] = {}  # training seeds of a claim, in the environment with most
    for row in rows:
        if row.over == "seeds":
            most[row.claim.id] = max(row.count, most.get(row.claim.id, 0))
    papers = {row.claim.id: row.claim for row in rows if row.claim.family is claims.Family.PAPER}
    names = {claim.id: claims_table.sentence(claim) for claim in papers.values()}
    names |= {claim: f"{names[claim]} ({n} seeds)" for claim, n in most.items() if 0 < n < SEEDS}
    own = Rows()  # of this tier's base checkpoints
    published = Rows()  # of published models
    for row in rows:
        if row.claim.id in decided:
            cells = own if row.bench[0] == of_plan.tier else published
            cells.setdefault(names[row.claim.id], {})[row.label] = (
                claims_table.in_short(row) if row.count else ""
            )
    left_open = [claim for claim in papers.values() if claim.id in tested - decided]
    undecided = dict.fromkeys(map(claims_table.sentence, left_open))
    left = len({*papers} - tested)
    texts = [f"Inconclusive wherever tested: {_listed(undecided)}."] if undecided else []
    texts += [f"Claims that are not tested: {left}."] if left else []
    return "\n\n".join([pipe_table(own), *([pipe_table(published)] if published else []), *texts])


def learning(rows: Sequence[ClaimVerdict], of_plan: Registered) -> str:
    """R3L minus GRPO and minus itself without reflection on the way, in the environments of the entry."""
    by_id = {(row.claim.id, row.bench[1]): row for row in rows}
    envs = list(dict.fromkeys(row.bench[1] for row in rows if row.claim.id == "learns_10_grpo"))
    texts: Rows = {}
    for label, claim in LEARNING.items():
        for env in envs:
            for against, name in (("grpo", "minus GRPO"), ("r3l_no_reflection", "minus no reflection")):
                row = by_id[claim.format(against), env]
                texts.setdefault(label, {})[f"{row.label}: {name}"] = _with_interval(row)
    return pipe_table(texts)


def lead_arms(rows: Sequence[ClaimVerdict], of_plan: Registered) -> str:
    """R3L with one part changed, minus R3L, early and at the end, beside what was predicted."""
    by_id = {(row.claim.id, row.bench[1]): row for row in rows}
    envs = list(dict.fromkeys(row.bench[1] for row in rows if row.claim.id == "final_grpo_amplified"))
    texts: Rows = {}
    for label, arm in LEAD_ARMS.items():
        cells = texts.setdefault(label, {})
        for env in envs:
            for part in ("early", "final"):
                row = by_id[f"{part}_{arm}", env]
                cells[f"{row.label}: {part}"] = _with_interval(row)
        early, final = (
            by_id[f"{part}_{arm}", envs[0]].claim.predicted[envs[0]] for part in ("early", "final")
        )
        cells["predicted: early; final"] = f"{early}; {final}"
    return pipe_table(texts)


def training(rows: Sequence[ClaimVerdict], of_plan: Registered) -> str:
    """R3L minus GRPO in training success at one learning rate, early and late, and what the probe measured before;
    the largest of these first."""
    probed = claim_verdicts.probes_by_bench(probes.read_folders([STORED]), of_plan.against)
    guided = {
        bench: next(iter(of_bench.values()))["measures"]["guided_minus_fresh"]["value"]
        for bench, of_bench in probed.items()
    }
    texts: dict[Bench, dict[str, str]] = {}
    for family in (
        "seen",
        "trains",
    ):  # runs that were seen, and where there are none at this rate the registered
        for row in rows:
            for first, last in ((1, 20), (51, 60)):
                if row.claim.id != f"{family}_{first}_{last}_grpo" or row.count < MIN_SEEDS:
                    continue
                assert row.effect is not None
                low, high = row.effect.bounds()
                cells = texts.setdefault(row.bench, {"": f"{row.label}, {claims_table.over(row)}"})
                cells.setdefault(
                    f"updates {first} to {last}", f"{row.effect.mean:+.3f} ({low:+.3f} to {high:+.3f})"
                )
    for bench, cells in texts.items():
        cells["guided minus fresh (probe)"] = f"{guided[bench]:+.3f}" if bench in guided else ""
    largest_first = sorted(texts, key=lambda bench: -guided.get(bench, -1.0))
    return pipe_table({texts[bench].pop(""): texts[bench] for bench in largest_first})


def _with_interval(row: ClaimVerdict) -> str:
    """An effect with its 95 % interval, if it has one; then its verdict, or how many of its seeds are done."""
    seeds = f"[{row.count}/{row.seeds_planned}]"
    if row.effect is None:
        return seeds
    digits = 3 if row.claim.has_margin else 1
    text = f"{row.effect.mean:+.{digits}f}"
    if not row.points:
        low, high = row.effect.bounds()
        text += f" ({low:+.{digits}f} to {high:+.{digits}f})"
    return f"{text} {seeds}" if row.seeds_due else f"{text} {row.verdict}"
