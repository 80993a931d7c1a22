"""Verdicts on answers to puzzles: RLTF's verifiers from the response on, R3L's of countdown from the answer on."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache, partial
from types import SimpleNamespace

from r3l.core.seeds import generator
from r3l.core.task import Task
from r3l.envs.puzzles import PuzzleOptions
from r3l.envs.puzzles.base import Data
from r3l.envs.puzzles.countdown import Countdown
from r3l.envs.puzzles.engine import response_grader
from r3l.envs.puzzles.knights_knaves import render, solve
from r3l.envs.puzzles.released import answer_in
from r3l.envs.puzzles.shortest_path import search
from r3l.envs.puzzles.tasks import TASK_SETS
from r3l.original.clones import R3L, RLTF
from r3l.released.check import Case, Check, Code, Namespace, Value, pick
from r3l.released.checks import puzzle_answers as answers

CASES = 6000  # of each puzzle; our choice
TASKS = 120  # of each task set that they are about; our choice
ENVS = "tinker_cookbook/recipes/rltf/envs"
GRADING = "tinker_cookbook.recipes.rltf.envs.math.math_grading"  # what the verifiers import when they are called
ONLY_EVAL = "RLTF defect 8"
Write = Callable[[Data, answers.Rng], str]


@cache
def tasks(name: str) -> list[Task]:
    """Test tasks of a puzzle, small ones and those of RLTF's size."""
    return [task for size in ("nano", "rltf") for task in TASK_SETS.tasks(f"{name}_{size}/test")[:TASKS]]


def responses(name: str, write: Write, cases: int = CASES) -> Iterator[Case]:
    """Responses with an answer in a box, or nearly so."""
    for k in range(cases):
        rng = generator("released", name, k)
        data = pick(rng, tasks(name)).payload["data"]
        yield {"puzzle": name, "data": data, "response": pick(rng, answers.BOXES) % write(data, rng)}


def equations() -> Iterator[Case]:
    """Answers to countdown: half to its problems, half with powers and fractions that nearly come to the target."""
    for k in range(CASES):
        rng = generator("released", "countdown", k)
        data = pick(rng, tasks("countdown")).payload["data"]
        written = {"answer": answers.equation_answer(data, rng)} if k % 2 else answers.near_answer(rng)
        yield {key: data[key] for key in ("numbers", "target")} | written


def ours(case: Case) -> Value:
    """Our verdict under the profile's options, and whether there was an answer."""
    task = Task("case", "puzzles", "test", payload={"puzzle": case["puzzle"], "data": case["data"]})
    grade = response_grader(PuzzleOptions(verifier="released"))(task, case["response"])
    return {"correct": grade.correct, "format": grade.answer is not None}


def _verdict(owner: str, problem: SimpleNamespace, released: Namespace, response: str) -> Value:
    sys.modules[GRADING] = SimpleNamespace(extract_boxed=released["extract_boxed"])  # type: ignore[assignment]
    verifier = released[owner]
    return {
        "correct": verifier.check_answer(problem, response),
        "format": verifier.check_format(problem, response),
    }


def path(released: Namespace, case: Case) -> Value:
    """RLTF's verdict on a path; its gold answer is the first that its search finds."""
    grid = case["data"]["grid"]
    start, dest = search(grid).start, search(grid).goal
    generator_of_grids = released["ShortestPathProblemGenerator"](0)
    found = generator_of_grids._get_answer([list(row) for row in grid], start, dest)
    gold = "infeasible" if found is None else ", ".join(found)
    problem = SimpleNamespace(answer_text=gold, grid=[list(row) for row in grid], start=start, dest=dest)
    return _verdict("ShortestPathEnv", problem, released, case["response"])


def matrix(released: Namespace, case: Case) -> Value:
    """RLTF's verdict on a matrix."""
    solution = released["compute_distances"](case["data"]["matrix"])
    problem = SimpleNamespace(solution_str=released["matrix_to_str"](solution))
    return _verdict("BinaryMatrixEnv", problem, released, case["response"])


def roles(released: Namespace, case: Case) -> Value:
    """RLTF's verdict on roles; the gold answer is worded as in the problem."""
    problem = SimpleNamespace(solution_text=render(case["data"], solve(case["data"])))
    return _verdict("KnightsAndKnavesEnv", problem, released, case["response"])


def equation(released: Namespace, case: Case) -> Value:
    """R3L's verdict on an equation."""
    return bool(released["countdown_verify"](case["answer"], case["numbers"], case["target"]))


def explain_matrix(case: Case, ours: Value, theirs: Value) -> str:
    """The release evaluates what is no literal."""
    try:
        ast.literal_eval(answer_in(case["response"]) or "")
    except (ValueError, SyntaxError):
        return ONLY_EVAL if theirs["correct"] and theirs["format"] == ours["format"] else ""
    return ""


def _rltf(
    name: str, owner: str, extra: tuple[str, ...], theirs: Callable[[Namespace, Case], Value], write: Write
) -> Check:
    code = (
        Code(f"{ENVS}/math/math_grading.py", ("extract_boxed",)),
        Code(f"{ENVS}/{name}/{name}_env.py", (owner, *extra)),
    )
    return Check("puzzles", name, RLTF, code, partial(responses, name, write), theirs, ours)


PATH = ("ShortestPathProblemGenerator", "normalize_path_answer", "check_shortest_path_answer")
MATRIX = ("compute_distances", "matrix_to_str")
ROLES = ("KNIGHT_KNAVE_PAIRS", "VALID_ROLES", "normalize_answer")
COUNTDOWN = Check(
    "puzzles",
    "countdown",
    R3L,
    (
        Code("trinity/utils/eval_utils.py", ("validate_equation", "evaluate_equation")),
        Code("trinity/common/workflows/envs/R3L/countdown/utils.py", ("countdown_verify",)),
    ),
    equations,
    equation,
    lambda case: Countdown().verify_released(case, case["answer"]),
)
_MATRICES = _rltf("binary_matrix", "BinaryMatrixEnv", MATRIX, matrix, answers.matrix_answer)
CHECKS = (
    _rltf("shortest_path", "ShortestPathEnv", PATH, path, answers.path_answer),
    _MATRICES,
    replace(
        _MATRICES,
        name="binary_matrix, no literals",
        cases=partial(responses, "binary_matrix", answers.expression_answer, 500),
        explain=explain_matrix,
    ),
    _rltf("knights_knaves", "KnightsAndKnavesEnv", ROLES, roles, answers.roles_answer),
    COUNTDOWN,
)
