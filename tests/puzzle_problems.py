"""Problems of every puzzle and size to test on, made by index."""

import json
from functools import lru_cache

from r3l.envs.puzzles.engine.answer_engine import PUZZLES
from r3l.envs.puzzles.task_sets.tasks import TASK_SETS

SIZES = ("nano", "rltf")


@lru_cache(maxsize=4096)
def generated(name, size, index):
    """Problem ``index`` of a task_set's set; a journey through JSON does not change its data."""
    kind = PUZZLES[name]
    problem = kind.generate(
        index, kind.difficulty.model_validate(dict(TASK_SETS.definition(f"{name}_{size}").difficulty))
    )
    assert json.loads(json.dumps(problem.data)) == problem.data
    return problem
