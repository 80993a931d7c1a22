"""The episode loop, rewinding and retrying on the real ALFWorld engine, with a policy that speaks from a script."""

import asyncio
import itertools

import pytest

from envs.alfworld import PACKAGE
from envs.alfworld.houses import generate
from r3l.core.errors import ConfigError, EngineError
from r3l.core.policy import Completion, Sampling
from r3l.core.pool import EnvironmentPool, find_package
from r3l.core.rollout import Arena, play
from r3l.retry import distil, retry, with_guidance

TASK = generate("pick_heat_then_place_in_recep", 3, 7, 8)
WALKTHROUGH = TASK.payload["walkthrough"]


class Scripted:
    """A policy whose responses are given; token ids count up, so that every token is recognisable."""

    def __init__(self, responses):
        self.responses, self.ids = iter(responses), itertools.count()

    def open(self):
        return ScriptedDialog(self, 0, [])


class ScriptedDialog:
    def __init__(self, policy, turns, seen):
        self.policy, self.turns, self.seen, self.new = policy, turns, seen, []

    def add(self, message):
        self.new.append(message)

    async def respond(self, sampling, address):
        self.seen, self.new, self.turns = [*self.seen, list(self.new)], [], self.turns + 1
        ids = tuple(itertools.islice(self.policy.ids, 3))
        return Completion(next(self.policy.responses), ids[:1], ids[1:], (-1.0, -1.0), "end")

    def fork(self, turns):
        return ScriptedDialog(self.policy, turns, self.seen[:turns])

    def close(self):
        pass


def say(action):
    return f"<think>x</think><action>{action}</action>"


def arena(policy, pool, max_turns=15):
    async def gather(*coroutines):
        return await asyncio.gather(*coroutines)

    dialogue = PACKAGE.dialogue({"style": "compact", "max_turns": max_turns})
    return Arena(policy, pool, dialogue, Sampling(), Sampling(), ("t",), gather)


def played(responses, max_turns=15, workers=0):
    pool = EnvironmentPool("alfworld", workers)
    a = arena(Scripted(responses), pool, max_turns)
    episode = asyncio.run(play(a, TASK, 0))
    pool.close()
    return episode.trajectory, a.counters


def test_a_winning_walkthrough_through_a_worker_process():
    trajectory, counters = played(map(say, WALKTHROUGH), workers=1)
    assert trajectory.success and trajectory.reward == 1 and trajectory.stop_reason == "success"
    assert trajectory.actions == list(WALKTHROUGH)
    assert counters["env_steps"] == counters["tokens/generated"] / 2 == len(WALKTHROUGH)
    assert trajectory.token_ids().tolist() == list(range(3 * len(WALKTHROUGH)))


@pytest.mark.parametrize(
    ("responses", "reason", "steps"),
    [
        (["no tags"], "format", 0),
        ([say("fly away")], "inadmissible", 0),
        ([say(WALKTHROUGH[0]), say("heat it")], "inadmissible", 1),
        ([say("look")] * 3, "repetition", 2),
    ],
)
def test_unusable_responses_end_the_episode_before_the_engine_sees_them(responses, reason, steps):
    trajectory, counters = played(responses)
    assert (trajectory.stop_reason, trajectory.reward, trajectory.success) == (reason, 0.0, False)
    assert counters["env_steps"] == steps and counters[f"stop/{reason}"] == 1
    assert trajectory.turns[-1].error == reason and reason in trajectory.feedback


def test_the_turn_limit():
    trajectory, _ = played(map(say, WALKTHROUGH), max_turns=2)
    assert trajectory.stop_reason == "max_turns" and len(trajectory.turns) == 2 and not trajectory.success


@pytest.mark.parametrize("workers", [0, 1])
def test_retry_restores_the_pivot_and_distillation_removes_the_guidance(workers):
    wrong, rest = [*WALKTHROUGH[:3], "look", "fly"], WALKTHROUGH[3:]

    async def both():
        episode = await play(a, TASK, 0)
        guided = await retry(a, episode, 3, with_guidance("Hint: go on", "user_turn"), a.sampling)
        return episode.trajectory, guided

    pool = EnvironmentPool("alfworld", workers)
    a = arena(Scripted(map(say, [*wrong, *rest])), pool)
    base, guided = asyncio.run(both())
    pool.close()
    assert not base.success and guided.success
    assert guided.turns[:3] == base.turns[:3] and guided.pivot == 3
    assert guided.turns[3].observation == base.turns[3].observation
    clean = distil(guided, base)
    assert clean.turns[3].prompt_ids == base.turns[3].prompt_ids != guided.turns[3].prompt_ids
    assert a.counters["rollouts"] == 2


def test_guidance_stands_only_in_the_pivot_turn():
    seen = {}

    class Spy(ScriptedDialog):
        def fork(self, turns):
            seen["dialog"] = super().fork(turns)
            return seen["dialog"]

    policy = Scripted(map(say, ["look", "fly", *WALKTHROUGH]))
    policy.open = lambda: Spy(policy, 0, [])
    pool = EnvironmentPool("alfworld", 0)
    a = arena(policy, pool)

    async def both():
        episode = await play(a, TASK, 0)
        return await retry(a, episode, 0, with_guidance("Hint: go on", "user_turn"), a.sampling)

    assert asyncio.run(both()).success
    texts = ["\n".join(m.content for m in messages) for messages in seen["dialog"].seen]
    assert texts[0].startswith("Hint: go on\n0: ") and not any("Hint" in t for t in texts[1:])


def test_a_dead_worker_is_a_clear_error():
    async def die():
        env = pool.open()
        await env.reset(TASK)
        pool._processes[0].kill()
        await env.step("look")

    pool = EnvironmentPool("alfworld", 1)
    with pytest.raises(EngineError, match="worker 0 of 'alfworld' died"):
        asyncio.run(die())
    pool.close()


def test_unknown_environment():
    with pytest.raises(ConfigError, match="environment 'marsworld' is unknown"):
        find_package("marsworld")
