"""What is played around a failed attempt: hand-made transcripts on the real engine of ALFWorld."""

from __future__ import annotations

import asyncio

import pytest
from r3l.envs.base.experts import first_action
from r3l.envs.registry import find_environment
from scripted import TASK, WALKTHROUGH, Scripted, review, rollout_context, say

from r3l.algorithm import R3LSettings
from r3l.core.environment import INVALID_RESPONSES, Observation, StopReason
from r3l.core.rollout import play
from r3l.feedback.feedback import FeedbackSource
from r3l.probe.attempts import RetryOutcome
from r3l.probe.play import study
from r3l.processes.pool import EnvironmentPool

SETTINGS = R3LSettings(guidance="suggestion", kl="none")


def reflection(pivot, suggestion):
    return review(pivot, root_cause_analysis="not possible there", improvement_suggestion=suggestion)


@pytest.fixture(scope="module")
def pool():
    pool = EnvironmentPool(find_environment("alfworld"), 0)
    yield pool
    pool.close()


def studied(pool, responses, settings=SETTINGS):
    policy = Scripted(responses)
    ctx = rollout_context(policy, pool)

    async def played():
        return await study(ctx, settings, await play(ctx, TASK, 0))

    result = asyncio.run(played())
    policy.distilled, policy.taught = result.distilled, result.taught
    return result.attempt, policy


def test_a_failure_is_reflected_on_and_retried_in_five_ways(pool):
    """`fly` at turn 2 ends the attempt. Following the hint there wins, the other retries fail."""
    win, fly = [say(action) for action in WALKTHROUGH], say("fly")
    attempt, policy = studied(
        pool,
        {
            "rollout": [say("look"), say("look"), say("fly")],
            "reflection": [reflection(2, f"{WALKTHROUGH[0]}, then {WALKTHROUGH[1]}")],
            "retry": [*win, fly, say("look"), fly, fly],  # the hint; none; from the start; the critic's hint
        },
    )
    assert (attempt.success, attempt.stop, attempt.turns, attempt.tokens) == (
        False,
        StopReason.INADMISSIBLE,
        3,
        6,
    )
    assert attempt.stop in INVALID_RESPONSES and (attempt.actions, attempt.shown) == (3, 3)
    own, critic = attempt.own, attempt.critic
    assert own.invalid is None and own.right and own.agrees.exact and own.agrees.grade == "accurate"
    assert [policy.distilled.trains(k) for k in range(2 + len(win))] == [False] * 2 + [True] * len(win)
    # two tokens a response; the two of the reflection are in each
    assert own.guided == RetryOutcome(True, True, 2 * len(win) + 2, followed=True)
    assert own.unguided == RetryOutcome(False, False, 2 + 2, invalid=True)
    assert own.from_start == RetryOutcome(False, False, 4 + 2, followed=False, invalid=True)
    assert critic.cause == "not possible there" and critic.guided.tokens == 2
    assert critic.unguided == RetryOutcome(
        False, False, 2, invalid=True
    )  # the same retry as the model's, and no token of a reflection
    assert next(policy.responses["retry"], None) is None
    asked = {address[1]: None for address, _ in policy.asked}
    assert list(asked) == ["rollout", "reflection", "retry"]


def test_a_reflection_of_the_critic_costs_no_tokens(pool):
    """Two tokens a response: each retry has one response, which is refused."""
    by_critic = SETTINGS.model_copy(update={"feedback": FeedbackSource.ENVIRONMENT})
    attempt, _ = studied(
        pool, {"rollout": [say("look"), say("look"), say("fly")], "retry": [say("fly")] * 9}, by_critic
    )
    assert attempt.own.guided.tokens == attempt.own.unguided.tokens == attempt.own.from_start.tokens == 2


def test_retries_share_their_draws(pool):
    """Guided and unguided ones from the same pivot have the same addresses, so the difference is the
    hint's."""
    fly = [say("fly")] * 9
    _, policy = studied(
        pool,
        {"rollout": [say("look"), say("fly")], "reflection": [reflection(1, WALKTHROUGH[0])], "retry": fly},
    )
    addresses = [address for address, _ in policy.asked if address[1] == "retry"]
    assert addresses == [("t", "retry", TASK.id, 0, turn) for turn in (1, 1, 0, 1)]
    hints = ["Hint" in messages[-1].content for address, messages in policy.asked if address[1] == "retry"]
    assert hints == [True, False, True, True]


