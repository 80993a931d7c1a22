"""Rollouts: how base episodes and their retries end in each agentic environment, and which turns of both train.

Both sides get the same responses on the same problem: walks that repeat themselves, do what is impossible and break
the format, under turn limits of 2 to 15. ALFWorld and WebShop, whose packages are not installed, are our engines, which
have tests of their own: compared are the rollouts around them. ScienceWorld is the published class.
"""

from __future__ import annotations

import asyncio
import os
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from r3l.envs.base.tagged import write_response
from r3l.envs.registry import find_environment
from scripted import Scripted

from r3l.config import build_method, resolve
from r3l.core.policy import Sampling
from r3l.core.rollout import RolloutContext, play
from r3l.core.seeds import generator
from r3l.core.trajectory import Trajectory, TrajectoryKind
from r3l.credit import assign_pivotal_credit
from r3l.original.clones import R3L
from r3l.processes.gather import together
from r3l.processes.pool import EnvironmentPool
from r3l.retry import restart_at, retry
from tests.released.release import PROFILE, TASK, compare, definitions, dialogue_of, method_of, pick, run_of

FOLDER = "trinity/common/workflows/envs/R3L"
LONGEST = 15
BROKEN = ("", "look", "<action>look</action>", "<think>x</think>", "<think>x</think><action>look")
ODD = ("", "fly", "search[tea]", "search[ ]", "click[no]", "click[Search]", "click[ next >]", "click[Next >]")


@cache
def tasks(environment):
    return find_environment(environment).tasks("nano/test")


def walks(environment, count):
    """A base's responses and those of its retry, each long enough for any ending."""
    engine = find_environment(environment).create({})
    for k in range(count):
        draw = generator("endings", environment, k)
        number = int(draw.integers(0, len(tasks(environment))))
        task = tasks(environment)[number]
        base = walk(engine, task, [], draw)
        turns, pivot = int(draw.integers(2, LONGEST + 1)), int(draw.integers(0, LONGEST))
        guided = walk(engine, task, base[:pivot], draw)
        yield {"task": number, "base": base, "retry": guided, "pivot": pivot, "max_turns": turns}
    engine.close()


def walk(engine, task, before, draw):
    """Responses after ``before``: the next of a solution, the last action again, any that is offered, or noise."""
    now = engine.reset(task)
    plan = list(task.payload.get("walkthrough") or task.payload.get("solution") or ())
    noise = pick(draw, (0.0, 0.05, 0.3))
    actions = [response.partition("<action>")[2].partition("</action>")[0] for response in before]
    for action in actions:
        now = engine.step(action)
    plan, responses = plan[len(actions) :], []
    for _ in range(LONGEST):
        if draw.random() < noise / 2:
            responses.append(pick(draw, BROKEN))
            continue
        offered = now.admissible or plan or ODD
        action = plan.pop(0) if plan and draw.random() < 0.7 else pick(draw, offered)
        action = actions[-1] if actions and draw.random() < 0.15 else action
        action = pick(draw, ODD) if draw.random() < noise / 2 else action
        action = action.replace("keywords", pick(draw, ("tea", "red shirt", "chair")))  # of a search
        actions.append(action)
        responses.append(write_response("", action))
        now = now if now.done else engine.step(action)
    return responses


class Game:
    """ALFWorld's ``reset`` and ``step`` as TextWorld's gym has them, with the admissible commands."""

    def __init__(self, task):
        self.engine, self.task = find_environment("alfworld").create({}), task

    def reset(self):
        now = self.engine.reset(self.task)
        return now.text, {"admissible_commands": list(now.admissible)}

    def step(self, action):
        now = self.engine.step(action)
        return now.text, now.reward, now.done, {"admissible_commands": list(now.admissible)}


class Shop:
    """WebShop's text environment; the button of the search bar can be clicked too."""

    def __init__(self, task):
        self.engine, self.task, self.observation = find_environment("webshop").create({}), task, ""

    def reset(self, session):
        self.now = self.engine.reset(self.task)
        self.observation = self.now.text

    def get_available_actions(self):
        clicks = [action.removeprefix("click[")[:-1] for action in self.now.admissible if action.startswith("click[")]
        bar = len(clicks) < len(self.now.admissible)
        return {"has_search_bar": bar, "clickables": [*clicks, *(["search"] if bar else [])]}

    def step(self, action):
        self.now = self.engine.step(action)
        return self.now.text, self.now.reward, self.now.done, {}


