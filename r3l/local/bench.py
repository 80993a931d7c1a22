"""``r3l bench rollout``: what keeping and forking the key-value cache saves, on the same episodes in one run."""

from __future__ import annotations

import time
from typing import Any

from r3l.config import Run, build_method, start_of
from r3l.local.policy import LocalPolicy
from r3l.local.session import Session, open_session


def bench_rollout(run: Run, tasks: int, repeats: int) -> dict[str, Any]:
    """Explore ``tasks`` tasks with ``run``'s method, with and without kept caches, alternating ``repeats`` times.

    Both arms sample the same episodes (addressed seeds), so tokens are compared like for like. Returns encoded
    prompt tokens, seconds (median), and their ratios; ``prefix_tokens_reencoded`` counts tokens that were encoded
    more than once with kept caches (0 by construction; measured, not assumed).
    """
    arms: dict[bool, list[dict[str, float]]] = {True: [], False: []}
    with open_session(run, start_of(run)) as session:
        for repeat in range(repeats):
            for keep in (True, False) if repeat % 2 == 0 else (False, True):
                arms[keep].append(_explore(session, tasks, keep))
    kept, anew = _median(arms[True]), _median(arms[False])
    return {
        "cell": run.cell,
        "tasks": tasks,
        "repeats": repeats,
        "same_episodes": kept["transcripts"] == anew["transcripts"],
        "kept": kept,
        "anew": anew,
        "prefix_tokens_reencoded": kept["encoded"] - kept["fresh"],
        "encoded_ratio": anew["encoded"] / kept["encoded"],
        "seconds_ratio": anew["seconds"] / kept["seconds"],
    }


def _explore(session: Session, tasks: int, keep: bool) -> dict[str, float]:
    policy = LocalPolicy(session.model, session.tokenizer, session.run.sampling.max_context, keep, session.run.samples)
    session.policy = policy
    method = build_method(session.run)
    arena = session.arena((session.run.seed, "bench"), session.run.sampling.temperature)
    chosen = session.package.tasks(session.run.env_settings.train_panel)[:tasks]
    began = time.perf_counter()
    explored = session.wait(arena.gather(*[method.explore(task, arena) for task in chosen]))
    seconds = time.perf_counter() - began
    trajectories = [t for groups in explored for g in groups for t in g.trajectories]
    return {
        "seconds": seconds,
        "encoded": policy.meter["encoded"],
        "fresh": policy.meter["fresh"],
        "forwards": policy.meter["forwards"],
        "rollouts": arena.counters["rollouts"],
        "transcripts": hash(tuple(t.token_ids().tobytes() for t in trajectories)),
    }


def _median(rows: list[dict[str, float]]) -> dict[str, float]:
    return sorted(rows, key=lambda row: row["seconds"])[len(rows) // 2]
