"""`prompts: released`: the words of a (made-up) clone, filled by our engines and rules."""

import asyncio
import json

import pytest
from r3l.envs.registry import find_environment
from scripted import TASK, WALKTHROUGH, Scripted, report, rollout_context, say

from r3l.config import build_method, resolve
from r3l.core.environment import Observation, StopReason
from r3l.core.errors import ConfigError
from r3l.core.rollout import play
from r3l.processes.pool import EnvironmentPool
from r3l.retry import Restart, RetrySettings, retry

LOOK, NOW = (
    Observation("A room.\n\nYour task is to: cool it.", ("look", "go")),
    Observation("At b 1.", ("look",)),
)


def dialogue(name, max_turns=9):
    return find_environment(name).dialogue("released", max_turns)


def contents(messages):
    return [(message.role, message.content) for message in messages]


def test_alfworld(clone):
    talk = dialogue("alfworld")
    first = "Look: A room.\n\nYour task is to: cool it.\nMay: ['look', 'go']."
    assert contents(talk.opening(TASK, LOOK)) == [("system", "You are in alfworld."), ("user", first)]
    later = talk.following(LOOK, ["a", "b", "c", "d", "e"], NOW).content
    assert later == "Do: cool it.\n5 done, last 4:\n1) b\n2) c\n3) d\n4) e\nNow 5: At b 1.\nMay: ['look']."


@pytest.mark.parametrize(
    ("error", "response", "feedback"),
    [
        ("inadmissible", say(" fly "), "not offered: fly"),
        ("repetition", say("look"), "again look"),
        ("format", "<action>look</action>", "no thought"),
        ("format", say("look") + "<action>look</action>", "2 actions"),
    ],
)
def test_what_ends_an_alfworld_episode_is_said_as_there(clone, error, response, feedback):
    assert dialogue("alfworld").closing(0.0, False, 3, StopReason(error), response) == feedback


def mathematics():
    return find_environment("math").dialogue("released", 3, {"turns": "whole", "attempts": 3})


def test_mathematics(clone):
    talk, problem = mathematics(), Observation("1 + 1?")
    opening = talk.opening(TASK, problem)
    assert contents(opening) == [("system", "You are in dapo."), ("user", "1 + 1?\nAnswer!")]
    assert (
        talk.following(problem, ["<think>x</think><answer>3</answer>"], NOW).content == "END wrong 3\nAgain!"
    )
    assert talk.following(problem, ["<answer>3</answer>"], NOW).content == "END nothing read\nAgain!"
    log = talk.release.log([opening], ["2!"], "right 2")
    turns = "TURN 0 user\n1 + 1?\nAnswer!\n\nTURN 0 model\n2!\n\nTURN 1 user\nEND right 2"
    assert log == f"RULES You are in dapo.\n---\n\n{turns}"
    assert talk.release.log([], [], "nothing read") == "\nTURN 0 user\nEND nothing read\nAgain!"
    critique = [("system", "You teach."), ("user", "Criticise L of 0.0.\n")]
    assert contents(talk.release.critique("L", 0.0)) == critique


def test_the_words_of_mathematics_are_for_whole_responses(clone):
    with pytest.raises(ConfigError, match=r"--set env_settings\.options\.turns=whole"):
        find_environment("math").dialogue("released", 3, {"turns": "segments"})


def explored(method, script):
    """The policy's requests in order: (kind, roles and contents of the messages)."""
    policy, pool = Scripted(script), EnvironmentPool(find_environment("alfworld"), 0)
    context = rollout_context(policy, pool, style="released")
    built = build_method(resolve("smol", "alfworld", f"{method}@profile=released_code,group_size=2", 0))
    asyncio.run(built.explore(TASK, context))
    pool.close()
    kinds = ("rollout", "reflection", "retry", "critique")
    return [
        (next(k for k in kinds if k in address), contents(messages)) for address, messages in policy.asked
    ]


def test_r3l_reflects_and_retries_in_the_words_of_the_release(clone):
    written = report(1, trajectory_summary="Gefäß", root_cause_analysis=None)
    retry = [say(action) for action in WALKTHROUGH[1:]]
    script = {"rollout": [say(WALKTHROUGH[0]), "fly"], "reflection": [json.dumps(written)], "retry": retry}
    asked = explored("r3l", script)
    (reflection,) = [messages for kind, messages in asked if kind == "reflection"]
    assert reflection[0] == ("system", "Review it.")
    log = reflection[1][1]
    assert log.startswith("LOG\nRULES You are in alfworld.\n---\n\nTURN 0\nsaw Look: ")
    assert f"said {say(WALKTHROUGH[0])}\n\nTURN 1\nsaw Do: " in log
    assert log.endswith("said fly\n\nTURN 2\nsaw END no tags\nJSON.")
    guided = next(messages for kind, messages in asked if kind == "retry")
    words = f"# Before\nA review:\n\n{json.dumps(written, indent=2, ensure_ascii=False)}"
    assert [role for role, _ in guided] == ["user", "system", "user"] and guided[1] == ("system", words)


def test_a_lenient_retry_goes_on_in_the_words_of_the_release(clone):
    """Audit B-7: after an impossible action and a bad format steps are counted on, the message says what was wrong,
    and the history stays that of before."""
    script = {
        "rollout": [say(WALKTHROUGH[0]), "fly"],
        "retry": [say("dance"), "fly", *map(say, WALKTHROUGH[1:])],
    }
    policy, pool = Scripted(script), EnvironmentPool(find_environment("alfworld"), 0)
    ctx = rollout_context(policy, pool, style="released")

    async def retried():
        base = await play(ctx, TASK, 0)
        return await retry(ctx, base, Restart(1, None), RetrySettings(retry_rules="released_lenient"))

    done = asyncio.run(retried())
    pool.close()
    shown = [messages[-1].content for address, messages in policy.asked if "retry" in address]
    history = f"1 done, last 1:\n{{}}) {WALKTHROUGH[0]}\nNow {{}}: "
    assert history.format(0, 1) in shown[0]
    assert history.format(1, 2) + "not offered: dance\n" in shown[1]
    assert history.format(2, 3) + "no tags\n" in shown[2]
    assert history.format(3, 4) in shown[3] and done.guided.success


def test_critique_grpo_criticises_and_refines_in_the_words_of_the_release(clone):
    script = {"rollout": ["fly"] * 2, "critique": ["Tags!"] * 2, "retry": ["fly"] * 2}
    asked = explored("critique_grpo", script)
    ((role, critique),) = next(messages for kind, messages in asked if kind == "critique")
    assert (
        role == "user"
        and critique.startswith("Criticise RULES You")
        and critique.endswith("END no tags of 0.0.\n")
    )
    guided = next(messages for kind, messages in asked if kind == "retry")
    assert guided[0] == ("system", "You are in alfworld.\n\n# Critique\nTags!")