def test_teachers_read_the_attempt_after_a_solved_one_and_after_the_reflection(pool):
    """The attempt's own tokens after prompts with the hint; without another success nobody shows one."""
    win, fail = [say(action) for action in WALKTHROUGH], [say("look"), say("fly")]
    policy = Scripted(
        {"rollout": win + fail, "reflection": [reflection(1, "go on")], "retry": [say("fly")] * 9}
    )
    ctx = rollout_context(policy, pool)

    async def played():
        solved, failed = await play(ctx, TASK, 0), await play(ctx, TASK, 1)
        return failed.trajectory, await study(ctx, SETTINGS, failed, [solved.trajectory, failed.trajectory])

    failed, studied = asyncio.run(played())
    assert set(studied.taught) == {"solution", "reflection"}
    for name, text in (("solution", ", ".join(WALKTHROUGH)), ("reflection", "go on")):
        taught = studied.taught[name]
        assert text in taught.hint and failed.hint == ""
        assert [turn.response_ids for turn in taught.turns] == [turn.response_ids for turn in failed.turns]
        assert taught.turns[0].teacher_prompt_ids and failed.turns[0].teacher_prompt_ids is None
    _, alone = studied_alone(pool, win)
    assert set(alone.taught) == set()


def studied_alone(pool, responses):
    """A success that the model calls one, with nobody beside it: no hint of either kind."""
    written = review(0, trajectory_outcome="success")
    return studied(pool, {"rollout": responses, "reflection": [written], "retry": []})


def test_a_hint_that_names_nothing_possible_is_not_counted(pool):
    fly = [say("fly")] * 9
    attempt, _ = studied(
        pool,
        {"rollout": [say("look"), say("fly")], "reflection": [reflection(1, "open the sky")], "retry": fly},
    )
    assert attempt.own.guided.followed is None and attempt.critic.guided.followed is False


@pytest.mark.parametrize(
    ("written", "invalid"), [("no report", "no_json"), (reflection(7, "go on"), "pivot_out_of_range")]
)
def test_an_invalid_reflection_leads_to_no_retry_of_its_own(pool, written, invalid):
    rollout, retries = [say("look"), say("fly")], [say("fly")] * 2
    attempt, policy = studied(pool, {"rollout": rollout, "reflection": [written], "retry": retries})
    assert attempt.own.invalid == invalid and attempt.own.guided is None and attempt.own.agrees is None
    assert attempt.own.right is None and attempt.own.text == written and policy.distilled is None
    assert attempt.critic is not None


@pytest.mark.parametrize(
    ("outcome", "right"), [("success", True), ("success_but_inefficient", True), ("failure", False)]
)
def test_a_success_is_reflected_on_too_and_retried_where_the_model_says_so(pool, outcome, right):
    win = [say(action) for action in WALKTHROUGH]
    written = review(0, trajectory_outcome=outcome)
    attempt, policy = studied(pool, {"rollout": win, "reflection": [written], "retry": win * 2})
    assert attempt.success and attempt.critic is None and attempt.own.right is right
    assert (attempt.actions, attempt.shown) == (len(WALKTHROUGH), len(WALKTHROUGH))
    assert (attempt.own.guided is None) == (policy.distilled is None) == (outcome == "success")


@pytest.mark.parametrize(
    ("env", "action", "names"),
    [
        ("alfworld", "go to dresser 1", ["dresser 1"]),
        ("alfworld", "look", []),
        ("webshop", "click[b0419]", ["b0419"]),
        ("webshop", "click[buy now]", []),
        ("webshop", "search[red wool scarf]", ["red", "wool", "scarf"]),
        ("scienceworld", "focus on dove egg", ["dove egg"]),
        ("scienceworld", "move flower pot 8 to green box", ["flower pot 8", "green box"]),
        ("scienceworld", "look around", []),
    ],
)
def test_the_names_in_an_action_are_what_must_be_copied(env, action, names):
    assert find_environment(env).dialogue("compact", 10).names(action) == names


@pytest.mark.parametrize(
    ("env", "action", "admissible", "possible"),
    [
        ("alfworld", "go to desk 1", ("go to desk 1",), True),
        ("alfworld", "go to desk 2", ("go to desk 1",), False),
        ("webshop", "search[red scarf]", ("search[keywords]",), True),
        ("webshop", "search[red scarf]", ("click[b1]",), False),
        ("webshop", "click[b1]", ("click[b1]",), True),
        ("scienceworld", "focus on dove egg", (), True),
        ("scienceworld", "look elsewhere", (), False),
    ],
)
def test_what_is_possible_is_what_the_environment_says(env, action, admissible, possible):
    dialogue = find_environment(env).dialogue("compact", 10)
    assert dialogue.possible(action, Observation("", admissible)) is possible


def test_a_suggestion_begins_with_its_first_action():
    assert first_action("go to desk 1, then take mug 1 from desk 1") == "go to desk 1"
    assert first_action("look elsewhere") == "look elsewhere"
