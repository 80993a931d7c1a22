"""Teachers of a probe: the model itself with a hint in its prompt, reading attempts that it made without one.

D = log p of a sampled token with the hint minus log p without. A teacher whose D is the same on successes
and on failures cannot tell them apart, so no method learns from it which attempt was good.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from r3l.baselines.teacher import give_teacher, solution
from r3l.core.batching import rows_to_score
from r3l.core.rollout import Episode, RolloutContext
from r3l.core.trajectory import Trajectory
from r3l.local.session import LocalSession
from r3l.probe.attempts import TeacherReading
from r3l.retry import GuidancePlace
from r3l.runs.session import PlaySession
from r3l.runs.steps import feedback_metrics


def taught_copies(
    ctx: RolloutContext,
    episode: Episode,
    others: Sequence[Trajectory],
    guidance: str | None,
    place: GuidancePlace,
) -> dict[str, Trajectory]:
    """The finished attempt in the context of each teacher that sees something, by its name (TEACHERS).

    ``others``: attempts, of which the first other one that solved the task is shown. ``guidance``: what the
    model's reflection on the attempt advises, None without one. ``place``: where in the prompt a hint is
    inserted. Empty if the policy returns no token ids, as a server may.
    """
    own = episode.trajectory
    if not all(turn.response_ids for turn in own.turns):
        return {}
    solved = (t for t in others if t.task.id == own.task.id and t.success and t is not own)
    sibling = next(solved, None)
    hints = {"solution": None if sibling is None else solution(ctx, sibling), "reflection": guidance}
    found = {}
    for name, text in hints.items():
        if text is not None:
            copied = replace(episode, trajectory=replace(own))
            give_teacher(ctx, copied, text, place)
            found[name] = copied.trajectory
    return found


def read_by_teachers(session: PlaySession, taught: Sequence[Trajectory]) -> list[TeacherReading | None]:
    """Score trajectories in their teachers' contexts; one reading each.

    None where the context exceeds ``sampling.max_context``, or if the policy is at a server.
    """
    readings: list[TeacherReading | None] = [None] * len(taught)
    if not isinstance(session, LocalSession):
        return readings
    run = session.run
    contexts: Mapping[int, Trajectory] = {
        k: context
        for k, context in enumerate(t.in_teacher_context() for t in taught)
        if max(len(row.ids) for row in rows_to_score([context], run.samples)) <= run.sampling.max_context
    }
    scored = session.logprobs([*contexts.values()]) if contexts else []
    for k, logprobs_S in zip(contexts, scored, strict=True):
        own_S = [value for turn in taught[k].turns for value in turn.logprobs]
        gap = round(float(sum(logprobs_S.tolist()) - sum(own_S)), 4)
        shown = feedback_metrics([taught[k]], session.tokenizer)["teacher/with_feedback"] == 1
        readings[k] = TeacherReading(gap, len(own_S), shown)
    return readings
