"""Endings: how base rollouts and their retries end, and with which reward, in each agentic environment.

Both sides get the same responses on the same problem: walks that repeat themselves, do what cannot be done and break
the format, under turn limits of 2 to 15. An ending is the reward and the number of turns.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from functools import cache, partial
from types import SimpleNamespace
from typing import Any

import numpy as np

from r3l.core.environment import Environment
from r3l.core.policy import Sampling
from r3l.core.rollout import RolloutContext, play
from r3l.core.seeds import generator
from r3l.core.task import Task
from r3l.core.trajectory import Trajectory
from r3l.envs.base.tagged import write_response
from r3l.envs.registry import find_environment
from r3l.original.clones import R3L
from r3l.processes.gather import together
from r3l.processes.pool import EnvironmentPool
from r3l.released.check import Case, Check, Code, Namespace, Value
from r3l.released.ours import dialogue_of, method_of, run_of
from r3l.released.script import Script
from r3l.released.worlds import WORLDS
from r3l.retry import restart_at, retry

FOLDER = "trinity/common/workflows/envs/R3L"
CASES = {"alfworld": 600, "scienceworld": 200, "webshop": 1000}  # our choice; one of ScienceWorld takes a second
LONGEST = 15
BROKEN = ("", "look", "<action>look</action>", "<think>x</think>", "<think>x</think><action>look")
ODD = ("", "fly", "search[tea]", "search[ ]", "click[no]", "click[Search]", "click[ next >]", "click[Next >]")
NOISE = (0.0, 0.05, 0.3)  # how often a walk breaks the format or does something odd
PREFIX = {"webshop": (0,)}  # what its rollouts take beside the environment: a session


def walks(environment: str) -> Iterator[Case]:
    """A base's responses and those of its retry, each long enough for any ending."""
    engine, tasks = find_environment(environment).create({}), _tasks(environment)
    for k in range(CASES[environment]):
        draw = generator("endings", environment, k)
        number = int(draw.integers(0, len(tasks)))
        base = _walk(engine, tasks[number], [], draw)
        turns, pivot = int(draw.integers(2, LONGEST + 1)), int(draw.integers(0, LONGEST))
        guided = _walk(engine, tasks[number], base[:pivot], draw)
        yield {"task": number, "base": base, "retry": guided, "pivot": pivot, "max_turns": turns}
    engine.close()


def theirs(environment: str, released: Namespace, case: Case) -> Value:
    """The released rollout and retry."""
    released |= {"format_observation": lambda *seen, **shown: "", "extract_task_description": lambda text: ""}
    template = SimpleNamespace(render=lambda: "")
    workflow = SimpleNamespace(
        max_env_steps=case["max_turns"],
        max_tokens=1,
        temperature=1.0,
        alfworld_system_template=template,
        sciworld_system_template=template,
        webshop_system_template=template,
    )
    task = _tasks(environment)[case["task"]]
    world, more = WORLDS[environment](task), PREFIX.get(environment, ())
    workflow.model = _model(case["base"])
    log, reward, _, turns, _ = released["first_rollout"](workflow, world, *more)
    workflow.model, pivot = _model(case["retry"]), case["pivot"] % turns
    played = released["second_rollout"](workflow, WORLDS[environment](task), *more, "", log, pivot)
    points = _points(environment, released)
    return {"base": [reward / points, turns], "retry": [played[2] / points, played[4]]}


def ours(environment: str, case: Case) -> Value:
    """Of the profile, with R3L's rules for retries."""
    return asyncio.run(_played(environment, case))


async def _played(environment: str, case: Case) -> Value:
    settings: Any = method_of("r3l").settings  # type: ignore[attr-defined]
    package, script = find_environment(environment), Script(case["base"])
    pool = EnvironmentPool(package, 0, run_of(environment).env_settings.options)
    dialogue = dialogue_of(environment, case["max_turns"])
    ctx = RolloutContext(script, pool, dialogue, Sampling(), Sampling(), ("endings",), together)
    base = await play(ctx, _tasks(environment)[case["task"]], 0)
    script.say(case["retry"])
    pivot = case["pivot"] % len(base.trajectory.turns)
    played = await retry(ctx, base, restart_at(pivot, "go on", base.trajectory, settings), settings)
    await base.close()
    pool.close()
    return {"base": _ending(base.trajectory), "retry": _ending(played.guided)}


def _ending(trajectory: Trajectory) -> list[float]:
    return [trajectory.reward, trajectory.played]


@cache
def _tasks(environment: str) -> list[Task]:
    return find_environment(environment).tasks("nano/test")


def _model(responses: Sequence[str]) -> SimpleNamespace:
    """What the released rollouts ask; a dialog is never too long."""
    said = (SimpleNamespace(response_text=text, tokens=SimpleNamespace(shape=(1,))) for text in responses)
    return SimpleNamespace(chat=lambda messages, **options: [next(said)])


def _points(environment: str, released: Namespace) -> float:
    """What a reward of 1 is to the released rollout; not all its versions make a fraction of ScienceWorld's points."""
    if environment != "scienceworld":
        return 1.0
    once = SimpleNamespace(reset=lambda: ("", {}), get_task_description=str, step=lambda action: ("", 50.0, True, {}))
    template = SimpleNamespace(render=lambda: "")
    workflow = SimpleNamespace(max_env_steps=1, max_tokens=1, temperature=1.0, sciworld_system_template=template)
    workflow.model = _model([write_response("", "look")])
    return float(released["first_rollout"](workflow, once)[1]) / 0.5


def _walk(engine: Environment, task: Task, before: Sequence[str], draw: np.random.Generator) -> list[str]:
    """Responses after ``before``: the next of a solution, the last action again, any that is offered, or noise."""
    now = engine.reset(task)
    plan = list(task.payload.get("walkthrough") or task.payload.get("solution") or ())
    noise, actions = NOISE[int(draw.integers(0, len(NOISE)))], [_action(response) for response in before]
    for action in actions:
        now = engine.step(action)
    plan, responses = plan[len(actions) :], []
    for _ in range(LONGEST):
        if draw.random() < noise / 2:
            responses.append(_one(draw, BROKEN))
            continue
        offered = now.admissible or plan or ODD
        action = plan.pop(0) if plan and draw.random() < 0.7 else _one(draw, offered)
        action = actions[-1] if actions and draw.random() < 0.15 else action
        action = _one(draw, ODD) if draw.random() < noise / 2 else action
        action = action.replace("keywords", _one(draw, ("tea", "red shirt", "chair")))  # of a search
        actions.append(action)
        responses.append(write_response("", action))
        now = now if now.done else engine.step(action)
    return responses


def _action(response: str) -> str:
    return response.partition("<action>")[2].partition("</action>")[0]


def _one(draw: np.random.Generator, values: Sequence[str]) -> str:
    return values[int(draw.integers(0, len(values)))]


def _check(environment: str) -> Check:
    functions: tuple[str, ...] = ("first_rollout", "second_rollout", "parse_response")
    functions += () if environment == "alfworld" else ("validate_action",)
    return Check(
        "endings",
        environment,
        R3L,
        (Code(f"{FOLDER}/{environment}/utils.py", functions),),
        partial(walks, environment),
        partial(theirs, environment),
        partial(ours, environment),
        tolerance=1e-9,
    )


CHECKS = tuple(map(_check, CASES))
