"""Numbers that are not finite are refused where they appear, by name and place, before anything is
written."""

import asyncio
import math
from types import SimpleNamespace

import pytest
import torch
from conftest import make_trajectory
from program import run as program

from r3l.config import build_method, resolve
from r3l.core.batching import rows_of
from r3l.core.errors import NonFiniteError
from r3l.core.policy import Sampling
from r3l.core.rollout import RolloutContext
from r3l.core.text import Message
from r3l.core.trajectory import Group, Objective
from r3l.files.json_files import read_jsonl
from r3l.local.sampling.policy import LocalPolicy
from r3l.local.training.trainer import Trainer
from r3l.processes.barrier import together
from r3l.runs.steps import REFUSED
from r3l.sft.training import WeightedCrossEntropy

RUN = resolve("nano", "math", "grpo", 0)
DIVIDES = """
from r3l.core.method import MethodSettings, TrainedMethod
from r3l.core import losses

class Divides(TrainedMethod[MethodSettings]):
    Settings = MethodSettings

    def advantages(self, group):
        rewards = group.rewards_G()
        return (rewards - rewards.mean()) / rewards.std()

    def surrogate(self, batch, logprobs_B_T):
        return losses.policy_gradient(logprobs_B_T, batch.advantages_B_T), {}
"""


def rows():
    """Two imitated trajectories of task t0."""
    members = [make_trajectory(1), make_trajectory(2)]
    members[1].member = 1
    return rows_of(build_method(RUN), [Group(members[0].task, members, Objective.SFT)])


def trainer(nano, criterion=None, **changes):
    config = RUN.train.model_copy(update=changes)
    return Trainer(fresh(nano), criterion or WeightedCrossEntropy(), config)


def fresh(nano):
    model = type(nano[0])(nano[0].config)
    model.load_state_dict(nano[0].state_dict())
    return model


def test_a_method_that_divides_by_no_deviation_ends_its_run(tmp_path, monkeypatch, capsys):
    (tmp_path / "divides.py").write_text(DIVIDES)
    (tmp_path / "divides.yaml").write_text(
        "method: divides\nlabel: Divides\ncode: divides:Divides\nsources: {}\n"
    )
    monkeypatch.setenv("R3L_METHODS", str(tmp_path))
    options = [part for value in ("train.tasks_per_step=1", "workers=0") for part in ("--set", value)]
    code, _, err = program(
        *(monkeypatch, capsys, "train", "--env", "math", "--method", "divides", "--set", "train.steps=1"),
        *(*options, "--set", "method_settings.group_size=1", "--run-dir", str(tmp_path / "run")),
    )
    assert code == 2 and "method divides, step 1: advantage of row 0 (task " in err and "is nan" in err
    (kept,) = read_jsonl(tmp_path / "run" / REFUSED)
    assert kept["kind"] == "base" and math.isnan(kept["advantage"]) and kept["task"] in err
    assert len(kept["ids"]) == len(kept["mask"]) == len(kept["old_logprobs"])
    left = {path.name for path in (tmp_path / "run").iterdir()}
    assert not left & {"result.json", "metrics.jsonl"} and "failed.json" in left
    assert not list((tmp_path / "run").glob("checkpoints/*"))


def test_log_probs_of_training_name_the_row(nano):
    t = trainer(nano)
    with torch.no_grad():
        t.model.model.embed_tokens.weight[5] = math.nan  # tied: in every row's softmax
    with pytest.raises(NonFiniteError, match="log-prob in training of task t0, base 0 is nan"):
        t.step(rows())
    with pytest.raises(NonFiniteError, match="log-prob in training of task t0, base 0 is nan"):
        t.logprob_mismatch(rows())


@pytest.mark.parametrize(
    ("loss_of", "words"),
    [
        (lambda lp: lp.sum() / (lp.shape[1] < 6), "loss of task t0, base 1 is -inf"),  # the longer row alone
        (
            lambda lp: (lp - lp.detach()).abs().sum().sqrt(),
            "gradient norm is nan",
        ),  # sqrt is steep at 0
    ],
)
def test_losses_and_gradients_that_are_not_finite_move_no_weight(nano, loss_of, words):
    criterion = SimpleNamespace(kl_coef=0.0, loss_agg="token_mean", loss=lambda batch, lp: (loss_of(lp), {}))
    t = trainer(nano, criterion, tokens_per_microbatch=1)
    with pytest.raises(NonFiniteError, match=words):
        t.step(rows())
    assert all(torch.equal(a, b) for a, b in zip(t.model.parameters(), nano[0].parameters(), strict=True))


def test_weights_that_leave_the_numbers_are_refused(nano):
    """3e38 x (1 - lr x decay) = -3e40, beyond float32."""
    t = trainer(nano, weight_decay=101.0)
    with torch.no_grad():
        t.model.model.norm.weight[0] = 3e38
    for parameter in t.model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    with pytest.raises(NonFiniteError, match=r"weight model\.norm\.weight after an update with lr 1 is -inf"):
        t.optimizer_step(1.0)


def test_a_start_model_that_is_not_a_number_plays_nothing(nano):
    """The sampler's log-probs are refused with the address of the response."""
    model = fresh(nano)
    with torch.no_grad():
        model.model.norm.weight[0] = math.nan
    policy = LocalPolicy(model, nano[1], 1024)
    ctx = RolloutContext(policy, None, None, Sampling(), Sampling(), (0, "train", 3), together)
    dialog = policy.open()
    dialog.add(Message("user", "You arrive at desk 1."))
    with pytest.raises(NonFiniteError, match="response at address 0/train/3/rollout/t0/1/0 is nan"):
        asyncio.run(ctx.complete(dialog, Sampling(max_tokens=2), "rollout", "t0", 1, 0))