class Laboratory:
    """ScienceWorld's published class, without the list of all valid actions at each step, which takes a second."""

    def __init__(self, task):
        self.payload = task.payload

    def reset(self):
        simulator().load(self.payload["task"], self.payload["variation"], self.payload["simplifications"])
        return simulator().reset()

    def get_task_description(self):
        return simulator().get_task_description()

    def step(self, action):
        return simulator().step(action)


@cache
def simulator():
    from r3l.envs.scienceworld.jvm import find_java
    from scienceworld import ScienceWorldEnv

    class Simulator(ScienceWorldEnv):
        def get_valid_action_object_combinations(self):
            return []

    os.environ["PATH"] = f"{Path(find_java().path).parent}{os.pathsep}{os.environ['PATH']}"
    os.environ["JAVA_TOOL_OPTIONS"] = "-XX:+UnlockExperimentalVMOptions -XX:hashCode=2"  # else chance orders objects
    return Simulator("", envStepLimit=30)


def model(responses):
    """What the released rollouts ask; a dialog is never too long."""
    said = (SimpleNamespace(response_text=text, tokens=SimpleNamespace(shape=(1,))) for text in responses)
    return SimpleNamespace(chat=lambda messages, **options: [next(said)])


def workflow(turns):
    template = SimpleNamespace(render=lambda: "")
    templates = {f"{name}_system_template": template for name in ("alfworld", "sciworld", "webshop")}
    return SimpleNamespace(max_env_steps=turns, max_tokens=1, temperature=1.0, **templates)


async def play_ours(environment, case):
    settings, script = method_of("r3l").settings, Scripted({"rollout": case["base"], "retry": case["retry"]})
    pool = EnvironmentPool(find_environment(environment), 0, run_of(environment).env_settings.options)
    dialogue = dialogue_of(environment, case["max_turns"])
    ctx = RolloutContext(script, pool, dialogue, Sampling(), Sampling(), ("endings",), together)
    base = await play(ctx, tasks(environment)[case["task"]], 0)
    pivot = case["pivot"] % len(base.trajectory.turns)
    guided = (await retry(ctx, base, restart_at(pivot, "go on", base.trajectory, settings), settings)).guided
    await base.close()
    pool.close()
    return {"base": ending(base.trajectory), "retry": ending(guided)}


def ending(trajectory):
    return [trajectory.reward, trajectory.played]


@pytest.mark.released
@pytest.mark.parametrize(
    ("environment", "world", "count", "more"),  # more: what WebShop's rollouts take, a session
    [("alfworld", Game, 600, ()), ("scienceworld", Laboratory, 200, ()), ("webshop", Shop, 1000, (0,))],
)
def test_endings(environment, world, count, more):
    """Reward and number of turns."""
    functions = ["first_rollout", "second_rollout", "parse_response"]
    functions += [] if environment == "alfworld" else ["validate_action"]
    released = definitions(R3L, (f"{FOLDER}/{environment}/utils.py", functions))
    first, second = released["first_rollout"], released["second_rollout"]
    released |= {"format_observation": lambda *seen, **shown: "", "extract_task_description": lambda text: ""}
    points = 1.0  # a reward of 1; not all versions of the release make a fraction of ScienceWorld's points
    if environment == "scienceworld":
        once = SimpleNamespace(
            reset=lambda: ("", {}), get_task_description=str, step=lambda action: ("", 50.0, True, {})
        )
        player = workflow(1)
        player.model = model([write_response("", "look")])
        points = float(first(player, once)[1]) / 0.5

    def theirs(case):
        player, task = workflow(case["max_turns"]), tasks(environment)[case["task"]]
        player.model = model(case["base"])
        log, reward, _, turns, _ = first(player, world(task), *more)
        player.model = model(case["retry"])
        played = second(player, world(task), *more, "", log, case["pivot"] % turns)
        return {"base": [reward / points, turns], "retry": [played[2] / points, played[4]]}

    compare(walks(environment, count), lambda case: asyncio.run(play_ours(environment, case)), theirs, tolerance=1e-9)


STEP_WORKFLOW = f"{FOLDER}/alfworld/step_R3L_workflow.py"
METHODS = ("run", "_run_retry_distill_from_pivot", "_run_retry_from_pivot")


