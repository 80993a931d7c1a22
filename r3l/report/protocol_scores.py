"""Scores of evaluations by a protocol: their intervals, circumstances, and published numbers to compare
with; and one model's scores under each protocol of an environment, as a table and a figure."""

from __future__ import annotations

import io
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from pydantic import Field

from r3l.config import Strict
from r3l.config.protocol import PAPER, is_question_set, load_protocol
from r3l.evaluation.summary import caveats, endings, played_by
from r3l.files import paths
from r3l.files.csv_files import read_csv
from r3l.files.writing import writable, write_atomic
from r3l.report import published
from r3l.report.table import Column, Table, table, to_markdown
from r3l.stats.intervals import Interval, task_interval

Evaluation = Mapping[str, Any]
Episodes = Sequence[Mapping[str, Any]]
Evaluations = Sequence[tuple[Evaluation, Episodes]]
BENCHMARKS = {"minerva": "MinervaMath"}  # where a published name is not the environment's
FORMATS = {
    "<answer>": "r3l",
    "boxed": "r3l_boxed",
}  # published zero-shot settings: the protocol that plays them
TRAINED = ("GRPO", "R3L")  # of the paper's Table 1, which has no games played by a model as it is


class CitedScore(Strict):
    """A published score in [0, 1], with its number of episodes ``n`` and its ``source``.

    ``differs``: why it was not measured by the same protocol; empty if it was. Raises pydantic's
    ValidationError for a value outside [0, 1] or ``n`` below 1.
    """

    env: str
    protocol: str
    model: str
    measure: str
    value: float = Field(ge=0, le=1)
    n: int = Field(ge=1)
    source: str
    differs: str

    def one_line(self) -> str:
        """Model, measure, value and source on one line."""
        return f"{self.model} {self.measure} {self.value:g} (n {self.n}; {self.source})"


def interval_over_tasks(episodes: Episodes, key: str = "success") -> Interval:
    """Mean over tasks of each task's mean of ``key`` over its attempts, with a 95 % interval over tasks.

    The interval is Wilson's if each task's mean is 0 or 1, else Student's, whose bounds are None below
    MIN_SEEDS tasks. Raises ValueError without episodes.
    """
    return task_interval(_of_tasks(episodes, key))


def _of_tasks(episodes: Episodes, key: str) -> list[float]:
    """One mean per task, over its attempts."""
    by_task = defaultdict(list)
    for row in episodes:
        by_task[row["task"]].append(float(row[key]))
    return [fmean(values) for values in by_task.values()]


def passes(episodes: Episodes, key: str = "success") -> list[float]:
    """The mean of ``key`` over the tasks, for each attempt number in order (0, 1, ...); [] without episodes.

    Tasks without this attempt are left out of its mean.
    """
    by_member = defaultdict(list)
    for row in episodes:
        by_member[row["member"]].append(float(row[key]))
    return [fmean(values) for _, values in sorted(by_member.items())]


def cited_scores(env: str, protocol: str) -> list[CitedScore]:
    """Published scores in an environment to show with ours; those measured by ``protocol`` come first.

    Others have ``differs`` set. Raises DataError if their file is damaged.
    """
    cited = [row for _, row in read_csv(paths.CONFIGS / "protocols/published.csv", CitedScore)]
    seen = []
    for row in (*cited, *_of_paper(env)):
        if row.env == env:
            other = "" if row.protocol == protocol else f"another protocol: {row.protocol}"
            seen.append(row.model_copy(update={"differs": row.differs or other}))
    return sorted(seen, key=lambda row: bool(row.differs))


def _of_paper(env: str) -> list[CitedScore]:
    """The paper's scores in an environment, with a known n: zero-shot ones, and Table 1's of TRAINED."""
    benchmark = BENCHMARKS.get(env, env).lower()
    found = []
    for row in published.load():
        trained = row.table == "table1" and row.method in TRAINED and not is_question_set(env)
        if row.benchmark.lower() != benchmark or not (row.table == "zero_shot" or trained) or row.n is None:
            continue
        score = CitedScore(
            env=env,
            protocol=FORMATS.get(row.setting, PAPER),
            model=row.backbone,
            measure=row.metric,
            value=float(row.value),
            n=row.n,
            source="the paper's Table 1" if trained else "the paper's zero-shot table",
            differs=f"trained by {row.method}" if trained else "",
        )
        found.append(score)
    return found


