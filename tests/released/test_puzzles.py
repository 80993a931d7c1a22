"""Verdicts on answers to puzzles: RLTF's verifiers from the response on, R3L's of countdown from the answer on."""

from __future__ import annotations

import ast
import sys
from functools import cache
from types import SimpleNamespace

import pytest
from r3l.envs.puzzles import PuzzleOptions
from r3l.envs.puzzles.binary_matrix import distances
from r3l.envs.puzzles.countdown import Countdown
from r3l.envs.puzzles.engine import response_grader
from r3l.envs.puzzles.knights_knaves import render, solve
from r3l.envs.puzzles.released import answer_in
from r3l.envs.puzzles.shortest_path import MOVES, search
from r3l.envs.puzzles.tasks import TASK_SETS

from r3l.core.seeds import generator
from r3l.core.task import Task
from r3l.original.clones import R3L, RLTF
from tests.released.release import compare, definitions, pick

pytestmark = pytest.mark.released
ENVS = "tinker_cookbook/recipes/rltf/envs"
GRADING = "tinker_cookbook.recipes.rltf.envs.math.math_grading"  # what the verifiers import when they are called


BOXES = (
    *["\\boxed{%s}"] * 4,
    *("So the answer is \\boxed{%s}.", "\\boxed{1}, no: \\boxed{%s}", "\\boxed{%s} or \\boxed{}"),
    *("\\boxed{\\boxed{%s}}", "\\boxed{\\text{%s}}", "\\boxed {%s}", "\\boxed{%s}}", "{ \\boxed{%s}"),
    *("\\boxed %s", "\\boxed{%s", "%s", "\\fbox{%s}"),
)
NO_WAY = ("infeasible", "Infeasible.", "There is no path", "not possible", "unreachable", "", "I do not know")
AROUND_MOVES = ("%s", "%s", "%s.", "The path is %s", "[%s]", "Answer: %s!", "%s; no path is shorter")
BETWEEN_MOVES = (", ", ", ", " ", ",", "; ", " and ", "\n", ", then ", " -> ", "-", "/")
AROUND_ROLES = ("%s", "%s", "%s.", "I think %s", "(%s)", "\\text{%s}", "**%s**")
AROUND_EQUATION = ("%s", "%s", " %s", "%s\n", "(%s)", "%s = 7", "= %s", "-(-(%s))", "%s.", "%s + 0", "$%s$", "\\(%s\\)")
MATRICES = {
    "lines": lambda rows: "\n".join(" ".join(map(str, row)) for row in rows),
    "one line": lambda rows: " ".join(str(cell) for row in rows for cell in row),
    "commas": lambda rows: "\n".join(", ".join(map(str, row)) for row in rows),
    "list": str,
    "list on lines": lambda rows: "[\n" + ",\n".join(map(str, rows)) + ",\n]",
    "list after a space": lambda rows: f"  {rows}  ",
    "list of tuples": lambda rows: str([tuple(row) for row in rows]),
    "tuple": lambda rows: str(tuple(map(tuple, rows))),
    "tuple of lists": lambda rows: str(rows)[1:-1],
    "list of texts": lambda rows: str([" ".join(map(str, row)) for row in rows]),
    "flat list": lambda rows: str([cell for row in rows for cell in row]),
    "floats": lambda rows: str([[float(cell) for cell in row] for row in rows]),
    "deeper": lambda rows: str([rows]),
    "with a comment": lambda rows: f"{rows} # distances",
    "LaTeX": lambda rows: "\\begin{array}" + " \\\\ ".join(" & ".join(map(str, row)) for row in rows) + "\\end{array}",
    "open": lambda rows: str(rows)[:-1],
    "words": lambda rows: "I do not know",
}  # fmt: skip
EXPRESSIONS = {
    "repeated": lambda rows: f"{rows} * 1",
    "joined": lambda rows: f"{rows[:1]} + {rows[1:]}",
    "called": lambda rows: f"list({tuple(rows)})",
    "the verifier's own": lambda rows: "[row for row in self.solution_str.split()]",
}
WRITE_MOVE = (
    lambda _, move: move,
    lambda _, move: move[0],
    lambda _, move: move.upper(),
    lambda number, move: f"{number}. {move}",
    lambda _, move: f"'{move}'",
    lambda _, move: f"move {move}",
)


