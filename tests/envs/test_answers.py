"""Problems with one answer: lines as turns, attempts, penalties, and a retry that keeps the tokens of earlier
lines."""

import asyncio
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from r3l.envs.base.answers import (
    WRONG,
    AnswerDialogue,
    AnswerEngine,
    AnswerGrade,
    AnswerOptions,
    Subject,
    WrongLine,
)
from r3l.envs.registry import find_environment
from scripted import Scripted

from r3l.core.environment import Critique, Outcome, Transcript
from r3l.core.errors import ConfigError, EngineError
from r3l.core.policy import FinishReason, Sampling
from r3l.core.rollout import RolloutContext, play
from r3l.core.task import Task
from r3l.processes.barrier import together
from r3l.processes.pool import EnvironmentPool
from r3l.processes.worker import RecordedEnvironment
from r3l.retry import Restart, RetrySettings, retry

TASK = Task("t", "math", "test", "", {"problem": "What is 2 + 3 + 4?", "answer": "9"})


def grade(task, response):
    """Grade the last word of a response; an empty response has no answer."""
    words = response.split()
    return AnswerGrade(words[-1:] == [task.payload["answer"]], words[-1] if words else None)


def engine(**options):
    return AnswerEngine(AnswerOptions(**options), grade)


def outcome(now):
    return now.text, now.reward, now.done, now.success


def test_a_line_break_goes_on_and_anything_else_ends_the_response():
    e = engine()
    assert e.reset(TASK).text == "What is 2 + 3 + 4?"
    assert outcome(e.step("2 + 3 = 5\n")) == ("", 0.0, False, False)
    assert outcome(e.step("9")) == ("", 1.0, True, True)
    e.reset(TASK)
    e.step("9\n")
    assert outcome(e.step("")) == ("", 1.0, True, True)  # the end came after the line break
    whole = engine(turns="whole")
    whole.reset(TASK)
    assert whole.step("so 9\n").success


def test_attempts_are_told_that_they_were_wrong():
    e = engine(attempts=3)
    e.reset(TASK)
    assert outcome(e.step("8")) == (WRONG, 0.0, False, False)
    e.step("let me see\n")
    assert outcome(e.step("7")) == (WRONG, 0.0, False, False)
    assert outcome(e.step("6")) == ("", 0.0, True, False)


def test_a_response_without_an_answer_loses_the_penalty_and_so_does_a_cut_off_one():
    e = engine(format_penalty=0.1)
    assert e.reset(TASK).invalid_action_reward == -0.1
    assert e.step("a line\n").invalid_action_reward == -0.1
    e.reset(TASK)
    assert outcome(e.step("")) == ("", -0.1, True, False)
    e.reset(TASK)
    assert outcome(e.step("8")) == ("", 0.0, True, False)


def test_step_before_reset_is_refused_and_options_are_checked():
    with pytest.raises(EngineError, match="before a successful reset"):
        engine().step("9")
    with pytest.raises(ConfigError, match=r"math\.attempts is 0"):
        find_environment("math").create({"attempts": 0})


@given(st.lists(st.sampled_from(["a\n", "9\n", "8", "9", ""]), max_size=8), st.integers(1, 3), st.data())
def test_every_turn_is_restored_exactly(lines, attempts, data):
    recorded = RecordedEnvironment(engine(attempts=attempts, format_penalty=0.1))
    seen = [recorded.reset(TASK)]
    for line in lines:
        if seen[-1].done:
            break
        seen.append(recorded.step(line))
    pivot = data.draw(st.integers(0, len(seen) - 1))
    again = [recorded.rewind(pivot), *(recorded.step(line) for line in lines[pivot : len(seen) - 1])]
    assert again == seen[pivot:]


# A retry in the middle of a response, with the text side and the loop of the program.
def dialogue(critic=lambda task, lines: None, turns="segments"):
    return AnswerDialogue(Subject("sums", "Answer.", critic), "compact", 6, AnswerOptions(turns=turns))


