"""A policy that speaks from a script, and a rollout context around the real ALFWorld engine."""

from __future__ import annotations

import asyncio
import itertools
import json
from dataclasses import replace

from r3l.envs.alfworld.task_sets.houses import generate
from r3l.envs.alfworld.task_sets.rooms import House
from r3l.envs.registry import find_environment

from r3l.config import dialogue_of, environment_of, resolve
from r3l.core.policy import Completion, FinishReason, Sampling
from r3l.core.rollout import RolloutContext, play
from r3l.processes.barrier import together
from r3l.processes.pool import EnvironmentPool

TASK = replace(generate(House("pick_heat_then_place_in_recep", 3, 7, 8)), group="hard")
WALKTHROUGH = TASK.payload["walkthrough"]


class Scripted:
    """Responses are given, as one list or by what is asked for; token ids count up, so every token is
    recognisable.

    ``responses`` may be a dict from the kind of request (rollout, reflection, critique, retry) to a list.
    """

    def __init__(self, responses):
        by_kind = responses if isinstance(responses, dict) else {"": responses}
        self.responses = {kind: iter(texts) for kind, texts in by_kind.items()}
        self.ids = itertools.count()
        self.asked = []  # (kind, messages since the last response)

    def open(self):
        return ScriptedDialog(self, 0, [])

    def say(self, address):
        kind = next((part for part in address if part in self.responses), "")
        return next(self.responses[kind])


class ScriptedDialog:
    def __init__(self, policy, turns, seen):
        self.policy, self.turns, self.seen, self.new = policy, turns, seen, []

    def add(self, message):
        self.new.append(message)

    async def respond(self, sampling, address):
        self.policy.asked.append((address, list(self.new)))
        return self._append(self.policy.say(address), self._ids(2), (-1.0, -1.0))

    def append_completion(self, completion):
        return self._append(completion.text, completion.response_ids, completion.logprobs).prompt_ids

    def append_text(self, text):
        return self._append(text, self._ids(2), (0.0, 0.0))

    def fork(self, turns):
        return ScriptedDialog(self.policy, turns, self.seen[:turns])

    def restarted(self):
        return ScriptedDialog(self.policy, 0, [])

    def close(self):
        pass

    def _append(self, text, ids, logprobs):
        """One prompt token a message: it says which message it stands for."""
        prompt = tuple(-1 - (hash((m.role, m.content)) % 10**6) for m in self.new)
        self.seen, self.new, self.turns = [*self.seen, list(self.new)], [], self.turns + 1
        return Completion(text, prompt, ids, logprobs, FinishReason.END)

    def _ids(self, count):
        return tuple(itertools.islice(self.policy.ids, count))


def report(pivot, **changes):
    """What a reflection writes, as a document."""
    content = {
        "trajectory_summary": "s",
        "root_cause_analysis": "c",
        "trajectory_outcome": "failure",
        "improvement_suggestion": "go on",
        "retry_from_step": pivot,
    }
    return content | changes


def review(pivot, **changes):
    return json.dumps(report(pivot, **changes))


def say(action):
    return f"<think>x</think><action>{action}</action>"


def rollout_context(policy, pool, max_turns=15, style="compact", env="alfworld"):
    dialogue = find_environment(env).dialogue(style, max_turns)
    return RolloutContext(policy, pool, dialogue, Sampling(), Sampling(), ("t",), together)


def play_by(env, protocol, task, responses, policy=Scripted):
    """(trajectory, messages before each response) of a task by a protocol."""
    run = resolve("smol", env, f"zero_shot@protocol={protocol}", 0)
    model, dialogue = policy(responses), dialogue_of(run)
    pool = EnvironmentPool(environment_of(env), 0, run.env_settings.options)
    sampling = Sampling(run.evaluation.temperature, run.sampling.max_tokens, stop=dialogue.stop)
    ctx = RolloutContext(model, pool, dialogue, sampling, sampling, ("t",), together)
    trajectory = asyncio.run(play(ctx, task, 0)).trajectory
    return trajectory, [[(m.role, m.content) for m in messages] for _, messages in model.asked]
