"""The setting ``feedback`` names the writer, for every method with feedback: real ALFWorld, scripted
policy.
"""

import json
from dataclasses import replace

import pytest
from exploration import LOSE, WIN, played, review
from scripted import TASK

from r3l.core.policy import Completion, FinishReason, JudgePrompts, Usage
from r3l.feedback.feedback import InvalidFeedback

METHODS = {  # in which one rollout fails and gets feedback: its kind
    "r3l@group_size=2": "reflection",
    "reflect_grpo@group_size=0,reflected_rollouts=1": "reflection",
    "critique_grpo@group_size=1": "critique",
    "rltf_grpo@group_size=1": "critique",
    "rltf_fm@group_size=1": "critique",
}


class ScriptedJudge:
    """A judge that writes ``text`` and records its requests."""

    def __init__(self, text, prompts=JudgePrompts.INSTRUCTIONS, reason=FinishReason.END):
        self.text, self.prompts, self.reason, self.asked = text, prompts, reason, []

    async def write(self, messages, address):
        self.asked.append((address, messages))
        return Completion(self.text, (), (), (), self.reason, Usage(50, 7))


def explore(name, script, judge=None, answer=None):
    """(groups, rollout context) of one task with the gold answer ``answer``."""
    payload = TASK.payload | ({"answer": answer} if answer else {})
    return played(name, script, judge, replace(TASK, payload=payload))[1:]


def written(ctx, kind):
    """Text and parsed content of every piece of feedback."""
    return [(t.turns[-1].response, t.parsed) for t in ctx.trajectories if t.kind == kind]


@pytest.mark.parametrize("name", METHODS)
def test_the_environment_writes_for_every_method(name):
    """ALFWorld's critic names turn 1, where ``fly`` was not an action: R3L's retry starts there."""
    kind = METHODS[name]
    _, ctx = explore(f"{name},feedback=environment", {"rollout": LOSE, "retry": WIN})
    ((text, parsed),) = written(ctx, kind)
    assert json.loads(text)["root_cause_analysis"] == "not possible there" and not isinstance(
        parsed, InvalidFeedback
    )
    assert ctx.counters[f"{kind}/by_environment"] == 1 == ctx.counters["retry/count"]
    assert ctx.counters["tokens/generated"] == ctx.counters["tokens/rollout"] + ctx.counters["tokens/retry"]


@pytest.mark.parametrize("name", METHODS)
def test_the_policy_writes_for_every_method(name):
    kind = METHODS[name]
    _, ctx = explore(f"{name},feedback=self", {"rollout": LOSE, kind: [review(1)], "retry": WIN})
    assert ctx.counters[f"{kind}/by_model"] == 1 == ctx.counters["retry/count"]
    assert ctx.counters[f"tokens/{kind}"] == 2


@pytest.mark.parametrize("name", METHODS)
def test_a_judge_writes_for_every_method(name):
    """The judge reads complete instructions around a log; its tokens are counted separately from the
    policy's.
    """
    kind, judge = METHODS[name], ScriptedJudge(review(1))
    _, ctx = explore(f"{name},feedback=judge", {"rollout": LOSE, "retry": WIN}, judge)
    ((address, messages),) = judge.asked
    assert address == ("t", kind, "judge", TASK.id, 0) and "Step 1: " in messages[-1].content
    assert [text for text, _ in written(ctx, kind)] == [judge.text]
    assert ctx.counters[f"{kind}/by_judge"] == 1 == ctx.counters["retry/count"]
    assert (ctx.counters["tokens/judge"], ctx.counters["prompt/judge"], ctx.counters[f"tokens/{kind}"]) == (
        7,
        50,
        0,
    )
    assert ctx.counters["tokens/generated"] == ctx.counters["tokens/rollout"] + ctx.counters["tokens/retry"]


