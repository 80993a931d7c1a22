"""Log-probs in teachers' contexts: the same packed pass as in training, before advantages are computed.

A teacher is the policy in a context that holds more than the one that trains (r3l.core.trajectory). Its
weights are those that sampled (``live``), those of the base checkpoint (``frozen``), or an exponential
average of the weights after each update (``average``; of an adapter, its two matrices are averaged).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch

from r3l.core.batching import rows_to_score
from r3l.core.policy import Samples
from r3l.core.trajectory import Trajectory
from r3l.local.model import lora
from r3l.local.model.precision import MasterWeights
from r3l.local.training.logprobs import trajectory_logprobs

if TYPE_CHECKING:
    from r3l.local.training.trainer import Trainer


class AveragedWeights:
    """Exponential moving average of the weights ``master``, from their present values.

    Each update makes it (1 - rate) x average + rate x new weights.
    """

    def __init__(self, master: MasterWeights, rate: float) -> None:
        self.master = master
        self.rate = rate
        self.weights = {name: weight.clone() for name, weight in master.state_dict().items()}

    def update(self) -> None:
        """Add the present weights to the average; called after each update."""
        for name, weight in self.master.state_dict().items():
            self.weights[name].mul_(1 - self.rate).add_(weight, alpha=self.rate)

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Let the model compute with the average in the block."""
        trained = {name: weight.clone() for name, weight in self.master.state_dict().items()}
        self._put(self.weights)
        try:
            yield
        finally:
            self._put(trained)

    def _put(self, weights: dict[str, torch.Tensor]) -> None:
        for name, weight in self.master.state_dict().items():
            weight.copy_(weights[name])
        self.master.copy_to_model()


def score_teachers(
    trainer: Trainer, trajectories: Sequence[Trajectory], samples: Samples, longest: int
) -> dict[str, float]:
    """Set the teacher's log-probs of every trajectory that awaits them; returns counts as metrics.

    ``longest``: most tokens of a context. If the teacher's is longer, it is not scored and its log-probs are
    the policy's own.
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
            trainer.tree_of,
        )
    for t, logprobs_S in zip(fitting, found, strict=True):
        t.set_teacher_logprobs(logprobs_S)
    return {"tokens/scored": tokens, "dropped/teacher_context": too_long}


@contextmanager
def teacher_model(trainer: Trainer) -> Iterator[Any]:
    """The model with the teacher's weights."""
    if trainer.teacher == "live":
        yield trainer.sampler
    elif trainer.average is not None:
        with trainer.average.in_place():
            yield trainer.model
    else:
        with lora.without_adapter(trainer.reference):
            yield trainer.reference