def path_answer(data, rng):
    """Moves: the shortest ones, others of that length, or changed ones, with letters, numbers and words about them."""
    moves = search(data["grid"]).path() or [pick(rng, list(MOVES)) for _ in range(rng.integers(1, 6))]
    if rng.random() < 0.4:
        place = int(rng.integers(len(moves)))
        moves = [*moves[:place], pick(rng, list(MOVES)), *moves[place + int(rng.integers(0, 2)) :]]
    if rng.random() < 0.25:
        return pick(rng, NO_WAY)
    write = pick(rng, WRITE_MOVE)
    text = pick(rng, BETWEEN_MOVES).join(write(number, move) for number, move in enumerate(moves, 1))
    return pick(rng, AROUND_MOVES) % text


def matrix_answer(data, rng):
    """Distances, some of them wrong, as lines, as Python has them, as LaTeX, and as nothing of the kind."""
    rows = distances(data["matrix"])
    if rng.random() < 0.3:
        rows[int(rng.integers(len(rows)))][int(rng.integers(len(rows)))] = int(rng.integers(0, 5))
    if rng.random() < 0.05:
        rows = rows[:-1]
    return pick(rng, tuple(MATRICES.values()))(rows)


def expression_answer(data, rng):
    """Right distances as Python that is no literal."""
    return pick(rng, tuple(EXPRESSIONS.values()))(distances(data["matrix"]))


def roles_answer(data, rng):
    """Roles, some of them wrong, missing, double or among other words."""
    roles = [role if rng.random() < 0.93 else not role for role in solve(data)]
    parts = render(data, roles).removesuffix(".").split(", ")
    if rng.random() < 0.1:
        parts = [parts[int(k)] for k in rng.permutation(len(parts))]
    if rng.random() < 0.1:
        parts = parts[:-1]
    if rng.random() < 0.1:
        parts = [*parts, pick(rng, parts)]
    if rng.random() < 0.1:
        parts = [*parts, pick(rng, ("Adam is a knight", "both lie", "maybe a fool", "and nobody else"))]
    text = pick(rng, (", ", ", ", " and ", "; ", "\n", " ", ". ", ") (", ",")).join(parts)
    changed = pick(rng, (text, text, text, text.lower(), text.upper(), text.replace(" is ", " = ")))
    return pick(rng, AROUND_ROLES) % changed


def equation_answer(data, rng):
    """Equations: the right one, others of the same numbers, and what only Python computes."""
    text = str(data["expression"])
    numbers = [str(number) for number in data["numbers"]]
    if rng.random() < 0.4:
        joined = [*numbers[:1]]
        for number in numbers[1:]:
            joined += [pick(rng, ("+", "-", "*", "/", "//", " + ", " - ")), number]
        text = "".join(joined)
    changes = (
        ("", ""), ("", ""), ("", ""), ("*", "×"), ("/", "÷"), ("/", "//"), (" ", ""), ("*", " * "),
        ("-", "−"), (numbers[0], numbers[0] + ".0"), (numbers[0], numbers[0] + "."), (numbers[0], "0" + numbers[0]),
        (numbers[0], "٣"), (numbers[0], f"{numbers[0]} {numbers[0]}"), (numbers[0], f"({numbers[0]})"), (" ", "\u00a0"),
    )  # fmt: skip
    old, new = pick(rng, changes)
    return pick(rng, AROUND_EQUATION) % (text.replace(old, new) if old else text)


def near_answer(rng):
    """Numbers, a target, and an equation with powers, roots or fractions that come to it, nearly or not."""
    a, b, c = (int(n) for n in rng.integers(1, 10, 3))
    equations = {
        f"{a}**{b}+{c}": a**b + c,
        f"({a}/{b})*{c}": a / b * c,
        f"{a}//{b}-{c}": a // b - c,
        f"((-{a})**({b}/{c}))": a,
        f"{a}.{b}*{c}": float(f"{a}.{b}") * c,
        f"{a}-{b}*-{c}": a + b * c,
        f"{a}({b}+{c})": a * (b + c),
        f"{a}/({b}-{b})+{c}": a,
        f"{a}+{b} {c}": a + b,
        f"...{a}{b}{c}": a,
    }
    equation = pick(rng, list(equations))
    off = pick(rng, (0.0, 0.0, 0.5, 1.0))
    return {"numbers": [a, b, c], "target": round(equations[equation] + off), "answer": equation}


