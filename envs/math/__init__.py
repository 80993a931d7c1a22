"""Mathematics: problems with a final answer, real graders, one attempt or the paper's three."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from r3l.envs.base.answers import AnswerOptions
from r3l.envs.base.package import BenchmarkOptions, ConstantAnswer, EnvironmentPackage

from r3l.core.benchmark import Benchmark
from r3l.core.environment import Dialogue, Environment, Style
from r3l.core.option import option

if TYPE_CHECKING:
    from r3l.envs.base.demonstrations import AnswerDemonstrator
    from r3l.envs.math.tasks import MathTaskSets

Extraction = Literal["strict", "flexible", "released"]


class MathOptions(AnswerOptions):
    """``extraction``: which rule reads the answer in a response (``r3l.envs.base.answers``).

    ``released``, of both: the release's own rule, defects included (``r3l.envs.math.engine``).
    """

    extraction: Extraction = option(
        "strict", "how the answer is read", "our choice: one rule in training and evaluation"
    )
    grader: Literal["ours", "released"] = option(
        "ours", "who compares it with the gold one", "our choice: the released one rejects right answers"
    )


class Math(EnvironmentPackage[MathOptions]):
    """Its question sets are those that papers evaluate on."""

    name, options, extra = "math", MathOptions, "math"

    def make_engine(self, options: MathOptions) -> Environment:
        from r3l.envs.math.engine import create

        return create(options)

    def make_dialogue(self, style: Style, max_turns: int, options: MathOptions) -> Dialogue:
        from r3l.envs.math.dialogue import create

        return create(style, max_turns, options)

    def task_sets(self) -> MathTaskSets:
        from r3l.envs.math.tasks import TASK_SETS

        return TASK_SETS

    def make_demonstrator(self, task_set: str) -> AnswerDemonstrator:
        from r3l.envs.base.demonstrations import AnswerDemonstrator
        from r3l.envs.math.arithmetic import solution, write

        sets = self.task_sets()
        sets.definition(task_set)  # an unknown one is an error before anything is played
        return AnswerDemonstrator(self, lambda index: sets.spare_task(task_set, index), False, solution, write)

    def constant_answer(self, task_set: str) -> ConstantAnswer:
        return self.task_sets().constant_answer(task_set)

    def benchmark(self, options: BenchmarkOptions) -> Benchmark:
        from r3l.envs.math.benchmarks import MathBenchmark

        self.check_installed()
        return MathBenchmark(options.protocol, options.prompt, options.oracle, options.data)


ENVIRONMENT = Math()
