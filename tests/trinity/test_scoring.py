"""Log-probs by requests to a rollout model are those of the local engine's packed pass."""

import asyncio
import copy
from dataclasses import replace

import pytest
import torch
from local.training.test_teacher import CONFIG, TASK, rollout, said, scored, under_hint
from r3l.baselines.sdpo import SDPO

from r3l.core.trajectory import Group, TrajectoryKind
from r3l.local.training.trainer import Trainer
from r3l.trinity.scoring import score


class Rollouts:
    """The rollout model: scores tokens by one plain pass. ``base``: of requests without its adapter."""

    def __init__(self, model, base=None):
        self.model, self.base = model, base

    async def logprobs(self, ids, temperature, frozen=False):
        assert temperature == 1.0
        return scored(self.base if frozen else self.model, ids)


def request(model, t, samples="trajectory", longest=100, base=None):
    groups, rollouts = [Group(TASK, [t]), Group(TASK, [t])], Rollouts(model, base)
    return asyncio.run(score(groups, rollouts, samples, longest, 1.0, frozen=base is not None))


def test_a_teacher_is_scored_as_on_the_local_engine(nano):
    ours, theirs = rollout(nano[0], 1.0, 13), rollout(nano[0], 1.0, 13)
    local = Trainer(copy.deepcopy(nano[0]), SDPO({}), CONFIG).score_teachers([ours], "trajectory", 100)
    counts = request(nano[0], theirs)
    assert counts == {"tokens/scored": local["tokens/scored"]} == {"tokens/scored": 9}
    assert said(theirs) == pytest.approx(said(ours), abs=1e-5)
    assert request(nano[0], too_long := rollout(nano[0], 1.0, 13), longest=8) == {
        "dropped/teacher_context": 1
    }
    assert not too_long.teacher_gap().any()


def test_a_frozen_teacher_is_the_base_checkpoint_and_a_distilled_retry_is_not(nano):
    """As on the local engine, whose frozen teacher is its reference; a retry is scored by what sampled."""
    base, trained = nano[0], copy.deepcopy(nano[0])
    with torch.no_grad():
        trained.model.embed_tokens.weight.mul_(1.5)
    ours, theirs = rollout(trained, 1.0, 13), rollout(trained, 1.0, 13)
    trainer = Trainer(copy.deepcopy(trained), SDPO({}), CONFIG, base, teacher="frozen")
    trainer.score_teachers([ours], "trajectory", 100)
    assert request(trained, theirs, base=base) == {"tokens/scored": 9}
    assert said(theirs) == pytest.approx(said(ours), abs=1e-5)
    assert said(theirs) == pytest.approx(under_hint(base, 13), abs=1e-5)
    assert said(theirs) != pytest.approx(under_hint(trained, 13), abs=1e-2)

    plain = [value for turn in ours.turns for value in turn.logprobs]
    ours.kind, ours.rescore = TrajectoryKind.DISTILLED, True
    request(trained, ours, base=base)
    assert [value for turn in ours.turns for value in turn.logprobs] == pytest.approx(plain, abs=1e-5)


@pytest.mark.parametrize(("samples", "tokens"), [("trajectory", 7), ("turn", 4 + 7)])
def test_a_distilled_retry_is_scored_where_it_trains(nano, samples, tokens):
    """What it was sampled with becomes the teacher's. With a row per turn, each is its own context."""
    t = rollout(nano[0], 1.0, 13)
    plain = [value for turn in t.turns for value in turn.logprobs]
    if samples == "turn":
        t.turns[1] = replace(t.turns[1], prompt_ids=(3, 4, 10, 11, 8))
    hinted = under_hint(nano[0], 13)
    turns = zip(t.turns, (hinted[:2], hinted[2:]), strict=True)
    t.turns = [replace(turn, logprobs=tuple(values)) for turn, values in turns]
    t.kind, t.rescore = TrajectoryKind.DISTILLED, True
    assert request(nano[0], t, samples) == {"tokens/scored": tokens}
    assert [value for turn in t.turns for value in turn.logprobs] == pytest.approx(plain, abs=1e-5)
    assert said(t) == hinted
