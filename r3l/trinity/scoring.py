"""Log-probs in the contexts that sampling did not see, by requests to the rollout model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from r3l.core.batching import rows_to_score
from r3l.core.policy import Samples
from r3l.core.trajectory import Group, Trajectory, unique
from r3l.processes.barrier import together
from r3l.runs.metrics import SCORED_TOKENS


class Scorer(Protocol):
    """A policy that computes the log-probs of given tokens (r3l.trinity.policy:TrinityPolicy)."""

    async def logprobs(self, ids: list[int], temperature: float, frozen: bool = False) -> list[float]:
        """Log-prob (nats) of every token of ``ids`` given those before it; 0 for the first.

        Logits are divided by ``temperature``. ``frozen``: under the base checkpoint.
        """
        ...


async def score(
    groups: Sequence[Group],
    scorer: Scorer,
    samples: Samples,
    longest: int,
    temperature: float,
    frozen: bool = False,
) -> dict[str, float]:
    """Compute the log-probs that trajectories of ``groups`` still need, by ``scorer``, and store them there.

    A distilled retry (``rescore``) was sampled in its teacher's context, so it is scored in the one that
    trains. Any other trajectory with a teacher is scored in the teacher's context, by the base checkpoint if
    the teacher is ``frozen``; if that context has more than ``longest`` tokens, it gets the policy's own
    log-probs. Returns ``tokens/scored`` and ``dropped/teacher_context`` (too long); {} if none needed any.
    """
    counts: dict[str, float] = {}

    def count(name: str, number: int) -> None:
        counts[name] = counts.get(name, 0) + number

    async def logprobs_S(t: Trajectory, frozen: bool = False) -> list[float]:
        # All sampled tokens are scored, also in turns that do not train.
        found: list[float] = []
        for row in rows_to_score([replace(t, trainable=None)], samples):
            of_row = await scorer.logprobs(row.ids.tolist(), temperature, frozen)
            found += [value for value, sampled in zip(of_row, row.mask, strict=True) if sampled]
        return found

    async def score_one(t: Trajectory) -> None:
        # In its own context, or in its teacher's; any other trajectory needs nothing.
        if t.rescore:
            t.set_student_logprobs(await logprobs_S(t))
            own = replace(t, trainable=None)
            count(SCORED_TOKENS, sum(len(row.ids) for row in rows_to_score([own], samples)))
        elif t.awaits_teacher:
            context = t.in_teacher_context()
            lengths = [len(row.ids) for row in rows_to_score([context], samples)]
            if max(lengths) > longest:
                # The model cannot read it: without a teacher's log-probs the trajectory trains as any other.
                t.set_teacher_logprobs(None)
                count("dropped/teacher_context", 1)
            else:
                t.set_teacher_logprobs(await logprobs_S(context, frozen))
                count(SCORED_TOKENS, sum(lengths))

    await together(score_one, unique([t for group in groups for t in group.trajectories]))
    return counts
