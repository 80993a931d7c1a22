"""``r3l bench rollout``: the same tasks explored in several ways, in one run.

``kept``: as a run does by default. ``anew``: every dialog encoded from its start at each turn. ``lanes``: two shares of
the tasks take turns at the model. ``compiled``: decoding by a compiled step of fixed shape.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, get_args

import torch

from r3l.config import Run, build_method, start_of
from r3l.local.decoding import FixedStep
from r3l.local.session import Session, open_session, policy_of

Arm = Literal["kept", "anew", "lanes", "compiled"]
ARMS: tuple[Arm, ...] = get_args(Arm)
LANES = 2
STATUS = Path("/proc/self/status")
Report = dict[str, Any]


def bench_rollout(run: Run, tasks: int, repeats: int, arms: Sequence[Arm]) -> Report:
    """Explore ``tasks`` tasks with ``run``'s method, in each of ``arms`` in turn, ``repeats`` times.

    All draw from the same addresses, so they sample the same episodes but for float rounding, which ``same_episodes``
    shows. An arm: medians over repetitions of seconds, sampled tokens a second, shares of the time by phase (what is
    left is waiting for ``environments``), and the most memory. ``seconds_ratio``: of an arm to ``kept``.
    ``prefix_tokens_reencoded`` counts tokens that were encoded more than once with kept caches (0 by construction;
    measured, not assumed).
    """
    rounds: dict[Arm, list[Report]] = {arm: [] for arm in arms}
    with open_session(run, start_of(run)) as session:
        step = FixedStep(session.model.device)
        _explore(session, tasks, "kept", step)  # not counted: engines start, and ScienceWorld's remembers
        if "compiled" in arms:
            _explore(session, tasks, "compiled", step)  # compiles
        for repeat in range(repeats):
            for arm in arms if repeat % 2 == 0 else reversed(arms):
                rounds[arm].append(_explore(session, tasks, arm, step))
        device = str(session.model.device)
    found = {arm: _median(of_arm) for arm, of_arm in rounds.items()}
    transcripts = {arm: of_arm.pop("transcripts") for arm, of_arm in found.items()}
    report: Report = {"cell": run.cell, "model": run.model, "device": device, "tasks": tasks, "repeats": repeats}
    report |= {"same_episodes": len(set(transcripts.values())) == 1, "arms": found}
    if kept := found.get("kept"):
        report["prefix_tokens_reencoded"] = kept["encoded"] - kept["fresh"]
        report["seconds_ratio"] = {arm: found[arm]["seconds"] / kept["seconds"] for arm in arms}
        report["encoded_ratio"] = {arm: found[arm]["encoded"] / kept["encoded"] for arm in arms}
    return report


def _explore(session: Session, tasks: int, arm: Arm, step: FixedStep) -> Report:
    run = session.run
    chosen_step = step if arm == "compiled" else None
    session.policy = policy_of(run, session.model, session.tokenizer, chosen_step, keep_cache=arm != "anew")
    method = build_method(run)
    ctx = session.rollout_context((run.seed, "bench"), run.sampling.temperature)
    chosen = session.package.tasks(run.env_settings.train_task_set)[:tasks]
    forget_peak()
    began = clock()
    explored = session.spread(
        ctx, lambda lane, task: method.explore(task, lane), chosen, LANES if arm == "lanes" else 1
    )
    seconds = clock() - began
    trajectories = [t for groups in explored for g in groups for t in g.trajectories]
    meter = session.policy.meter
    shares = {f"share/{k.removeprefix('seconds/')}": v / seconds for k, v in meter.items() if k.startswith("seconds/")}
    return {
        "seconds": seconds,
        "tokens_per_s": ctx.counters["tokens/generated"] / seconds,
        **shares,
        "share/environments": 1 - sum(shares.values()),
        "peak_gib": peak_gib(),
        "encoded": meter["encoded"],
        "fresh": meter["fresh"],
        "forwards": meter["forwards"],
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
