"""verl's FSDP2 actor under Trinity's worker, on CPUs, trains one real batch as the local engine does.

Batches come from the real environments and base checkpoints. Loss, gradient and the weights after AdamW are
compared; with two ranks each has half of the rows, with sequence parallelism each half of every row.
"""

import asyncio
import copy
import socket
from functools import partial
from tempfile import TemporaryDirectory

import pytest
import torch
import torch.multiprocessing
from verl_actor import actor

pytest.importorskip("verl", reason="no verl in this environment (make trinity)")

from r3l.config import build_method, resolve
from r3l.core.batching import rows_of, trainable_rows
from r3l.local.session import open_session
from r3l.local.training.logprobs import token_logprobs
from r3l.local.training.trainer import Trainer
from r3l.trinity.config import ADVANTAGE
from r3l.trinity.experience import CollectedTask, pack
from r3l.trinity.scoring import score
from r3l.trinity.sizes import experiences_per_step

ALFWORLD = (
    "house-look_at_obj_in_light-r6-o8-s113",
    "house-pick_and_place_simple-r6-o8-s84",
)  # attempts differ
BATCHES = [("alfworld", method) for method in ("grpo", "r3l", "r3l_kl", "rltf_sd", "sdar")]
BATCHES += [(env, "r3l") for env in ("webshop", "math", "scienceworld", "knights_knaves")]


class Scorer:
    """The policy that Trinity's workflow asks for log-probs."""

    def __init__(self, model):
        self.model = model

    async def logprobs(self, ids, temperature, frozen=False):  # nothing has trained yet: the same weights
        ids_1_T = torch.tensor([ids])
        with torch.no_grad():
            scored = token_logprobs(self.model, ids_1_T, torch.ones_like(ids_1_T), temperature)
        return scored[0].tolist()


def collect(env, method_name, ranks):
    """Two tasks as Trinity's trainer receives them, and the local engine's loss, gradient and weights."""
    from trinity.algorithm import ADVANTAGE_FN
    from trinity.buffer.operators.experience_operator import ensure_v1_operator
    from trinity.common.experience import Experience

    overrides = [
        "train.tasks_per_step=2",
        "workers=0",
        "compute=transformers",
        "method_settings.group_size=4",
    ]
    run = resolve("nano", env, method_name, 0, overrides=overrides)
    method = build_method(run)
    with open_session(run, run.model) as session:
        tasks = session.package.tasks(run.env_settings.train_task_set)
        chosen = [t for t in tasks if t.id in ALFWORLD] if env == "alfworld" else tasks[:2]
        results = []
        for position, task in enumerate(chosen):
            ctx = session.rollout_context((0, "train", 1), run.sampling.temperature)
            (groups,) = session.concurrently(partial(method.explore, ctx=ctx), [task])
            results.append(CollectedTask(task, position, groups, ctx.trajectories, dict(ctx.counters)))

        # Trinity's way: scored in other contexts, packed, sent, unpacked, advantages.
        for result in results:
            arguments = (Scorer(session.model), run.samples, run.sampling.max_context)
            asyncio.run(score(result.groups, *arguments, run.sampling.temperature))
        packed = [experience for result in results for experience in pack(result)]
        for experience in packed:
            experience.eid.batch = 1
            experience.info["model_version"] = 0
        arrived = Experience.deserialize_many(Experience.serialize_many(packed))
        count = experiences_per_step(run, method, ranks)
        with TemporaryDirectory() as folder:  # for the trajectory log, which has its own test
            arguments = {"run": run.model_dump(mode="json"), "experiences": count, "folder": folder}
            pipeline = ensure_v1_operator(ADVANTAGE_FN.get(ADVANTAGE)(**arguments))
            experiences, _ = asyncio.run(pipeline.process(arrived))

        # The local engine's way.
        rows = rows_of(method, [group for r in results if method.keep(r.groups) for group in r.groups])
        assert trainable_rows(method, rows), "this batch trains nothing"
        model = copy.deepcopy(session.model).float()
        reference = copy.deepcopy(model).eval()
        trainer = Trainer(
            model, method, run.train, reference, run.sampling.temperature, forward_pass="transformers"
        )
        gradient = {}
        step = trainer.optimizer_step

        def recorded(lr):
            gradient.update({n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None})
            return step(lr)

        trainer.optimizer_step = recorded
        metrics = trainer.step(rows)
        untrained = copy.deepcopy(session.model).float()
    trainer = Trainer(
        untrained, method, run.train, None, run.sampling.temperature, forward_pass="transformers"
    )
    local = {"metrics": metrics, "gradient": gradient, "weights": weights_of(model), "untrained": trainer}
    return run, Experience.serialize_many(experiences), local


