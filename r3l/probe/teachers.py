"""Teachers of a probe: the model itself with a hint in its prompt, reading attempts that it made without one.

D = log p of a sampled token with the hint minus log p without. A teacher whose D is the same on successes
and on failures cannot tell them apart, so no method learns from it which attempt was good.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from r3l.baselines.teacher import give_teacher, solution
from r3l.core.batching import rows_to_score
from r3l.core.rollout import Episode, RolloutContext
from r3l.core.trajectory import Trajectory
from r3l.local.session import LocalSession
from r3l.probe.attempts import TeacherReading
from r3l.retry import GuidancePlace
from r3l.runs.session import PlaySession
from r3l.runs.steps import teacher_metrics


def taught_copies(
    ctx: RolloutContext,
    episode: Episode,
    others: Sequence[Trajectory],
    guidance: str | None,
    place: GuidancePlace,
) -> dict[str, Trajectory]:
    """Copies of a finished attempt, each in the context of a teacher, by the teacher's name (TEACHERS).

    The teacher ``solution`` sees the first of the ``others`` that solved the same task; ``reflection`` sees
    ``guidance``, what the model's reflection on the attempt advises. A teacher that would see nothing is left
    out. ``place``: where in the prompt the hint is inserted, ``system_message`` or ``user_turn``. {} if the
    policy returns no token ids, as a server may.
    """
    own = episode.trajectory
    if not all(turn.response_ids for turn in own.turns):
        return {}
    siblings = [t for t in others if t.task.id == own.task.id and t.success and t is not own]
    sibling = siblings[0] if siblings else None
    hints = {"solution": None if sibling is None else solution(ctx, sibling), "reflection": guidance}
    found = {}
    for name, text in hints.items():
        if text is not None:
            copied = replace(episode, trajectory=replace(own))
            give_teacher(ctx, copied, text, place)
            found[name] = copied.trajectory
    return found


def read_by_teachers(session: PlaySession, taught: Sequence[Trajectory]) -> list[TeacherReading | None]:
    """Compare the log-probs of attempts in their teachers' contexts with those of sampling, one result each.

    ``taught``: copies by :func:`taught_copies`. A reading has the sum of the differences over all sampled
    tokens (nats), their number, and whether the teacher's prompt contains its hint. It is None if the
    context exceeds ``sampling.max_context`` tokens; all are None if the policy is behind a server.
    """
    readings: list[TeacherReading | None] = [None] * len(taught)
    if not isinstance(session, LocalSession):
        return readings
    run = session.run
    contexts: dict[int, Trajectory] = {}
    for k, copied in enumerate(taught):
        context = copied.in_teacher_context()
        longest = max(len(row.ids) for row in rows_to_score([context], run.samples))
        if longest <= run.sampling.max_context:
            contexts[k] = context
    scored = session.logprobs([*contexts.values()]) if contexts else []
    for k, logprobs_S in zip(contexts, scored, strict=True):
        own_S = [value for turn in taught[k].turns for value in turn.logprobs]
        gap = round(float(sum(logprobs_S.tolist()) - sum(own_S)), 4)
        shown = teacher_metrics([taught[k]], session.tokenizer)["teacher/with_feedback"] == 1
        readings[k] = TeacherReading(gap, len(own_S), shown)
    return readings
