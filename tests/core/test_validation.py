"""Values that a user's environment or method returns are checked against the interface."""

import asyncio
from dataclasses import replace
from decimal import Decimal
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from conftest import make_trajectory
from r3l.envs.base.task_sets import DrawnTaskSets

from r3l.core.batching import collate, rows_of
from r3l.core.environment import Observation
from r3l.core.errors import ConfigError, ContractError
from r3l.core.method import MethodSettings, TrainedMethod
from r3l.core.method_validation import explore_checked, keep_checked, loss_checked
from r3l.core.trajectory import Group
from r3l.core.validation import LONGEST, checked_observation, checked_payload

GROUP = Group(
    make_trajectory(1).task, [make_trajectory(2, 1.0), make_trajectory(1)]
)  # of 2 tokens a turn and more


@pytest.mark.parametrize(
    ("returned", "words"),
    [
        (None, "step returned None; return an Observation"),
        (("text", 0.0, True), "return an Observation"),
        *((Observation("", done=value), "done is") for value in ("false", "", 0, None, np.asarray([True]))),
        *((Observation("", success=value), "success is") for value in ("no", 1.0, torch.tensor(True))),
        *(
            (Observation("", reward=r), "reward is")
            for r in ("1", None, Decimal(1), 1j, float("nan"), 10**400, 10**9999)
        ),
        (
            Observation("", invalid_action_reward=float("inf")),
            "invalid_action_reward is inf; give a finite int or float",
        ),
        *((Observation(value), "text is") for value in (None, 3, b"text", "x" * (LONGEST + 1))),
        *((Observation("", admissible=value), "admissible is") for value in ("look", [1], None, {"look"})),
        (Observation("", failed=True), "failed is True"),
    ],
    ids=lambda value: None if isinstance(value, str) else "-",
)
def test_an_environment_that_returns_something_else_is_named_with_the_value_and_the_fix(returned, words):
    with pytest.raises(ContractError) as raised:
        checked_observation("mine", "step", returned)
    said = str(raised.value)
    assert said.startswith("environment 'mine': ") and words in said and "; " in said
    assert "\n" not in said and len(said) < 250


def test_numpys_numbers_and_flags_come_in_as_pythons():
    now = checked_observation(
        "mine", "reset", Observation("", ["look"], np.float32(0.5), np.bool_(True), np.True_, np.int64(1))
    )
    assert (
        now == Observation("", ("look",), 0.5, True, True, 1.0)
        and type(now.reward) is float
        and now.done is True
    )


@pytest.mark.parametrize(
    "payload",
    [
        None,
        [1],
        {1: 2},
        {"n": np.int64(1)},
        {"n": {1, 2}},
        {"n": float("nan")},
        {"n": Decimal(1)},
        {"n": b""},
    ],
)
def test_a_problem_is_json(payload):
    with pytest.raises(ContractError, match="environment 'mine': problem returned .*; return a dict"):
        checked_payload("mine", payload)


@pytest.mark.parametrize("size", [10**12, 0, -1, "many", None, 2.5])
def test_a_split_has_a_number_of_tasks_that_can_be_held(size):
    with pytest.raises(ConfigError, match="mine task set 'train' has .* tasks; give it 1 to 100,000"):
        DrawnTaskSets("mine", {"train": size}, lambda split, k: None).tasks("train")


class Mine(TrainedMethod[MethodSettings]):
    """A user's method whose returned values a test replaces."""

    Settings = MethodSettings

    def advantages(self, group):
        return group.returns_G()

    def surrogate(self, batch, logprobs_B_T):
        return -batch.advantages_B_T * logprobs_B_T, {}


def mine(**returned):
    """The method, and the batch of a step with log-probs that have a gradient."""
    method = Mine({})
    batch = collate(rows_of(method, [GROUP]), torch.device("cpu"))
    for name, value in returned.items():
        setattr(method, name, (lambda v: lambda *_: v(*_) if callable(v) else v)(value))
    return method, batch, torch.zeros(batch.ids_B_T.shape, requires_grad=True)


