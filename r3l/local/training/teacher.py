"""Log-probs in teachers' contexts: the same packed pass as in training, before advantages are computed.

A teacher is the policy in a context that holds more than the one that trains (r3l.core.trajectory). Its
weights are those that sampled (``live``), those of the base checkpoint (``frozen``), or an exponential
average of the weights after each update (``average``; of an adapter, its two matrices are averaged).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from r3l.core.batching import rows_to_score
from r3l.core.policy import Samples
from r3l.core.trajectory import Trajectory
from r3l.local.model import lora
from r3l.local.training.logprobs import trajectory_logprobs
from r3l.local.training.trainer import Trainer


def score_teachers(
    trainer: Trainer, trajectories: Sequence[Trajectory], samples: Samples, longest: int
) -> dict[str, float]:
    """Compute the teacher's log-probs of every trajectory that still needs them, and store them in it.

    ``longest``: most tokens of a row. If the teacher's context is longer, the trajectory gets the policy's
    own log-probs instead. Returns ``tokens/scored`` and ``dropped/teacher_context`` (trajectories that were
    too long), or {} if no trajectory needed any.
    """
    # Render each trajectory in its teacher's context; a context that is too long is not scored.
    fitting: list[Trajectory] = []
    contexts: list[Trajectory] = []
    tokens = 0
    too_long = 0
    for t in trajectories:
        if not t.awaits_teacher:
            continue
        context = t.in_teacher_context()
        lengths = [len(row.ids) for row in rows_to_score([context], samples)]
        if max(lengths, default=0) > longest:
            t.set_teacher_logprobs(None)
            too_long += 1
        else:
            fitting.append(t)
            contexts.append(context)
            tokens += sum(lengths)
    if not fitting and not too_long:
        return {}

    # Score all contexts by the teacher's weights, and give each trajectory its log-probs.
    with teacher_model(trainer) as model:
        found = trajectory_logprobs(
            model,
            contexts,
            samples,
            trainer.temperature,
            trainer.config.tokens_per_microbatch,
            trainer.forward,
            trainer.tree_class,
        )
    for t, logprobs_S in zip(fitting, found, strict=True):
        t.set_teacher_logprobs(logprobs_S)
    return {"tokens/scored": tokens, "dropped/teacher_context": too_long}


@contextmanager
def teacher_model(trainer: Trainer) -> Iterator[Any]:
    """The model with the teacher's weights, for the block.

    ``live``: the model that samples; ``average``: the trained model with its averaged weights put in place;
    ``frozen``: the base checkpoint.
    """
    if trainer.teacher == "live":
        yield trainer.sampler
    elif trainer.average is not None:
        with trainer.average.in_place():
            yield trainer.model
    else:
        with lora.without_adapter(trainer.reference):
            yield trainer.reference