def lines(evaluation: Evaluation, episodes: Episodes) -> list[str]:
    """The lines that follow an evaluation's summary; ``episodes``: its episodes, at least one.

    They give the standard error over tasks of the mean success. Under a protocol they also give its measure
    with an interval, the tokens generated, and published scores in this environment: first scores under the
    same protocol, then others and why they are not comparable.
    """
    if "protocol" not in evaluation:
        return [_spread(episodes)]
    env = evaluation["env"]
    name = evaluation["protocol"]["name"]
    rows = cited_scores(env, name)
    same = [row.one_line() for row in rows if not row.differs]
    deviates = ", from which this run deviates" if evaluation["protocol"]["deviations"] else ""
    others = [f"{row.one_line()}: {row.differs}" for row in rows if row.differs]
    return [
        *_scored(evaluation, episodes),
        f"published by this protocol{deviates}: {'; '.join(same) if same else 'no number that can be cited'}",
        *(f"not comparable: {row}" for row in others),
    ]


def _scored(evaluation: Evaluation, episodes: Episodes) -> list[str]:
    measure = load_protocol(evaluation["env"], evaluation["protocol"]["name"]).config.measure
    line = f"{measure} {shown(interval_over_tasks(episodes, measure))}; {_spread(episodes, measure)}"
    turns = evaluation["turns"]
    tokens = evaluation["tokens"]["generated"]
    spent = f"{tokens:,.0f} tokens generated, {tokens / len(episodes):,.0f} an episode"
    if turns["impossible"]:  # an action that ends an episode is among its endings
        spent += f"; {turns['impossible']} of {turns['all']} turns had an impossible action, "
        spent += "after which the episode went on"
    return [line, spent]


def _spread(episodes: Episodes, key: str = "success") -> str:
    """The standard error over tasks as in lm-eval (sample deviation / sqrt(n)), as text.

    If tasks were attempted several times, the mean of each attempt is added.
    """
    means = _of_tasks(episodes, key)
    repeats = passes(episodes, key)
    line = "no standard error of one task"
    if len(means) > 1:
        line = f"standard error {stdev(means) / len(means) ** 0.5:.3f} over {len(means)} tasks"
    attempts = ", ".join(f"{value:.3f}" for value in repeats)
    return line if len(repeats) == 1 else f"{line}, each {len(repeats)} times; by attempt: {attempts}"


def shown(score: Interval) -> str:
    """A score with its interval, as printed: ``0.250 (0.180 to 0.330; Wilson, 134 tasks)``."""
    if score.low is None:
        return f"{score.mean:.3f} (no interval: {score.seeds} task{'' if score.seeds == 1 else 's'})"
    return f"{score.mean:.3f} ({score.low:.3f} to {score.high:.3f}; {score.kind.replace('seeds', 'tasks')})"


def several(evaluations: Evaluations, places: Sequence[Path]) -> Table:
    """The table of several evaluations, one row each; notes name their folders ``places``, in their order.

    Raises ValueError for an evaluation without episodes.
    """
    columns = [
        Column("environment", lambda row: row[0]["env"]),
        Column("model", lambda row: row[0]["model"]),
        Column("played by", lambda row: row[0].get("protocol", {}).get("name", f"tier {row[0]['tier']}")),
        Column("episodes", lambda row: row[0]["episodes"], "d"),
        Column("success (95 % interval)", lambda row: shown(interval_over_tasks(row[1]))),
        Column("reward", lambda row: fmean(float(episode["reward"]) for episode in row[1]), ".3f"),
        Column("how they ended", lambda row: endings(row[0]["stops"])),
    ]
    notes = [
        "; ".join([f"{k}: {place}", *caveats(evaluation)])
        for k, ((evaluation, _), place) in enumerate(zip(evaluations, places, strict=True), 1)
    ]
    return table("Evaluations", columns, list(evaluations), *notes)


