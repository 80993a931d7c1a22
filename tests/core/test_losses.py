"""Losses against hand-computed values, and packing invariance."""

import math

import numpy as np
import pytest
import torch
from conftest import make_trajectory
from r3l.baselines.grpo import GRPO

from r3l.algorithm import R3L
from r3l.core import losses
from r3l.core.batching import (
    TrajectoryRow,
    balanced,
    batches_by_length,
    collate,
    microbatches,
    rows_of,
    weighted_as_released,
)
from r3l.core.trajectory import Group, Objective

CPU = torch.device("cpu")


def test_batches_are_cut_by_padded_tokens():
    """2 x 2 <= 4; with the 3 it would be 3 x 3; the 5 is alone."""
    assert batches_by_length([3, 1, 2, 5], 4) == [[1, 2], [0], [3]]


def groups():
    base, retry = make_trajectory(3, 0.0), make_trajectory(4, 1.0, "distilled", first=2)
    base.trainable = range(2, 3)
    example = make_trajectory(2, 0.0, "reflection", first=1)
    return [Group(base.task, [base, retry]), Group(base.task, [example], Objective.SFT)]


def test_r3l_loss_by_hand():
    """A = -0.5 and alpha = 3; base trains 2 of 6 tokens, retry 4 of 8, the SFT example 2 of 4 at log p =
    -1.
    """
    method = R3L({"sft_coef": 0.5})
    batch = collate(rows_of(method, groups()), CPU)
    loss, parts = method.loss(batch, torch.full(batch.ids_B_T.shape, -1.0))
    policy = (-0.5 * 2 / 6 + 3.0 * 4 / 8) / 2
    assert parts["loss/policy"] == pytest.approx(policy)
    assert parts["loss/sft"] == pytest.approx(2 / 4)
    assert loss.item() == pytest.approx(policy + 0.5 * 2 / 4)


def test_token_sum_and_released_microbatches_by_hand():
    """R3L's groups: 2 + 4 trained policy tokens with A -0.5 and 3, one sft row of 2 tokens; log p = -1.

    Released: a micro-batch is the mean over its tokens, weighted by its share of the rows (audit A-8).
    """
    summed = collate(rows_of(R3L({"loss_agg": "token_sum"}), groups()), CPU)
    _, parts = R3L({}).loss(summed, torch.full(summed.ids_B_T.shape, -1.0))
    assert parts["loss/policy"] == pytest.approx(-0.5 * 2 + 3.0 * 4) and parts["loss/sft"] == pytest.approx(
        2.0
    )
    rows = [row for row in rows_of(R3L({"loss_agg": "microbatch_released"}), groups()) if not row.sft]

    def total(budget):
        loss = 0.0
        for part in microbatches(weighted_as_released(rows, budget), budget):
            batch = collate(part, CPU)
            loss += R3L({}).loss(batch, torch.full(batch.ids_B_T.shape, -1.0))[0].item()
        return loss

    assert total(10_000) == pytest.approx((-0.5 * 2 + 3.0 * 4) / 6)  # one micro-batch: a token mean
    assert total(1) == pytest.approx(0.5 * -0.5 + 0.5 * 3.0)  # two: each row a mean of its own


def test_released_micro_batches_are_balanced():
    """Audit A-8: four rows of 100 tokens and four of 900 under 2,000 are two parts of two and two, so every token
    weighs 4 / 8 / 2000; packed by length the long ones would weigh an eighth of the short ones."""
    rows = [row_of(length) for length in (100, 900) * 4]
    weighted = weighted_as_released(rows, 2_000)
    assert [len(row.ids) for row in weighted] == [100, 900] * 4  # in their order
    assert all(row.weight == pytest.approx(np.full(len(row.ids), 2.5e-4)) for row in weighted)


def row_of(length):
    """A policy row of ``length`` tokens that all train."""
    trajectory = make_trajectory(1)
    ones = np.ones(length, dtype=np.float32)
    ids = np.arange(length)
    arrays = {"ids": ids} | dict.fromkeys(("mask", "weight", "old_logprobs", "teacher_logprobs"), ones)
    return TrajectoryRow(**arrays, advantage=1.0, sft=False, trajectory=trajectory)