@pytest.mark.parametrize(
    "advantages",
    [
        None,
        1.0,
        [],
        [1.0],
        np.float64(1.0),
        torch.tensor([1.0, 0.0]),
        ["1", "0"],
        [None, 1.0],
        [Decimal(1), 0.0],
    ]
    + [
        [torch.tensor(1.0), 0.0],
        [10**400, 0.0],
        [np.zeros(1), 0.0],
        [np.zeros((2, 2)), 0.0],
        np.asarray(["a", "b"]),
    ],
    ids=lambda _: "-",
)
def test_advantages_are_one_number_or_one_number_a_token_for_each_trajectory(advantages):
    method, *_ = mine(advantages=advantages)
    with pytest.raises(ContractError, match=r"^method .*test_validation\.Mine: .*; give "):
        rows_of(method, [GROUP])


@pytest.mark.parametrize(
    "surrogate",
    [
        lambda batch, p: -batch.advantages_B_T * p,
        lambda batch, p: (-(batch.advantages_B_T * p).sum(), {}),
        lambda batch, p: (-(batch.advantages_B_T * p).sum(1), {}),
        lambda batch, p: (-(batch.advantages_B_T * p.detach()), {}),
        lambda batch, p: (-(batch.advantages_B_T * p).detach().numpy(), {}),
        lambda batch, p: (-(batch.advantages_B_T * p), {"clip": 0.5}),
        lambda batch, p: None,
    ],
)
def test_a_surrogate_is_a_loss_for_each_token_with_a_gradient(surrogate):
    method, batch, logprobs_B_T = mine(surrogate=surrogate)
    with pytest.raises(ContractError, match=r"^method .*test_validation\.Mine: .*; (give|return|compute) "):
        loss_checked(method, batch, logprobs_B_T)


def test_what_follows_the_contract_trains():
    method, batch, logprobs_B_T = mine()
    loss, _ = loss_checked(method, batch, logprobs_B_T)
    loss.backward()
    assert logprobs_B_T.grad[0].any() and not logprobs_B_T.grad[1].any()


def test_rows_without_weight_need_no_gradient():
    """Rows that pad a step of Trinity, under a method that only imitates."""
    method, batch, logprobs_B_T = mine(surrogate=lambda batch, p: (torch.zeros_like(p), {}))
    loss, _ = loss_checked(method, replace(batch, weight_B_T=torch.zeros_like(logprobs_B_T)), logprobs_B_T)
    loss.backward()
    assert not logprobs_B_T.grad.any()


@pytest.mark.parametrize(
    ("loss", "words"),
    [(torch.tensor(1.0), "has a gradient"), (1.0, "scalar"), ((torch.tensor(1.0), {}), "gradient")],
)
def test_a_loss_of_ones_own_is_a_scalar_with_a_gradient(loss, words):
    method, batch, logprobs_B_T = mine(loss=loss)
    with pytest.raises(ContractError, match=words if isinstance(loss, tuple) else "return"):
        loss_checked(method, batch, logprobs_B_T)


@pytest.mark.parametrize(
    "groups",
    [None, GROUP, [GROUP.trajectories], [Group(GROUP.task, GROUP.trajectories, "sft")]]
    + [[Group(GROUP.task, GROUP.trajectories, returns=r)] for r in ([1.0], 1.0, ["1", "0"], [None, 0])],
)
def test_explore_makes_groups(groups):
    async def explore(*_):
        return groups

    with pytest.raises(ContractError, match="method .*SimpleNamespace: .*; give|; return"):
        asyncio.run(explore_checked(SimpleNamespace(explore=explore), GROUP.task, None))


@pytest.mark.parametrize("answer", [None, "no", 1, [False]])
def test_keep_says_yes_or_no(answer):
    with pytest.raises(ContractError, match="keep returned .*; give True or False"):
        keep_checked(mine(keep=answer)[0], [GROUP])
