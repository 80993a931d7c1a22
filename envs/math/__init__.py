"""Mathematics: problems with a final answer, real graders, one attempt or the paper's three."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from r3l.envs.base.package import BenchmarkOptions, ConstantAnswer, Demonstrator, EnvironmentPackage, TaskSets
from r3l.envs.math.options import MathOptions

from r3l.core.benchmark import Benchmark
from r3l.core.environment import Dialogue, Environment, Style


class Math(EnvironmentPackage[MathOptions]):
    """Its question sets are those that papers evaluate on."""

    name, options, extra = "math", MathOptions, "math"
    decisive = ("math-verify", "latex2sympy2-extended")  # the grader

    def make_engine(self, options: MathOptions) -> Environment:
        from r3l.envs.math.engine import create

        return create(options)

    def make_dialogue(self, style: Style, max_turns: int, options: MathOptions) -> Dialogue:
        from r3l.envs.math.dialogue import create

        return create(style, max_turns, options)

    def task_sets(self) -> TaskSets:
        from r3l.envs.math import task_sets

        return task_sets

    def build_task_set(self, name: str) -> Path:
        from r3l.envs.math import validate

        return validate.build(name)

    def constant_answer(self, task_set: str) -> ConstantAnswer:
        from r3l.envs.math import task_sets

        return task_sets.constant_answer(task_set)

    def demonstrator(self) -> Demonstrator:
        return self.demonstrator_of(())

    def demonstrator_of(self, task_sets: Sequence[str]) -> Demonstrator:
        from r3l.envs.math.demonstrations import demonstrator_of

        return demonstrator_of(self.kind_of_task(task_sets))

    def benchmark(self, options: BenchmarkOptions) -> Benchmark:
        from r3l.envs.math.benchmarks import MathBenchmark

        self.check_installed()
        return MathBenchmark(options.protocol, options.prompt, options.oracle, options.data)
