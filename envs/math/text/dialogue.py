"""Prompts and feedback of mathematics, in our words or in those of the paper's released code.

With ``prompts: released`` the texts are read from a clone of that code, which calls mathematics ``dapo``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from r3l.envs.base.answers import AnswerDialogue, Subject, WrongLine
from r3l.envs.math import MathOptions
from r3l.envs.math.engine.answer_engine import answer_in
from r3l.envs.math.task_sets import arithmetic
from r3l.envs.math.text import gsm8k_demonstrations

from r3l.core.environment import Observation, StopReason, Style
from r3l.core.errors import ConfigError
from r3l.core.task import Task
from r3l.core.text import Message
from r3l.released.prompts import ReleasedPrompts
from r3l.released.texts import Text, texts

SYSTEM = (
    "Solve the problem. Reason step by step, one step a line, between <think> and </think>. "
    "Then give the final answer alone, as \\boxed{answer}, between <answer> and </answer>."
)
EXAMPLE = (
    r"""You solve mathematical problems step by step.

Form of a response; both tags are needed, in this order:
<think>your reasoning, step by step</think>
<answer>the final answer</answer>

1. Read the problem carefully.
2. Show your reasoning inside <think> </think>, step by step.
3. Give the final answer inside <answer> </answer>.
4. Numbers are given exactly.
5. Where the problem wants an answer in a certain form (\boxed{}, for example), use it.

An example. Problem: "What is the sum of all positive multiples of 4 that are less than 50?"

<think>
The multiples are 4, 8, 12, ..., 48: an arithmetic sequence from 4 to 48 with a difference of 4.

How many are there?
48 = 4 + (n - 1) * 4
44 = (n - 1) * 4
n - 1 = 11
n = 12

Their sum is 12 * (4 + 48) / 2 = 6 * 52 = 312.
</think>
<answer>\boxed{312}</answer>