def rollout_context(policy, turns="segments", extraction="flexible"):
    pool = EnvironmentPool(find_environment("math"), 0, {"extraction": extraction, "turns": turns})
    words = dialogue(turns=turns)
    return RolloutContext(policy, pool, words, Sampling(stop=words.stop), Sampling(), ("t",), together), pool


def test_a_retry_keeps_the_lines_before_the_pivot_and_its_distilled_twin_is_one_unbroken_response():
    policy = Scripted(
        {"rollout": ["2 + 3 = 5\n", "5 + 4 = 8\n", "\\boxed{8}"], "retry": ["5 + 4 = 9\n", "\\boxed{9}"]}
    )
    ctx, pool = rollout_context(policy)

    async def both():
        base = await play(ctx, TASK, 0)
        return base.trajectory, await retry(ctx, base, Restart(1, "Hint: add 4."), RetrySettings())

    base, again = asyncio.run(both())
    pool.close()
    assert (base.success, base.stop_reason, base.feedback) == (False, "done", "not correct. 3 lines.")
    assert again.guided.success and again.guided.reward == 1.0
    assert [turn.response for turn in again.distilled.turns] == ["2 + 3 = 5\n", "5 + 4 = 9\n", "\\boxed{9}"]
    # shared: the prompt and the first line, token by token; then nothing but what was sampled
    assert again.distilled.turns[0] == base.turns[0]
    assert [turn.prompt_ids for turn in again.distilled.turns[1:]] == [(), ()]
    assert [len(turn.prompt_ids) for turn in again.guided.turns] == [1, 1, 0]  # the guidance is a message
    prompts = [[m.content for m in messages] for _, messages in policy.asked]
    assert prompts == [["What is 2 + 3 + 4?"], [], [], ["Hint: add 4."], []]
    # credit: exactly the shared tokens carry no gradient
    assert again.distilled.credit_mask().tolist() == [0, 0, 0, 1, 1, 1, 1]


@pytest.mark.parametrize(
    ("turns", "response", "ended"),
    [
        ("segments", ["2 + 3 = 5\n", "and so on and on"], "truncated"),
        ("whole", ["2 + 3 = 5, and so on and on"], "truncated"),  # no answer yet: not a wrong one
        ("whole", ["\\boxed{8}, because"], "done"),
        ("whole", ["\\boxed{9}, because"], "success"),
        ("whole", ["It is nine."], "format"),
    ],
)
def test_a_response_without_an_answer_is_no_wrong_answer(turns, response, ended):
    policy = Scripted({"rollout": response})
    original = policy.open

    def opened():
        dialog = original()
        respond = dialog.respond

        async def cut(sampling, address):
            done = await respond(sampling, address)
            ends = {"\n": FinishReason.LINE, ".": FinishReason.END}
            return replace(done, finish_reason=ends.get(done.text[-1], FinishReason.LENGTH))

        dialog.respond = cut
        return dialog

    policy.open = opened
    ctx, pool = rollout_context(policy, turns, "strict")
    trajectory = asyncio.run(play(ctx, TASK, 0)).trajectory
    pool.close()
    assert (trajectory.stop_reason, trajectory.success) == (ended, ended == "success")
    assert len(trajectory.turns) == len(response)


def test_the_critics_finding_is_a_critique():
    with_critic = dialogue(lambda task, lines: WrongLine(1, "wrong result", "compute 5 + 4"))
    lines = (("2 + 3 = 5\n", ""), ("5 + 4 = 8\n", ""), ("8", ""))
    critique = with_critic.critique(Transcript(TASK, "", lines, False, None))
    assert critique == Critique(Outcome.FAILURE, "line 1 is wrong", "wrong result", "compute 5 + 4", 1)
    assert dialogue().critique(Transcript(TASK, "", (("8", ""),), False, None)) is None
    assert with_critic.critique(Transcript(TASK, "", (("9", ""),), True, None)).outcome == "success"
