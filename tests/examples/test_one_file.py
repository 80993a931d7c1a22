"""examples/r3l_in_one_file.py takes the engine's step."""

import copy
import importlib.util

import pytest
import torch

from r3l.config import base_checkpoint_of, build_method, resolve
from r3l.core.batching import rows_of
from r3l.files.paths import ROOT
from r3l.local.engine import collect
from r3l.local.session import open_session
from r3l.local.training.trainer import Trainer


@pytest.fixture(scope="module")
def one_file():
    spec = importlib.util.spec_from_file_location("one_file", ROOT / "examples" / "r3l_in_one_file.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def collected():
    """A step of four tasks as the engine played it: (method, settings, its trajectories, its groups)."""
    run = resolve("nano", "math", "r3l", 0, overrides=["train.tasks_per_step=4", "workers=0"])
    method = build_method(run)
    with open_session(run, base_checkpoint_of(run), trains=True) as session:
        step = collect(session, method, session.package.tasks(run.env_settings.train_task_set), 1)
        return method, run, step.ctx.played(), step.groups


def attempts_of(one_file, policy, played, task):
    """The engine's rollouts of ``task`` as attempts of the file, which parses pivot and hint itself."""
    of = {(t.kind, t.member): t for t in played if t.task == task}
    problem = one_file.Problem(task.payload["problem"], int(task.payload["answer"]))
    for member in range(one_file.ATTEMPTS):
        base = of["base", member]
        attempt = one_file.Attempt(problem, [list(turn.response_ids) for turn in base.turns], base.reward)
        one_file.reflect(policy, attempt, list(of["reflection", member].turns[-1].response_ids))
        if retry := of.get(("guided_retry", member)):
            assert attempt.pivot == retry.restart_turn
            attempt.retry = [token for turn in retry.turns[attempt.pivot :] for token in turn.response_ids]
            attempt.retry_reward = one_file.reward_of(problem, policy.text(attempt.retry))
            assert attempt.retry_reward == retry.reward
        yield attempt


def test_one_batch_gives_the_engines_rows_advantages_and_step(one_file, collected):
    """In float64, where AdamW's first step is not the sign of a rounding.

    The engine keeps the weights of tokens in float32, which shows at a few weights whose gradients nearly
    cancel.
    """
    method, run, played, groups = collected
    policy = one_file.Policy(one_file.MODEL)
    policy.model.double()
    tasks = [group.task for group in groups if group.objective == "policy"]
    batch = [list(attempts_of(one_file, policy, played, task)) for task in tasks]
    compared = [one_file.contrasted(policy, attempts) for attempts in batch]
    imitations = [row for attempts in batch for row in one_file.imitated(policy, attempts)]
    rows = rows_of(method, groups)
    assert {row.kind for row in rows} == {"base", "distilled", "sft"}

    ours = [row for of_group, _ in compared for row in of_group] + imitations
    assert [[token for token, _, _ in row] for row in ours] == [row.ids.tolist() for row in rows]
    assert [[trained for _, _, trained in row] for row in ours] == [row.mask.tolist() for row in rows]
    advantages = [a for _, rewards in compared for a in one_file.advantages(rewards)]
    assert advantages == [row.advantage for row in rows if not row.sft] and len(set(advantages)) > 2

    engine, before = copy.deepcopy(policy.model), copy.deepcopy(policy.model.state_dict())
    Trainer(engine, method, run.train, temperature=run.sampling.temperature).step(rows)
    settings = {"lr": one_file.LR, "weight_decay": one_file.WEIGHT_DECAY}
    one_file.update(policy, torch.optim.AdamW(policy.model.parameters(), **settings), batch)
    after = policy.model.state_dict()
    moved = torch.cat(
        [(weight - before[name]).flatten() for name, weight in engine.state_dict().items()]
    ).abs()
    apart = torch.cat(
        [(weight - after[name]).flatten() for name, weight in engine.state_dict().items()]
    ).abs()
    assert moved.max() > 0.9 * one_file.LR and apart.max() < 0.02 * one_file.LR
    assert (apart > 1e-4 * one_file.LR).double().mean() < 1e-3


def test_it_runs_by_itself(one_file, capsys):
    one_file.main(updates=1, tasks=4)
    assert capsys.readouterr().out.startswith("update 1: success 0.")