def episodes():
    """Bases of 1 to 8 turns, a pivot in them, and retries that win or lose after 1 to 4 turns of their own."""
    for k in range(2000):
        draw = generator("turns", k)
        turns = int(draw.integers(1, 9))
        yield {
            "turns": turns,
            "pivot": int(draw.integers(0, turns)),
            "retried": int(draw.integers(1, 5)),
            "reward": float(draw.integers(0, 2)),
            "retry_reward": float(draw.integers(0, 2)),
        }


class StepWorkflow:
    """What the released methods ask of their workflow; its rollouts have the lengths and rewards of a case."""

    def __init__(self, case):
        self.is_eval, self.run_id_base, self.n, self.env = False, 0, 2, None
        self.task, self.game_file_path, self.max_env_steps = SimpleNamespace(task_id="t"), "", 12
        self.alfworld_system_template = SimpleNamespace(render=str)
        self.model = SimpleNamespace(extract_experience_from_history=lambda: [self.sample(0)])
        self.final_reward, self.memory, self.case = 0.0, [], case

    def sample(self, step):
        place, mask = SimpleNamespace(step=step, run=0, task=""), torch.ones(1)
        return SimpleNamespace(eid=place, action_mask=mask, metrics={}, tokens=[0, 0], prompt_length=1, reward=0.0)

    def _run_single_rollout(self, run_id):
        roles = ("user", "assistant") * self.case["turns"]
        self.memory = [{"role": role, "content": "x"} for role in ("system", *roles)]
        self.final_reward = self.case["reward"]
        return [self.sample(step) for step in range(self.case["turns"])]

    def _get_reflect(self, trajectory):
        return {"retry_from_step": self.case["pivot"]}, "", self.sample(0), 1.0

    def step(self, step_num):
        self.final_reward = self.case["retry_reward"]
        return step_num + 1 < self.case["pivot"] + self.case["retried"]


def trained_turns(case):
    """Ours, for a model whose samples are turns."""
    settings = build_method(resolve("paper", "alfworld", f"r3l@profile={PROFILE}", 0, "qwen3-4b")).settings
    kind = TrajectoryKind.GUIDED_RETRY if settings.train_on == "guided" else TrajectoryKind.DISTILLED
    kinds = {"base": (TrajectoryKind.BASE, case["turns"]), "retry": (kind, case["pivot"] + case["retried"])}
    trained = {}
    for name, (kind, turns) in kinds.items():
        trajectory = Trajectory(TASK, 0, kind, [None] * turns)
        assign_pivotal_credit(trajectory, case["pivot"], settings)
        trained[name] = [k for k in range(turns) if trajectory.trains(k)]
    return trained


@pytest.mark.released
def test_turns_that_train():
    released = definitions(R3L, (STEP_WORKFLOW, [f"StepLevelR3LAlfworldWorkflow.{name}" for name in METHODS]))
    game = SimpleNamespace(reset=lambda: ("", {}), step=lambda action: ("", 0.0, False, {}), close=lambda: None)
    released["utils"] = SimpleNamespace(
        validate_reflect_report=lambda report, turns: (True, False),
        reflect_report_to_guidance_prompt=str,
        create_alfworld_environment=lambda file: game,
        extract_task_description=str,
        parse_response=lambda response: (response, response, None),
    )

    def theirs(case):
        player = StepWorkflow(case)
        for name in METHODS[1:]:
            setattr(player, name, released[name].__get__(player))
        trained = {"base": [], "retry": []}
        for sample in released["run"](player):
            if sample.eid.task == "t_explore" and sample.action_mask.any():
                trained["retry" if sample.metrics["is_retry_rollout"] else "base"].append(sample.eid.step)
        return trained

    compare(episodes(), trained_turns, theirs)


def test_the_prefix_of_the_base_trains_and_the_suffix_of_the_retry():
    """Audit B-12: for the base the opposite of the paper."""
    case = {"turns": 4, "pivot": 1, "retried": 2, "reward": 0.0, "retry_reward": 1.0}
    assert trained_turns(case) == {"base": [0], "retry": [1, 2]}
    assert trained_turns(case | {"pivot": 0}) == {"base": [0, 1, 2, 3], "retry": [0, 1]}
