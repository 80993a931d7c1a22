"""One task of a method on the real ALFWorld engine, with a policy that speaks from a script."""

import asyncio
import json

from r3l.envs.registry import find_environment
from scripted import TASK, WALKTHROUGH, Scripted, review, rollout_context, say

from r3l.config import build_method, resolve
from r3l.processes.pool import EnvironmentPool

WIN = [say(action) for action in WALKTHROUGH]
LOSE = [say("look"), say("fly")]


PERFECT = review(None, trajectory_outcome="success", improvement_suggestion=None)
R3L_SCRIPT = {"rollout": LOSE + WIN, "reflection": [review(1), PERFECT], "retry": [say("fly")]}
CRITIQUE_SCRIPT = {"rollout": LOSE + LOSE, "critique": [review(0), review(0)], "retry": [say("fly"), *WIN]}


def explore(name, script, **settings):
    """(method, groups, counters) of one task; ``script``: kind of request -> responses in the order of
    members."""
    method, groups, a = played(name, script, **settings)
    return method, groups, a.counters


def played(name, script, judge=None, task=TASK, progress=0.0, history=(), **settings):
    """(method, groups, rollout context) of one task."""
    overrides = [f"method_settings.{key}={json.dumps(value)}" for key, value in settings.items()]
    method = build_method(resolve("nano", "alfworld", name, 0, overrides=overrides))
    pool, policy = EnvironmentPool(find_environment("alfworld"), 0), Scripted(script)
    a = rollout_context(policy, pool)
    a.judge, a.progress, a.history = judge, progress, history
    groups = asyncio.run(method.explore(task, a))
    pool.close()
    return method, groups, a


def shape(groups):
    """(objective, [(kind, reward)]) of each group."""
    return [(g.objective, [(t.kind, t.reward) for t in g.trajectories]) for g in groups]
