"""``r3l bench train``: one step (sample groups, then update) by this and other engines, on the same prompts.

``ours``: LocalPolicy's decoder and Trainer. ``plain``: ``generate`` of transformers, then all rows padded
to the longest and logits at every position. ``trl``: a step of GRPOTrainer. All sample exactly ``length``
tokens per response, so that equal work is compared; the first step of each arm warms up and is not counted.
"""

from __future__ import annotations

import copy
import sys
import tempfile
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch

from r3l.bench.measuring import clock, forget_peak, machine, peak_gib
from r3l.chat.renderer import ChatRenderer
from r3l.config import Run, base_checkpoint_of, build_method
from r3l.core.batching import rows_of
from r3l.core.errors import ConfigError
from r3l.core.method import Method
from r3l.core.policy import FinishReason, Sampling
from r3l.core.seeds import seed_of
from r3l.core.task import Task
from r3l.core.text import Message
from r3l.core.trajectory import Group, Trajectory, TrajectoryKind, Turn
from r3l.core.validation import close_all
from r3l.local.engine import trainer_of
from r3l.local.model.precision import cast_parameters
from r3l.local.sampling.decoding import GenerationRequest
from r3l.local.session import LocalSession, open_session
from r3l.local.training.trainer import Trainer
from r3l.runs.gpu_locks import reserved_gpu
from r3l.runs.preemption import Preempted, stop_at_once

ArmReport = dict[str, Any]


def bench_train(
    run: Run, tasks: int, group: int, length: int, repeats: int
) -> tuple[dict[str, Any], Preempted | None]:
    """Time steps (sample, then update) of ``tasks`` groups of ``group`` responses of ``length`` tokens.

    Three implementations (arms) are timed on the same prompts: ours, plain `generate` with padded rows, and
    TRL, for which the report has a text if it is not installed. Seconds are medians of ``repeats`` steps
    after one to warm up. The report has for each arm seconds, peak GiB, tokens per second and the ratio to
    ours; each arm's seconds are also printed on stderr when it ends. Waits for a GPU, unless device is cpu.

    Returns (report, None), or after a stop signal or Ctrl-C (report of the arms that had ended, the
    exception); ``missing`` in that report names the others, and so does a line on stderr.
    Raises ConfigError if the responses do not fit, and ConfigError or CheckpointError as
    r3l.local.session.open_session does.
    """
    stopped: Preempted | None = None
    with (
        reserved_gpu(run.device),
        open_session(run, base_checkpoint_of(run), trains=True, forward_pass="transformers") as session,
        stop_at_once(),
    ):
        # The prompts: each task's opening messages, once per member of its group.
        first_tasks = session.package.tasks(run.env_settings.train_task_set)[:tasks]
        dialogs: list[list[Message]] = []
        for task in first_tasks:
            engine = session.package.create(run.env_settings.options)
            try:
                dialogs.append(session.dialogue.opening(task, engine.reset(task)))
            finally:
                close_all(session.package.name, [engine])
        renderer = ChatRenderer(session.tokenizer)
        prompts = [renderer.opening(dialog) for dialog in dialogs for _ in range(group)]
        room = run.sampling.max_context - max(map(len, prompts))
        if length > room:
            raise ConfigError(
                f"--length is {length}; at most {room} tokens fit after the longest prompt, since "
                f"sampling.max_context is {run.sampling.max_context}"
            )
        response_tokens = len(prompts) * length
        report: dict[str, Any] = {
            "cell": run.cell,
            "device": str(session.model.device),
            "dtype": str(session.model.dtype),
            "responses": len(prompts),
            "prompt_tokens": sum(map(len, prompts)),
            "response_tokens": response_tokens,
            "repeats": repeats,
        }

        # Time each arm, and print it as soon as it ends: a later one may run out of memory.
        method = build_method(run)
        trainer = trainer_of(session, method)

        def our_step(number: int) -> tuple[float, float]:
            return _our_step(session, method, trainer, first_tasks, prompts, length, number)

        def plain_step(number: int) -> tuple[float, float]:
            return _plain_step(session, prompts, length)

        arms: dict[str, Callable[[], ArmReport | str]] = {
            "ours": lambda: _timed(our_step, repeats),
            "plain": lambda: _timed(plain_step, repeats),
            "trl": lambda: _trl(session, dialogs, group, length, repeats),
        }
        try:
            for name, measured in arms.items():
                arm = report[name] = measured()
                seconds = arm if isinstance(arm, str) else f"{arm['seconds/step']:.3g} s a step"
                print(f"{name}: {seconds}", file=sys.stderr)
        except Preempted as stop:
            stopped = stop
            report["missing"] = [name for name in arms if name not in report]
            print(f"not measured: {', '.join(report['missing'])}", file=sys.stderr)

        # Tokens per second (sampled; trained, with their prompts), shares of the step, ratio to ours.
        tokens_of = {"sample": response_tokens, "train": report["prompt_tokens"] + response_tokens}
        for name in arms:
            arm = report.get(name, "")
            if isinstance(arm, str):  # stopped before it ended, or not installed
                continue
            for phase in [phase for phase in tokens_of if f"seconds/{phase}" in arm]:
                arm[f"tokens_per_s/{phase}"] = tokens_of[phase] / arm[f"seconds/{phase}"]
                arm[f"share/{phase}"] = arm[f"seconds/{phase}"] / arm["seconds/step"]
            arm["seconds_ratio"] = arm["seconds/step"] / report["ours"]["seconds/step"]
        report["machine"] = machine()
    return report, stopped