"""
    "Be thorough, show all steps that matter, check what you compute, and give the final answer clearly "
    "inside its tags."
)
REMINDER = """Now {what}.
First reason step by step about where things stand, inside <think> </think>.
Then give your final answer inside <answer> </answer>."""
BOXED = (
    "Please reason step by step, and put your final answer within \\boxed{}."  # as Qwen's own evaluation asks
)


def first_wrong_line(task: Task, lines: Sequence[str]) -> WrongLine | None:
    """The first wrong line of a response to a generated problem, or to a GSM8K problem with ``steps``.

    None if there is none, and for other problems.
    """
    if "steps" in task.payload:
        return gsm8k_demonstrations.first_wrong_line(task, lines)
    return arithmetic.first_wrong_line(task, lines)


SUBJECT = Subject("mathematics", SYSTEM, first_wrong_line)
RELEASED_SYSTEM = "math_system"


def create(style: Style, max_turns: int, options: MathOptions) -> AnswerDialogue:
    """The dialogue for a prompt style: ``full``, ``compact`` or ``released``.

    In the full style ``options.ask`` names the form in which the answer is wanted. Raises ConfigError for
    ``released`` without a clone of the released code, or with the option ``turns: segments``.
    """
    if style == "released":
        return ReleasedMathDialogue(SUBJECT, style, max_turns, options)
    system = {"boxed_system": BOXED, "example": EXAMPLE}.get(options.ask, SYSTEM)
    kind = {"boxed": BoxedDialogue, "example": ExampleDialogue}.get(options.ask, AnswerDialogue)
    return kind(replace(SUBJECT, system=system), style, max_turns, options)


class ExampleDialogue(AnswerDialogue):
    """The dialogue of the paper's released code, in our words.

    With several attempts each message ends with a reminder of the form, and feedback repeats the wrong
    answer.
    """

    def opening(self, task: Task, first: Observation) -> list[Message]:
        *before, problem = super().opening(task, first)
        if self.style == "compact" or self.max_turns == 1:
            return [*before, problem]
        return [
            *before,
            Message("user", f"{problem.content}\n\n{REMINDER.format(what='solve this problem')}"),
        ]

    def following(self, first: Observation, actions: Sequence[str], now: Observation) -> Message | None:
        if self.style == "compact" or not now.text:
            return super().following(first, actions, now)
        answer = answer_in(actions[-1])
        said = (
            "The form of that response is wrong: <think>...</think> and <answer>...</answer> are both needed."
        )
        if answer is not None:
            said = f"That is wrong: {answer} is not the answer. Try again."
        return Message("user", f"Feedback: {said}\n\n{REMINDER.format(what='try again')}")


class BoxedDialogue(AnswerDialogue):
    """One user message: the problem, followed by the request for a boxed answer.

    In the compact style it is the problem alone.
    """

    def opening(self, task: Task, first: Observation) -> list[Message]:
        return [Message("user", first.text if self.style == "compact" else f"{first.text}\n\n{BOXED}")]


class MathPrompts(ReleasedPrompts):
    """Prompts of the paper's released code for mathematics.

    Its critiques, logs and reminders differ from those for other environments.
    """

    def critique(self, log: str, reward: float) -> list[Message]:
        """The messages that ask for a critique of a logged episode: a system message, then the user message.

        In the released code, only mathematics has the system message.
        """
        file = f"{self._folder}/critique_grpo_workflow.py"
        words = [text.fill({}) for text in texts(file, "generate_critique", used="responses")]
        role = words[words.index("system") + 1]
        return [Message("system", role), *super().critique(log, reward)]

    def reminder(self, feedback: str) -> str:
        """The text of ``feedback`` between two attempts, with a reminder of the format."""
        (words,) = self.texts("format_dapo_prompt", "feedback", used="return")
        return words.fill({"feedback": feedback})

    def closed(self, feedback: str) -> str:
        """The last message of an episode with the closing ``feedback``.

        A response without an answer gets the reminder even after the last attempt.
        """
        if feedback == self.no_answer():
            return self.reminder(feedback)
        return super().closed(feedback)

    def no_answer(self) -> str:
        """The feedback on a response without an answer."""
        (words,) = self.texts("first_rollout", used="feedback")
        return words.fill({})

    def _log_lines(self, role: str) -> tuple[Text, ...]:
        function = "format_trajectory_for_reflection"
        content = Text(((True, "content"),))
        if role == "system":
            return self.texts(function, "content")
        user, assistant = self.texts(function, "step_counter")
        return (user if role == "user" else assistant, content)


class ReleasedMathDialogue(AnswerDialogue):
    """The dialogue in the texts of the paper's released code.

    Raises ConfigError without a clone of that code, and for the option ``turns: segments``, which it lacks.
    """

    styles: Sequence[Style] = ("released",)
    release: MathPrompts

    def __init__(self, subject: Subject, style: Style, max_turns: int, options: MathOptions) -> None:
        if options.turns != "whole":
            raise ConfigError(
                "prompts is 'released' and option 'turns' is 'segments', but the release knows complete "
                "responses only; --set env_settings.options.turns=whole"
            )
        super().__init__(subject, style, max_turns, options)
        self.release = MathPrompts("dapo")
        self.release.template(RELEASED_SYSTEM)  # raises ConfigError without a clone, before the run starts

    def opening(self, task: Task, first: Observation) -> list[Message]:
        """The system prompt, and the problem with a reminder of the format."""
        (words,) = self.release.texts("format_dapo_prompt", "prompt", used="return")
        user = words.fill({"prompt": first.text})
        return [Message("system", self.release.template(RELEASED_SYSTEM)), Message("user", user)]

    def following(self, first: Observation, actions: Sequence[str], now: Observation) -> Message:
        """The user message after a wrong or missing answer: feedback, and a reminder of the format."""
        return Message("user", self.release.reminder(self._feedback(actions[-1], solved=False, last=False)))

    def closing(
        self, reward: float, success: bool, turns: int, error: StopReason | None, response: str = ""
    ) -> str:
        """The released code's feedback on the last response, for the prompt of a reflection or critique.

        Empty if the episode ended because the context was full.
        """
        if error is StopReason.CONTEXT:
            return ""
        return self._feedback(response, success, last=turns >= self.max_turns)

    def _feedback(self, response: str, solved: bool, last: bool) -> str:
        answer = answer_in(response)
        if answer is None:
            return self.release.no_answer()
        right, wrong, wrong_at_last = self.release.texts("first_rollout", "predicted_answer", used="feedback")
        if solved:
            words = right
        else:
            words = wrong_at_last if last else wrong
        return words.fill({"predicted_answer": answer})