def markdown(evaluation: Evaluation, episodes: Episodes) -> str:
    """Markdown tables for a model card: scores by task group, and published numbers to compare them with.

    Notes say how episodes ended and, under a protocol, what it is and how many tokens were generated.
    """
    by_group = defaultdict(list)
    for row in episodes:
        by_group[row["group"] or "all"].append(row)
    groups = {"all": episodes} | (dict(sorted(by_group.items())) if len(by_group) > 1 else {})
    columns = [
        Column("tasks", lambda pair: pair[0]),
        Column("episodes", lambda pair: len(pair[1]), "d"),
        Column("success (95 % interval)", lambda pair: shown(interval_over_tasks(pair[1]))),
        Column("mean reward", lambda pair: fmean(float(row["reward"]) for row in pair[1]), ".3f"),
    ]
    notes = [
        f"How episodes ended: {endings(evaluation['stops'])}.",
        *caveats(evaluation),
        *played_by(evaluation.get("protocol")),
    ]
    title = f"{evaluation['model']} on {evaluation['env']}, task set {evaluation['task_set']['name']}"
    if "protocol" not in evaluation:
        return to_markdown(table(title, columns, list(groups.items()), *notes))
    parts = [table(title, columns, list(groups.items()), *notes, *_scored(evaluation, episodes))]
    if cited := cited_scores(evaluation["env"], evaluation["protocol"]["name"]):
        of_cited = [Column("model"), Column("measure"), Column("value", form="g"), Column("n", form="d")]
        of_cited += [Column("source"), Column("not comparable", lambda row: row.differs)]
        parts.append(table("Published numbers", of_cited, cited))
    return "\n\n".join(map(to_markdown, parts))


def compared(evaluations: Evaluations) -> Table:
    """The table that compares evaluations (at least one) of one model under several protocols, one row each.

    All are in one environment, by a protocol, and with at least one episode.
    """
    first, _ = evaluations[0]

    def measure(row: tuple[Evaluation, Episodes]) -> str:
        return load_protocol(row[0]["env"], row[0]["protocol"]["name"]).config.measure

    def impossible(row: tuple[Evaluation, Episodes]) -> str:
        return f"{row[0]['turns']['impossible']} of {row[0]['turns']['all']}"

    columns = [
        Column("protocol", lambda row: row[0]["protocol"]["name"]),
        Column("task set", lambda row: row[0]["task_set"]["name"]),
        Column("episodes", lambda row: row[0]["episodes"], "d"),
        Column("success (95 % interval)", lambda row: shown(interval_over_tasks(row[1]))),
        Column("reward (95 % interval)", lambda row: shown(interval_over_tasks(row[1], "reward"))),
        Column("reports", measure),
        Column("impossible actions", impossible),
        Column("deviations", lambda row: "; ".join(row[0]["protocol"]["deviations"])),
    ]
    title = f"{first['model']} on {first['env']}, one model by every protocol"
    note = "Rewards are not on one scale: each protocol has its own rule. Task sets differ too."
    known = dict.fromkeys(line for evaluation, _ in evaluations for line in caveats(evaluation))
    return table(title, columns, list(evaluations), note, *known)


def draw(evaluations: Evaluations, path: Path) -> Path:
    """Draw success by protocol with its interval over tasks, as the PNG file ``path``; returns it.

    Raises RunDirectoryError if it cannot be written.
    """
    import matplotlib.style  # takes a second

    from r3l.report.figures import style

    first, _ = evaluations[0]
    with matplotlib.style.context(style.SHEET):
        figure, axes = style.subplots(1, 1, style.COLUMN, 0.3 * len(evaluations) + 0.8)
        axis = axes[0, 0]
        for place, (_, episodes) in enumerate(evaluations):
            found = interval_over_tasks(episodes)
            low, high = (found.mean if end is None else end for end in (found.low, found.high))
            reach = [[found.mean - low], [high - found.mean]]
            axis.errorbar(found.mean, place, xerr=reach, fmt="o", color=style.GREY, capsize=2)
        names = [f"{e['protocol']['name']} ({e['task_set']['name']})" for e, _ in evaluations]
        axis.set_yticks(range(len(evaluations)), names)
        axis.invert_yaxis()
        axis.set_xlim(0, 1)
        axis.set_xlabel("success, 95 % interval over tasks")
        axis.set_title(f"{first['model']}, {first['env']}", loc="left")
        drawn = io.BytesIO()  # in memory: matplotlib fails in its own ways on a full disk
        figure.savefig(drawn, format="png", metadata={"Software": None})
    with writable(path):
        write_atomic(path, drawn.getvalue())
    return path