def test_a_judge_of_our_own_reads_what_the_policy_would():
    judge = ScriptedJudge(review(1), JudgePrompts.AS_POLICY)
    _, ctx = explore("r3l@group_size=2,feedback=judge", {"rollout": LOSE, "retry": WIN}, judge)
    ((_, messages),) = judge.asked
    assert [m.role for m in messages] == ["user", "assistant", "user", "assistant", "user"]
    assert [m.content for m in messages if m.role == "assistant"] == LOSE
    assert messages[-1].content.endswith("Reflect.")


def test_what_a_judge_leaves_unfinished_guides_nothing():
    judge = ScriptedJudge("Do this", reason=FinishReason.LENGTH)
    _, ctx = explore("rltf_grpo@group_size=1,feedback=judge", {"rollout": LOSE}, judge)
    assert ctx.counters["critique/invalid/length"] == 1 and ctx.counters["retry/count"] == 0


@pytest.mark.parametrize(
    ("name", "kind"), [("r3l@group_size=2", "reflection"), ("critique_grpo@group_size=1", "critique")]
)
def test_a_teacher_that_tells_the_answer_is_dropped_and_a_model_that_found_it_is_not(name, kind):
    telling = review(1, improvement_suggestion="say xyzzy")
    _, ctx = explore(f"{name},feedback=judge", {"rollout": LOSE}, ScriptedJudge(telling), answer="Xyzzy")
    assert (ctx.counters["leak/told"], ctx.counters[f"{kind}/invalid/leak"], ctx.counters["retry/count"]) == (
        1,
        1,
        0,
    )
    assert written(ctx, kind) == [(telling, InvalidFeedback("leak"))]
    _, ctx = explore(
        f"{name},feedback=self", {"rollout": LOSE, kind: [telling], "retry": WIN}, answer="Xyzzy"
    )
    assert (ctx.counters["leak/told"], ctx.counters[f"{kind}/invalid/leak"], ctx.counters["retry/count"]) == (
        1,
        0,
        1,
    )


def test_a_model_that_was_shown_the_answer_is_a_teacher():
    telling = review(1, improvement_suggestion="say xyzzy")
    name = "r3l@group_size=2,reflection_sees=answer"
    _, ctx = explore(name, {"rollout": LOSE, "reflection": [telling]}, answer="xyzzy")
    assert (ctx.counters["reflection/invalid/leak"], ctx.counters["retry/count"]) == (1, 0)


def test_whatever_the_retry_reads_is_searched_for_the_answer():
    """A key of the report beyond those that were asked for; only the complete report has it."""
    telling = json.dumps(json.loads(review(1)) | {"note": "it is xyzzy"})
    for guidance, dropped in (("full_report", 1), ("suggestion", 0)):
        name = f"r3l@group_size=2,reflection_sees=answer,guidance={guidance}"
        script = {"rollout": LOSE, "reflection": [telling], "retry": WIN}
        _, ctx = explore(name, script, answer="xyzzy")
        assert (ctx.counters["reflection/invalid/leak"], ctx.counters["retry/count"]) == (
            dropped,
            1 - dropped,
        )


def test_quoting_is_no_leak():
    """The answer appears in the attempt: the leak is counted, but nothing is dropped."""
    judge = ScriptedJudge(review(1, improvement_suggestion="do not fly"))
    _, ctx = explore(
        "rltf_grpo@group_size=1,feedback=judge", {"rollout": LOSE, "retry": WIN}, judge, answer="fly"
    )
    assert (ctx.counters["leak/answer_stated"], ctx.counters["leak/quoted"], ctx.counters["leak/told"]) == (
        1,
        1,
        0,
    )
    assert ctx.counters["retry/count"] == 1


def test_self_criticism_of_rltf_is_what_feedback_modelling_imitates():
    script = {"rollout": LOSE, "critique": [review(1)], "retry": WIN}
    groups, _ = explore("rltf_fm@group_size=1,feedback=self", script)
    assert [t.turns[-1].response for t in groups[-1].trajectories] == [review(1)]
    assert groups[-1].objective == "sft"
