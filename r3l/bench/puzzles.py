"""How fast problems are made, answers judged and criticised; a problem is the bench's reset, a judgement its step."""

from __future__ import annotations

from typing import Any

import psutil

from r3l.bench.engines import headline, machine, timed
from r3l.core.errors import ConfigError
from r3l.core.seeds import generator
from r3l.envs.puzzles.engine import puzzle
from r3l.envs.puzzles.tasks import definition

DEFAULT = 200  # problems, each with a right and a wrong answer


def run(task_set: str, *, tasks: int | None = None, seed: int = 0) -> dict[str, Any]:
    """Make ``tasks`` fresh problems of a task set's kind, then judge and criticise two answers to each.

    Called by ``r3l bench env``. ``items_per_s`` has the rates of generation, verification, critique, worked solution.
    """
    count = DEFAULT if tasks is None else tasks
    if count < 1:
        raise ConfigError("--tasks is 0; ask for at least one problem")
    defined = definition(task_set.partition("/")[0])
    kind = puzzle(defined.puzzle)
    difficulty = kind.difficulty.model_validate(dict(defined.difficulty))
    kind.generate(0, difficulty)  # what is imported with the first problem is no part of a problem's time
    making, problems = timed(lambda: [kind.generate(k, difficulty) for k in range(1, count + 1)])
    working, attempts = timed(
        lambda: [kind.attempt(problems[k].data, generator("bench", seed, k), skill=0) for k in range(count)]
    )
    answers = [(p.data, text) for p, a in zip(problems, attempts, strict=True) for text in (p.answer, a.answer)]
    judging, verdicts = timed(lambda: [kind.verify(data, text) for data, text in answers])
    criticising, _ = timed(lambda: [kind.critique(data, text) for data, text in answers])
    resident = psutil.Process().memory_info().rss / 1e6
    return {
        **headline(count, making, len(answers), judging, resident),
        "puzzle": kind.name,
        "tasks": count,
        "seed": seed,
        "right": sum(verdicts),
        "items_per_s": {
            "generation": count / making,
            "verification": len(answers) / judging,
            "critique": len(answers) / criticising,
            "erring_attempt": count / working,
        },
        "machine": machine(),
    }
