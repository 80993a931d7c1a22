"""Mathematics: problems with a final answer, real graders, one attempt or the paper's three."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from r3l.envs.base.answers import AnswerOptions
from r3l.envs.base.package import ConstantAnswer, EnvironmentPackage
from r3l.envs.math.task_sets import datasets

from r3l.core.environment import Dialogue, Environment, Style
from r3l.core.option import option

if TYPE_CHECKING:
    from r3l.envs.base.demonstrations import AnswerDemonstrator
    from r3l.envs.math.task_sets.tasks import MathTaskSets

Extraction = Literal["strict", "flexible", "released"]


class MathOptions(AnswerOptions):
    """Settings of mathematics.

    ``extraction``: the rule that finds the answer in a response (``r3l.envs.base.answers``). Its value
    ``released``, as of ``grader``, is the rule of the paper's released code with its defects
    (``r3l.envs.math.engine.answer_engine``). ``ask``: the form of response that full prompts ask for.
    ``tags``: a thought and the answer, each in tags; ``example``: the same with an example, as in the
    released code; ``boxed``: free text with the answer in a box at its end, as such models are mostly
    evaluated; ``boxed_system``: the same, but the request is in a system message.
    """

    ask: Literal["tags", "example", "boxed", "boxed_system"] = option(
        "tags",
        "how full prompts ask for the answer",
        "our choice: as in training; boxed is the paper's other setting",
    )
    extraction: Extraction = option(
        "strict", "how the answer is read", "our choice: one rule in training and evaluation"
    )
    grader: Literal["ours", "released"] = option(
        "ours", "who compares it with the gold one", "our choice: the released one rejects right answers"
    )


class Math(EnvironmentPackage[MathOptions]):
    """Mathematics: generated word problems (tier nano), and published sets such as GSM8K and MATH-500."""

    name = "math"
    options = MathOptions
    extra = "math"
    decisive = ("math-verify", "latex2sympy2-extended")  # the grader

    def make_engine(self, options: MathOptions) -> Environment:
        from r3l.envs.math.engine.answer_engine import create

        return create(options)

    def make_dialogue(self, style: Style, max_turns: int, options: MathOptions) -> Dialogue:
        from r3l.envs.math.text.dialogue import create

        return create(style, max_turns, options)

    def task_sets(self) -> MathTaskSets:
        from r3l.envs.math.task_sets.tasks import TASK_SETS

        return TASK_SETS

    def make_demonstrator(self, task_set: str) -> AnswerDemonstrator:
        from r3l.envs.base.demonstrations import AnswerDemonstrator
        from r3l.envs.math.task_sets.arithmetic import solution, write
        from r3l.envs.math.text import gsm8k_demonstrations

        if task_set == gsm8k_demonstrations.NAME:
            gsm8k_demonstrations.tasks()  # raises DataError for missing data, before the first demonstration
            return AnswerDemonstrator(
                self,
                gsm8k_demonstrations.task,
                True,
                gsm8k_demonstrations.solution,
                gsm8k_demonstrations.write,
                imitates_errors=False,
            )
        sets = self.task_sets()
        sets.definition(task_set)  # raises ConfigError for an unknown name, before the first demonstration
        return AnswerDemonstrator(
            self, lambda index: sets.spare_task(task_set, index), False, solution, write
        )

    def constant_answer(self, task_set: str) -> ConstantAnswer:
        return self.task_sets().constant_answer(task_set)

    def warning(self, task_set: str) -> str:
        seen = datasets.frozen().get(task_set.partition("/")[0], {}).get("in_dapo", ())
        if not seen:
            return ""
        return f"{len(seen)} of its problems are in DAPO-Math-17k: {', '.join(seen)}"


ENVIRONMENT = Math()