def _timed(step: Callable[[int], tuple[float, float]], repeats: int) -> ArmReport:
    """Median seconds and peak memory. ``step`` returns the seconds of sampling and of training."""
    forget_peak()
    timed = [step(number) for number in range(repeats + 1)][1:]  # the first step warms up
    sample, train = zip(*timed, strict=True)
    arm = {"seconds/sample": float(np.median(sample)), "seconds/train": float(np.median(train))}
    return arm | {"seconds/step": sum(arm.values()), "peak_gib": peak_gib()}


def _our_step(
    session: LocalSession,
    method: Method,
    trainer: Trainer,
    tasks: Sequence[Task],
    prompts: Sequence[list[int]],
    length: int,
    number: int,
) -> tuple[float, float]:
    """Seconds of sampling and of training of step ``number`` with this engine.

    ``prompts`` of one task are neighbours and make a group.
    """
    # Sample one response to every prompt.
    policy = session.policy
    began = clock()
    policy.begin()
    sampling = Sampling(session.run.sampling.temperature, length)
    requests = [
        GenerationRequest(None, list(ids), sampling, frozenset(), seed_of("bench", number, k))
        for k, ids in enumerate(prompts)
    ]
    policy.sample(requests)
    policy.release()
    middle = clock()

    # Train on them. Every other member is rewarded, so that every row has an advantage.
    size = len(prompts) // len(tasks)
    groups: list[Group] = []
    for i, task in enumerate(tasks):
        trajectories: list[Trajectory] = []
        for member, request in enumerate(requests[i * size : (i + 1) * size]):
            tokens = tuple(request.pending), tuple(request.ids), tuple(request.logprobs)
            turn = Turn("", "", *tokens, FinishReason.LENGTH)
            reward = float(member % 2)
            trajectories.append(Trajectory(task, member, TrajectoryKind.BASE, [turn], reward=reward))
        groups.append(Group(task, trajectories))
    trainer.step(rows_of(method, groups))
    policy.sync_weights()
    return middle - began, clock() - middle


def _plain_step(session: LocalSession, prompts: Sequence[list[int]], length: int) -> tuple[float, float]:
    """Seconds of sampling and of training with transformers only."""
    model = session.model
    device = model.device
    end = session.policy.renderer.end_id
    width = max(map(len, prompts))
    ids_B_T = torch.tensor([[end] * (width - len(p)) + p for p in prompts], device=device)
    mask_B_T = torch.tensor([[0] * (width - len(p)) + [1] * len(p) for p in prompts], device=device)

    began = clock()
    model.eval()
    out_B_T = model.generate(
        input_ids=ids_B_T,
        attention_mask=mask_B_T,
        do_sample=True,
        temperature=session.run.sampling.temperature,
        top_k=0,
        top_p=1.0,
        min_new_tokens=length,
        max_new_tokens=length,
        pad_token_id=end,
    )
    middle = clock()

    # No optimiser step: the other arms must sample with the same weights.
    model.train()
    attended_B_T = torch.cat([mask_B_T, torch.ones_like(out_B_T[:, width:])], dim=1)
    logp_B_T_V = torch.log_softmax(
        model(input_ids=out_B_T, attention_mask=attended_B_T).logits[:, :-1].float(),
        dim=-1,
    )
    tokens_logp_B_T = logp_B_T_V.gather(2, out_B_T[:, 1:, None]).squeeze(2)[:, width - 1 :]
    advantages_B = torch.where(torch.arange(len(prompts), device=device) % 2 == 0, -1.0, 1.0)
    torch.autograd.backward(-(advantages_B[:, None] * tokens_logp_B_T).mean())
    model.zero_grad(set_to_none=True)
    return middle - began, clock() - middle


def _trl(
    session: LocalSession, dialogs: Sequence[Sequence[Message]], group: int, length: int, repeats: int
) -> ArmReport | str:
    """Seconds of complete steps of TRL's GRPOTrainer, which does not tell sampling from training."""
    if find_spec("trl") is None:
        return "not installed: pip install '.[bench]'"
    from datasets import Dataset
    from transformers import PrinterCallback, TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    # Complete steps by its callbacks.
    seconds: list[float] = []

    class Clock(TrainerCallback):
        def on_step_begin(self, *_: Any, **__: Any) -> None:
            seconds.append(-clock())

        def on_step_end(self, *_: Any, **__: Any) -> None:
            seconds[-1] += clock()

    model = copy.deepcopy(session.model)
    cast_parameters(model, torch.float32)  # TRL has its own autocast
    rows = [{"prompt": [{"role": m.role, "content": m.content} for m in dialog]} for dialog in dialogs]
    with tempfile.TemporaryDirectory() as folder:
        config = GRPOConfig(
            output_dir=folder,
            max_steps=repeats + 1,
            per_device_train_batch_size=len(dialogs) * group,
            num_generations=group,
            max_completion_length=length,
            generation_kwargs={"min_new_tokens": length},
            temperature=session.run.sampling.temperature,
            learning_rate=session.run.train.lr,
            gradient_checkpointing=session.run.train.gradient_checkpointing,
            bf16=session.model.dtype == torch.bfloat16,
            use_cpu=session.model.device.type == "cpu",
            beta=0.0,
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
            shuffle_dataset=False,
        )
        # Rewards as in the other arms: every other response of a group.
        trainer = GRPOTrainer(
            model=model,
            reward_funcs=lambda completions, **_: [float(k % 2) for k in range(len(completions))],
            args=config,
            train_dataset=Dataset.from_list(rows * (repeats + 1)),
            processing_class=session.tokenizer,
            callbacks=[Clock()],
        )
        trainer.remove_callback(PrinterCallback)  # stdout is for the report
        forget_peak()
        trainer.train()
    return {"seconds/step": float(np.median(seconds[1:])), "peak_gib": peak_gib()}  # the first step warms up