@pytest.mark.parametrize(
    ("lengths", "count", "parts"),
    [
        ([8, 7, 6, 5, 4], 2, [[0, 2], [1, 3, 4]]),  # differencing misses 15 and 15
        ([100, 900] * 4, 2, [[0, 1, 4, 7], [2, 3, 5, 6]]),
        ([5, 5, 5], 3, [[0], [1], [2]]),
        ([7], 1, [[0]]),
        ([1, 2, 3, 4, 5, 6], 3, [[0, 5], [1, 4], [2, 3]]),
    ],
)
def test_parts_are_those_of_verl(lengths, count, parts):
    """Computed once by verl's get_seqlen_balanced_partitions."""
    assert sorted(balanced(lengths, count)) == sorted(parts)


@pytest.mark.parametrize("method", [R3L({}), GRPO({}), R3L({"loss_agg": "token_mean"})])
def test_loss_does_not_depend_on_packing(method):
    rows = rows_of(method, groups() if isinstance(method, R3L) else groups()[:1])

    def total(budget):
        loss = 0.0
        for part in microbatches(rows, budget):
            batch = collate(part, CPU)
            logprobs = -(batch.ids_B_T.float() % 7 + 1) / 10
            loss += method.loss(batch, logprobs)[0].item()
        return loss

    assert total(10) == pytest.approx(total(10_000), rel=1e-6)


def test_zero_variance_rows_have_no_signal():
    group = Group(make_trajectory(1).task, [make_trajectory(2), make_trajectory(3)])
    assert all(row.no_signal for row in rows_of(GRPO({}), [group]))
    assert not any(row.no_signal for row in rows_of(R3L({}), groups()))
    assert np.isclose(sum(r.weight.sum() for r in rows_of(GRPO({}), groups()[:1])), 1.0)


def test_clipped_surrogate_by_hand():
    logp = torch.log(torch.tensor([[0.5, 0.1, 0.30]]))
    old = torch.log(torch.tensor([[0.25, 0.2, 0.30]]))  # ratios 2, 0.5, 1
    ratio = losses.token_ratio(logp, old)
    up, clipped = losses.clipped_surrogate(ratio, torch.tensor([1.0]), 0.2, 0.2)
    assert up.tolist()[0] == pytest.approx([-1.2, -0.5, -1.0])
    assert clipped.tolist() == [[1.0, 0.0, 0.0]]
    down, _ = losses.clipped_surrogate(ratio, torch.tensor([-1.0]), 0.2, 0.2)
    assert down.tolist()[0] == pytest.approx([2.0, 0.8, 1.0])


def test_sequence_ratio_by_hand():
    """Ratios 2 and 0.5 on two trained tokens: their geometric mean is 1, whatever the other tokens have."""
    old = torch.zeros(1, 3)
    logp = torch.log(torch.tensor([[2.0, 0.5, 7.0]])).requires_grad_()
    ratio = losses.sequence_ratio(logp, old, torch.tensor([[1.0, 1.0, 0.0]]))
    assert ratio.tolist()[0][:2] == pytest.approx([1.0, 1.0])
    (gradient,) = torch.autograd.grad(ratio[0, 0], logp)
    assert gradient.tolist()[0] == pytest.approx([1.0, 0.0, 0.0])  # each token moves its own ratio only


def test_kl_estimators_by_hand():
    d = torch.tensor([[math.log(2.0)]])
    zero = torch.zeros(1, 1)
    assert losses.kl(d, zero, "k1").item() == pytest.approx(math.log(2))
    assert losses.kl(d, zero, "k2").item() == pytest.approx(math.log(2) ** 2 / 2)
    assert losses.kl(d, zero, "k3").item() == pytest.approx(0.5 - 1 + math.log(2))
    assert losses.kl(d, zero, "none").item() == 0