def weights_of(model):
    return {name: p.detach().clone() for name, p in model.named_parameters()}


def updated(trainer, gradient, lr):
    """The weights after one update of the local engine's optimizer with a given gradient."""
    for name, parameter in trainer.model.named_parameters():
        parameter.grad = gradient[name].clone() if name in gradient else None
    trainer.optimizer_step(lr)
    return weights_of(trainer.model)


@pytest.mark.parametrize(
    ("env", "method", "ranks", "sequence_parallel"),
    [(*batch, 1, 1) for batch in BATCHES]
    + [("alfworld", method, 2, 1) for method in ("grpo", "r3l", "r3l_kl", "rltf_sd")]
    + [("alfworld", "r3l", 2, 2)],
)
def test_a_batch_trains_as_in_the_local_engine(env, method, ranks, sequence_parallel, tmp_path):
    run, experiences, local = collect(env, method, ranks)
    torch.save({"run": run.model_dump(mode="json"), "experiences": experiences}, tmp_path / "batch.pt")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    arguments = (ranks, port, sequence_parallel, tmp_path)
    torch.multiprocessing.spawn(actor, args=arguments, nprocs=ranks)
    found = torch.load(tmp_path / "found.pt")

    ours = local["metrics"]
    theirs = {name.removeprefix("actor/"): value for name, value in found["metrics"].items()}
    print_agreement(env, method, ranks, sequence_parallel, local, found)
    assert theirs["loss"] == pytest.approx(ours["loss"], abs=1e-6)
    assert theirs["grad_norm"] == pytest.approx(ours["grad_norm"], rel=1e-4)
    for part in (key for key in ours if key.startswith(("loss/", "clip"))):
        assert theirs[part] == pytest.approx(ours[part], abs=1e-5), part
    mismatch = theirs["logprob_mismatch/sum"] / theirs["logprob_mismatch/tokens"]
    assert mismatch == pytest.approx(ours["logprob_mismatch/mean"], abs=1e-6)
    assert relative(local["gradient"], found["gradient"]) < 1e-5
    # AdamW divides a gradient by its size, so rounding of a small one may change a weight by part of a step:
    # the optimizers are compared on the same gradient.
    same_gradient = updated(local["untrained"], found["gradient"], run.train.lr)
    assert largest(same_gradient, found["weights"]) < run.train.lr / 1000
    assert found["restored"] and found["kept"]


def relative(ours, theirs):
    """Norm of the difference over the norm."""
    assert set(ours) == set(theirs)
    squares = sum(((ours[name] - theirs[name]) ** 2).sum() for name in ours)
    return float((squares / sum((tensor**2).sum() for tensor in ours.values())) ** 0.5)


def largest(ours, theirs):
    return max(float((ours[name] - theirs[name]).abs().max()) for name in ours)


def print_agreement(env, method, ranks, sequence_parallel, local, found):
    """A row of the table in docs/tiers.md; shown with `pytest -s`."""
    loss = abs(local["metrics"]["loss"] - found["metrics"]["loss"])
    gradient, weights = (
        relative(local["gradient"], found["gradient"]),
        largest(local["weights"], found["weights"]),
    )
    cells = (env, method, ranks, sequence_parallel, f"{loss:.1e}", f"{gradient:.1e}", f"{weights:.1e}")
    print("\n| " + " | ".join(map(str, cells)) + " |")
