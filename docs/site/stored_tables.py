"""The tables of README, docs/results.md and docs/methods.md: ``python docs/site/stored_tables.py`` fills them in.

A table stands between ``<!-- stored: NAME -->`` and ``<!-- end -->``; what is around it is written by hand.
Its environments are those of the pre-registration, or follow the name: ``<!-- stored: NAME ENV ENV -->``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import NamedTuple

import numpy as np
import pandas as pd

from docs.site.method_rows import filled_methods, verdicts_against
from r3l.files.paths import ROOT, STORED
from r3l.files.writing import write_text_atomic
from r3l.report import claim_verdicts, claims, claims_table, probes, scores
from r3l.report.claim_verdicts import ClaimVerdict
from r3l.report.figures.bars import ending_shares
from r3l.report.frame import ALL, Bench, all_tasks, common_seeds, read_runs, with_further
from r3l.report.labels import MDE, env_label, method_label, plus_minus
from r3l.report.published import Reference
from r3l.report.registered import (
    RULE,
    Registered,
    load_registered,
    of_base_checkpoints,
    registered_rows,
    registered_table,
)
from r3l.report.teachers import TeacherRow, teacher_rows
from r3l.report.updates import at_rate, learning_rate, updates
from r3l.runs.run_paths import CURVES, HINT_GAP, find_runs
from r3l.stats.comparison import Effect, Verdict, claim_verdict, compare
from r3l.stats.intervals import MIN_SEEDS

PAGES = (ROOT / "README.md", ROOT / "docs" / "results.md", ROOT / "docs" / "methods.md")
BLOCK = re.compile(r"(<!-- stored: (\w+)((?: \w+)*) -->\n)(.*?)(<!-- end -->)", re.DOTALL)
NOTHING = "No such run is stored yet."
AT = "@train.lr=0.0003"
ARMS = ("grpo", f"r3l{AT}", "r3l@min_logprob=-5,train.lr=0.0003", f"r3l_is{AT}", f"r3l_no_reflection{AT}")
ARMS += (f"r3l_no_amplification{AT}",)
DECIDED = (Verdict.AHEAD, Verdict.BEHIND, Verdict.EQUIVALENT)
SEEDS = 5  # of each arm
OF_STEPS = {
    "distilled/hint_gap": ("R3L: hint gap in training", ".2f"),
    "distilled/unlikely": ("R3L: share of tokens below -5", ".3f"),
}
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
Rows = dict[
    str, dict[str, str]
]  # texts by the row's name and by column; of means with how many seeds, in brackets


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
        if name in OF_VERDICTS:
            return f"{beginning}\n{OF_VERDICTS[name](verdicts(), of_plan)}\n\n{end}"
        seen = runs if curves is None else with_further(runs, curves)
        if name != "arms":
            seen = of_base_checkpoints(seen, of_plan, envs.split() or of_plan.envs)
        return f"{beginning}\n{TABLES[name](seen, of_plan)}\n\n{end}"

    return BLOCK.sub(table, text)


def core(runs: pd.DataFrame, of_plan: Registered) -> str:
    """Base checkpoint and both methods of the primary comparisons, and what those say."""
    rows = _scores(runs, ["zero_shot", of_plan.against, of_plan.method])
    difference = f"{method_label(of_plan.method)} minus {method_label(of_plan.against)}, paired by seed"
    names = {difference: "difference", "97 % interval": "interval"}
    names |= {"minimum detectable effect": MDE, "verdict": "verdict"}
    compared = [row for row in registered_rows(runs, of_plan) if row.pairs and not row.earlier]
    for cells in registered_table(compared, of_plan).sections[0].rows if compared else ():
        for name, column in names.items():
            rows.setdefault(name, {})[cells["env"].text] = cells[column].text
    labels = f"{method_label(of_plan.against)}, {method_label(of_plan.method)}"
    for row in compared:
        equal = _at_equal_rates(runs[runs.env == row.env], of_plan, row.verdict)
        rows.setdefault(f"learning rates ({labels})", {})[env_label(row.env)] = equal.rates
        rows.setdefault("at equal rates, 95 % interval", {})[env_label(row.env)] = equal.text
        if equal.verdict != row.verdict:
            rows["verdict"][env_label(row.env)] = f"inconclusive ({equal.reason})"
    rows["verdict"] = rows.pop("verdict", {})  # the last row but for the budgets
    for method in (of_plan.against, of_plan.method):
        name = f"{method_label(method)}: thousand tokens sampled, scored, trained"
        for env, seeds in all_tasks(runs[runs.method == method]).groupby("env"):
            counts = scores.mean_tokens(seeds).values()
            if None not in counts:
                rows.setdefault(name, {})[env_label(env)] = ", ".join(f"{n / 1000:.0f}" for n in counts)
    return _pipes({name: cells for name, cells in rows.items() if cells})


def summary(runs: pd.DataFrame, of_plan: Registered) -> str:
    """Test success of the base checkpoint and both methods, all at one learning rate, a row per environment.

    Means over the seeds that both methods have, in brackets, and their difference with its 95 % interval.
    """
    labels = {name: method_label(name) for name in (of_plan.against, of_plan.method)}
    base = _scores(runs, ["zero_shot"])
    starts = next(iter(base.values()), {})
    rows: Rows = {}
    for env in of_plan.envs:
        of_env = runs[(runs.env == env) & (runs.group == ALL)]
        rate = learning_rate(of_env, of_plan.against)
        if rate is None:
            continue
        theirs, ours = common_seeds(*(at_rate(of_env, name, rate) for name in labels))
        values = claims.ScoreTest(method=of_plan.method, against=of_plan.against).values_S(of_env, rate)
        if len(values) < MIN_SEEDS:
            continue
        label = env_label(env)
        low, high = Effect.of_seeds(values).bounds()
        rows[f"{label} ({len(values)} seeds)"] = {
            "base checkpoint": starts.get(label, "").partition(" ")[0],
            **{
                text: f"{np.mean(seeds.success):.3f}"
                for text, seeds in zip(labels.values(), (theirs, ours), strict=True)
            },
            "difference, 95 % interval": f"{np.mean(values):+.3f} ({low:+.3f} to {high:+.3f})",
        }
    return _pipes(rows)


class EqualRates(NamedTuple):
    """The comparison at equal learning rates: both rates now, how it is shown, its verdict, and why that differs
    from the tuned one."""

    rates: str
    text: str
    verdict: str
    reason: str = ""


def _at_equal_rates(runs: pd.DataFrame, of_plan: Registered, tuned: str) -> EqualRates:
    """Judge the method at the rate of its opponent, in one environment. A comparison at unequal rates holds only
    where this one agrees. ``tuned``: the verdict at the rates that were used."""
    test = claims.ScoreTest(method=of_plan.method, against=of_plan.against)
    rates = test.learning_rates(runs)
    if rates is None:
        return EqualRates("several", "not run", "", "rates differ")
    ours, theirs = map(claims.short_rate, rates)
    values = test.at_equal_rates(runs)
    if values is None:
        return EqualRates(f"{theirs}, {ours}", "the same", tuned)
    if len(values) < MIN_SEEDS:
        return EqualRates(f"{theirs}, {ours}", "not run", "", "rates differ")
    (compared,) = compare([Effect.of_seeds(values)], alpha=RULE.alpha)
    assert compared is not None
    low, high = compared.effect.bounds()
    text = f"{compared.effect.mean:+.3f} ({low:+.3f} to {high:+.3f}; {len(values)} seeds)"
    planned = next(claim for claim in claims.load_claims().claims if claim.id == "learns_60_grpo").seeds
    if len(values) < (wanted := planned.get(runs.iloc[0].env, 0)):
        return EqualRates(f"{theirs}, {ours}", text, "", f"{len(values)} of {wanted} seeds at equal rates")
    verdict = claim_verdict(compared, RULE.difference)
    return EqualRates(f"{theirs}, {ours}", text, verdict, "the rates disagree")


def _listed(sentences: Iterable[str]) -> str:
    """Sentences in one, their beginning once where several have it: R3L is ahead of RAFT, OPMD."""
    ends: dict[str, list[str]] = {}
    for sentence in sentences:
        found = re.fullmatch(r"(.* (?:than|itself|ahead of)) (.+)", sentence)
        stem, end = found.groups() if found else (sentence, "")
        ends.setdefault(stem, []).append(end)
    return "; ".join(f"{stem} {', '.join(of_stem)}".strip() for stem, of_stem in ends.items())


def every_claim(rows: Sequence[ClaimVerdict], of_plan: Registered) -> str:
    """A row a claim of the paper with a verdict somewhere; below, its other claims."""
    rows = [row for row in rows if row.claim.family is claims.Family.PAPER]
    tested = {row.claim.id for row in rows if row.count}
    decided = {row.claim.id for row in rows if row.verdict in DECIDED}
    most: dict[str, int] = {}  # training seeds of a claim, in the environment with most
    for row in rows:
        if row.over == "seeds":
            most[row.claim.id] = max(row.count, most.get(row.claim.id, 0))
    names = {row.claim.id: claims_table.sentence(row.claim) for row in rows}
    names |= {claim: f"{names[claim]} ({n} seeds)" for claim, n in most.items() if 0 < n < SEEDS}
    own, published = Rows(), Rows()  # of this tier's base checkpoints; of published models
    for row in rows:
        if row.claim.id in decided:
            cells = own if row.bench[0] == of_plan.tier else published
            cells.setdefault(names[row.claim.id], {})[row.label] = (
                claims_table.in_short(row) if row.count else ""
            )
    left_open = [row.claim for row in rows if row.claim.id in tested - decided]
    undecided = dict.fromkeys(map(claims_table.sentence, left_open))
    left = len({row.claim.id for row in rows} - tested)
    texts = [f"Inconclusive wherever tested: {_listed(undecided)}."] if undecided else []
    texts += [f"Claims that are not tested: {left}."] if left else []
    return "\n\n".join([_pipes(own), *([_pipes(published)] if published else []), *texts])


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
    return _pipes(texts)


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
    return _pipes(texts)


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
    return _pipes({texts[bench].pop(""): texts[bench] for bench in largest_first})


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


def arms(runs: pd.DataFrame, of_plan: Registered) -> str:
    """The arms of the registered experiment on ALFWorld minus GRPO, and what R3L's training showed, a column
    a base checkpoint."""
    runs = pd.concat([runs, read_runs(find_runs(STORED / HINT_GAP, may_be_none=True))])
    runs = runs[(runs.tier == of_plan.tier) & (runs.env == "alfworld")]
    models = dict(iter(runs.groupby("model")))
    rows: Rows = {}
    for method in ARMS:
        for model, of_model in models.items():
            seeds = all_tasks(of_model[of_model.method == method])
            if len(seeds):
                label = seeds.iloc[0].label.replace(", train.lr=0.0003", "").replace(" (train.lr=0.0003)", "")
                rows.setdefault(label, {})[f"`{model}`"] = _arm(seeds, of_model, of_plan.against)
    for model, of_model in models.items():
        for label, text in _in_training(all_tasks(of_model[of_model.method == ARMS[1]])).items():
            rows.setdefault(label, {})[f"`{model}`"] = text
    return _pipes(rows)


def teachers(runs: pd.DataFrame, of_plan: Registered) -> str:
    """What teachers make of successes and failures: in stored runs, and in probes of their base models.

    A row a teacher, environment by environment; in brackets the seeds or tasks of the interval. The column of
    equal hints is there once a stored run has recorded D by kind of hint.
    """
    nano = runs[runs.tier == of_plan.tier]
    benches = set(zip(nano.env, nano.model, strict=True))
    probed = [
        probe
        for probe in probes.read_folders([STORED])
        if probe["tier"] == of_plan.tier and (probe["env"], probe["model"]["name"]) in benches
    ]
    found = teacher_rows(nano, probed)
    equal_hints = any(row.same_difference is not None for row in found)
    rows: Rows = {}
    for row in found:
        name = row.label.replace(f"Probe of {row.model}: ", "probe, ")
        rows[f"{env_label(row.env)}: {name} ({row.count} {row.over})"] = _teacher(row, equal_hints)
    return _pipes(rows)


def _teacher(row: TeacherRow, equal_hints: bool) -> dict[str, str]:
    """The cells of one teacher, with the difference at ``equal_hints``; empty where nothing was measured."""

    def number(value: float | None, form: str) -> str:
        return "" if value is None else format(value, form)

    def interval(mean: float | None, low: float | None, high: float | None) -> str:
        return number(mean, "+.3f") + ("" if low is None else f" ({low:+.3f} to {high:+.3f})")

    same = {"difference, equal hints": interval(row.same_difference, row.same_low, row.same_high)}
    return {
        "D successes": number(row.solved, "+.3f"),
        "D failures": number(row.failed, "+.3f"),
        "difference": interval(row.difference, row.low, row.high),
        **(same if equal_hints else {}),
        "feedback": number(row.fed, ".2f"),
        "gradient": number(row.grad_share, ".2g"),
        "cosine": number(row.grad_cosine, "+.2f"),
        "test success": number(row.success, ".3f"),
        "verdict": row.verdict,
    }


def _arm(seeds: pd.DataFrame, of_bench: pd.DataFrame, against: str) -> str:
    """Of GRPO the mean success, of others the paired difference to it; of few seeds its values."""
    count = "" if len(seeds) == SEEDS else f" ({len(seeds)} seeds)"
    if seeds.iloc[0].method == against:
        return f"{np.mean(seeds.success):.3f}{count}"
    values = claims.ScoreTest(method=seeds.iloc[0].method, against=against).values_S(of_bench)
    if len(values) < MIN_SEEDS or np.ptp(values) == 0:
        return ", ".join(f"{value:+.3f}" for value in values)
    low, high = Effect.of_seeds(values).bounds()
    return f"{np.mean(values):+.3f} ({low:+.3f} to {high:+.3f}){count}"


def _in_training(seeds: pd.DataFrame) -> dict[str, str]:
    """Means over R3L's updates, and how many of its test episodes an impossible action ended."""
    shown = {}
    for name, (label, form) in OF_STEPS.items():
        if steps := [step[name] for path in seeds.path for step in updates(path) if name in step]:
            shown[label] = format(float(np.mean(steps)), form)
    return shown | {
        "R3L: ended by an impossible action": f"{ending_shares(seeds).get('inadmissible', 0.0):.3f}"
    }


