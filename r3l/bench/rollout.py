"""``r3l bench rollout``: the same tasks played in several ways, in one run.

``cached``: as a run does by default. ``uncached``: every dialog encoded from its start at each turn. ``compiled``:
decoding by a compiled step of fixed shape. ``vllm``: by vLLM, whose draws are others.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, get_args

import torch

from r3l.config import Run, build_method, start_of
from r3l.local.decoding import FixedStep
from r3l.local.heap import return_freed_memory
from r3l.local.session import Session, check_installed, open_session, policy_of

Arm = Literal["cached", "uncached", "compiled", "vllm"]
ARMS: tuple[Arm, ...] = get_args(Arm)
STATUS = Path("/proc/self/status")
Report = dict[str, Any]


def bench_rollout(run: Run, tasks: int, repeats: int, arms: Sequence[Arm]) -> Report:
    """Play ``tasks`` tasks as ``run``'s method does, in each of ``arms`` in turn, ``repeats`` times.

    All draw from the same addresses, so they sample the same episodes but for float rounding, which ``same_episodes``
    shows (vllm: others). An arm: medians over repetitions of seconds, sampled tokens a second, shares of the time by
    phase (what is left is waiting for ``environments``), and the most memory. ``seconds_ratio``: to ``cached``.
    ``prompt_tokens_shared``: tokens that a dialog did not encode with caches, since another one opened with them.
    """
    rounds: dict[Arm, list[Report]] = {arm: [] for arm in arms}
    runs: dict[Arm, Run] = {arm: _with_sampler(run, "vllm" if arm == "vllm" else "torch") for arm in (*arms, "cached")}
    for of_arm in runs.values():
        check_installed(of_arm)
    opening = open_session(runs["cached"], start_of(run), forward="transformers")
    with opening as session, contextlib.ExitStack() as opened:
        sessions = {arm: _session_of(session, arm, runs[arm], opened) for arm in runs}
        for arm in sessions:
            if arm != "uncached":
                _play(sessions[arm], tasks)  # not counted: engines start, ScienceWorld's remembers, steps are compiled
        for repeat in range(repeats):
            for arm in arms if repeat % 2 == 0 else reversed(arms):
                rounds[arm].append(_play(sessions[arm], tasks))
        device = str(session.model.device)
    of_arms = {arm: _median(of_arm) for arm, of_arm in rounds.items()}
    transcripts = {of_arm.pop("transcripts") for of_arm in of_arms.values()}
    report: Report = {"cell": run.cell, "model": run.model, "device": device, "tasks": tasks, "repeats": repeats}
    report |= {"same_episodes": len(transcripts) == 1, "arms": of_arms}
    if cached := of_arms.get("cached"):
        report["prompt_tokens_shared"] = cached["appended"] - cached["encoded"]
        report["seconds_ratio"] = {arm: of_arms[arm]["seconds"] / cached["seconds"] for arm in arms}
        report["encoded_ratio"] = {arm: of_arms[arm]["encoded"] / cached["encoded"] for arm in arms}
    return report


def _with_sampler(run: Run, engine: str) -> Run:
    return run.model_copy(update={"sampling": run.sampling.model_copy(update={"engine": engine})})


def _session_of(session: Session, arm: Arm, run: Run, opened: contextlib.ExitStack) -> Session:
    """The session with the policy of an arm, which ``opened`` closes."""
    step = FixedStep(session.model.device) if arm == "compiled" else None
    policy = policy_of(run, session.model, session.tokenizer, step, use_cache=arm != "uncached")
    opened.callback(policy.close)
    return replace(session, policy=policy, gather=policy.barrier.gather)


def _play(session: Session, tasks: int) -> Report:
    run, method = session.run, build_method(session.run)
    ctx = session.rollout_context((run.seed, "bench"), run.sampling.temperature)
    first_tasks = session.package.tasks(run.env_settings.train_task_set)[:tasks]
    forget_peak()
    began = clock()
    groups_of_tasks = session.concurrently(lambda task: method.explore(task, ctx), first_tasks)
    seconds = clock() - began
    trajectories = [t for groups in groups_of_tasks for g in groups for t in g.trajectories]
    counts = session.policy.take_counts()
    shares = {f"share/{k.removeprefix('seconds/')}": v / seconds for k, v in counts.items() if k.startswith("seconds/")}
    return {
        "seconds": seconds,
        "tokens_per_s": ctx.counters["tokens/generated"] / seconds,
        **shares,
        "share/environments": 1 - sum(shares.values()),
        "peak_gib": peak_gib(),
        "encoded": counts["encoded"],
        "appended": counts["appended"],
        "forwards": counts.get("forwards"),  # vLLM does not say
        "generated": ctx.counters["tokens/generated"],
        "rollouts": ctx.counters["rollouts"],
        "transcripts": hash(tuple(t.token_ids().tobytes() for t in trajectories)),
    }


def _median(rounds: list[Report]) -> Report:
    """The round whose seconds are the median, the upper one of an even number."""
    return sorted(rounds, key=lambda of_round: of_round["seconds"])[len(rounds) // 2]


def clock() -> float:
    """Seconds, once the GPU has done what it was given."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter()


def forget_peak() -> None:
    """Begin a new count for ``peak_gib``."""
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
    else:
        return_freed_memory()  # else what an earlier part has freed hides what this one takes
        with contextlib.suppress(OSError):  # not Linux
            STATUS.with_name("clear_refs").write_text("5", encoding="ascii")  # proc(5): resets VmHWM


def peak_gib() -> float | None:
    """The most memory since: of the GPU where there is one, else resident in this process (None off Linux)."""
    if torch.cuda.is_available():
        return torch.cuda.max_memory_allocated() / 2**30
    if not STATUS.is_file():
        return None
    (line,) = (line for line in STATUS.read_text(encoding="ascii").splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) / 2**20  # kB