@cache
def tasks(name):
    """Test tasks of a puzzle, small ones and those of RLTF's size."""
    return [task for size in ("nano", "rltf") for task in TASK_SETS.tasks(f"{name}_{size}/test")[:120]]


def responses(name, write, count):
    """Responses with an answer in a box, or nearly so."""
    for k in range(count):
        rng = generator("released", name, k)
        data = pick(rng, tasks(name)).payload["data"]
        yield {"puzzle": name, "data": data, "response": pick(rng, BOXES) % write(data, rng)}


def verdict(case):
    """Ours, and whether there was an answer."""
    task = Task("case", "puzzles", "test", payload={"puzzle": case["puzzle"], "data": case["data"]})
    grade = response_grader(PuzzleOptions(verifier="released"))(task, case["response"])
    return {"correct": grade.correct, "format": grade.answer is not None}


def path_problem(released, data):
    """Its gold answer is the first that the release's search finds."""
    grid = [list(row) for row in data["grid"]]
    start, dest = search(data["grid"]).start, search(data["grid"]).goal
    found = released["ShortestPathProblemGenerator"](0)._get_answer([list(row) for row in grid], start, dest)
    gold = "infeasible" if found is None else ", ".join(found)
    return SimpleNamespace(answer_text=gold, grid=grid, start=start, dest=dest)


def matrix_problem(released, data):
    return SimpleNamespace(solution_str=released["matrix_to_str"](released["compute_distances"](data["matrix"])))


def roles_problem(released, data):
    """Its gold answer is worded as in the problem."""
    return SimpleNamespace(solution_text=render(data, solve(data)))


PATH = ("ShortestPathProblemGenerator", "normalize_path_answer", "check_shortest_path_answer")
MATRIX = ("compute_distances", "matrix_to_str")
ROLES = ("KNIGHT_KNAVE_PAIRS", "VALID_ROLES", "normalize_answer")


def only_evaluated(case, ours, theirs):
    """The release evaluates what is no literal."""
    try:
        ast.literal_eval(answer_in(case["response"]) or "")
    except (ValueError, SyntaxError):
        return "RLTF defect 8" if theirs["correct"] and theirs["format"] == ours["format"] else ""
    return ""


@pytest.mark.parametrize(
    ("name", "owner", "names", "problem", "write", "count", "reason"),
    [
        ("shortest_path", "ShortestPathEnv", PATH, path_problem, path_answer, 6000, None),
        ("binary_matrix", "BinaryMatrixEnv", MATRIX, matrix_problem, matrix_answer, 6000, None),
        ("binary_matrix", "BinaryMatrixEnv", MATRIX, matrix_problem, expression_answer, 500, only_evaluated),
        ("knights_knaves", "KnightsAndKnavesEnv", ROLES, roles_problem, roles_answer, 6000, None),
    ],
)
def test_verifiers_of_rltf(monkeypatch, name, owner, names, problem, write, count, reason):
    released = definitions(
        RLTF,
        (f"{ENVS}/math/math_grading.py", ("extract_boxed",)),
        (f"{ENVS}/{name}/{name}_env.py", (owner, *names)),
    )
    monkeypatch.setitem(sys.modules, GRADING, SimpleNamespace(extract_boxed=released["extract_boxed"]))

    def theirs(case):
        given, verifier = problem(released, case["data"]), released[owner]
        return {
            "correct": verifier.check_answer(given, case["response"]),
            "format": verifier.check_format(given, case["response"]),
        }

    compare(responses(name, write, count), verdict, theirs, reason or (lambda case, ours, theirs: ""))


def equations():
    """Answers to countdown: half to its problems, half with powers and fractions that nearly come to the target."""
    for k in range(6000):
        rng = generator("released", "countdown", k)
        data = pick(rng, tasks("countdown")).payload["data"]
        written = {"answer": equation_answer(data, rng)} if k % 2 else near_answer(rng)
        yield {key: data[key] for key in ("numbers", "target")} | written


def test_countdown_of_r3l():
    released = definitions(
        R3L,
        ("trinity/utils/eval_utils.py", ("validate_equation", "evaluate_equation")),
        ("trinity/common/workflows/envs/R3L/countdown/utils.py", ("countdown_verify",)),
    )

    def theirs(case):
        return bool(released["countdown_verify"](case["answer"], case["numbers"], case["target"]))

    compare(equations(), lambda case: Countdown().verify_released(case, case["answer"]), theirs)