TABLES: dict[str, Callable[[pd.DataFrame, Registered], str]] = {
    "arms": arms,
    "core": core,
    "summary": summary,
    "teachers": teachers,
}
OF_VERDICTS: dict[str, Callable[[Sequence[ClaimVerdict], Registered], str]] = {
    "claims": every_claim,
    "lead_arms": lead_arms,
    "learning": learning,
    "training": training,
}


def _scores(runs: pd.DataFrame, methods: Sequence[str]) -> Rows:
    """Over all tasks."""
    texts: Rows = {}
    rows = scores.score_rows(runs, methods, "zero_shot", 0, reference=Reference([]))
    for row in rows[rows.group == "all"].itertuples():
        if row.mean is not None:
            text = plus_minus(row.mean, row.low, row.high, row.points, row.unit)
            seeds = f" ({row.seeds_done})" if row.seeds_done else ""
            texts.setdefault(row.label, {})[env_label(row.env)] = text + seeds
    return texts


def _pipes(rows: Rows) -> str:
    if not rows:
        return NOTHING
    columns = list(dict.fromkeys(name for texts in rows.values() for name in texts))
    lines = [[name, *(texts.get(column, "") for column in columns)] for name, texts in rows.items()]
    return "\n".join(
        f"| {' | '.join(line)} |" for line in (["", *columns], ["---"] * (1 + len(columns)), *lines)
    )


def write() -> None:
    """Fill in the tables of every page."""
    runs, curves = (read_runs(find_runs(folder, may_be_none=True)) for folder in (STORED, STORED / CURVES))
    for page in PAGES:
        write_text_atomic(page, filled(page.read_text(encoding="utf-8"), runs, curves))


if __name__ == "__main__":
    write()
