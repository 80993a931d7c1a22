"""Answers to puzzles as models write them, right and wrong, in every wording that a verifier reads differently."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from r3l.envs.puzzles.base import Data
from r3l.envs.puzzles.binary_matrix import distances
from r3l.envs.puzzles.knights_knaves import render, solve
from r3l.envs.puzzles.shortest_path import MOVES, search
from r3l.released.check import pick

Rng = np.random.Generator
BOXES = (
    *["\\boxed{%s}"] * 6,
    "So the answer is \\boxed{%s}.",
    "A set {x} first. \\boxed{%s}",
    "\\boxed{1}, no: \\boxed{%s}",
    "\\boxed{%s} or \\boxed{}",
    "\\boxed{\\boxed{%s}}",
    "\\boxed{\\text{%s}}",
    "\\boxed {%s}",
    "\\boxed{%s}}",
    "{ \\boxed{%s}",
    "}\\boxed{%s}",
    "\\boxed %s",
    "\\boxed{%s",
    "%s",
    "\\fbox{%s}",
)
NO_WAY = (
    "infeasible",
    "Infeasible.",
    "There is no path",
    "impossible",
    "not possible",
    "unreachable",
    "",
    "I do not know",
)
AROUND_MOVES = (
    "%s",
    "%s",
    "%s.",
    "The path is %s",
    "[%s]",
    "(%s)",
    "Answer: %s!",
    "%s; no path is shorter",
    "go %s then stop",
)
BETWEEN_MOVES = (", ", ", ", " ", ",", ".", "; ", " and ", "\n", ", then ", " -> ", "-", "and", "/", "\t")
AROUND_ROLES = ("%s", "%s", "%s.", "I think %s", "(%s)", "%s, surely", "\\text{%s}", "**%s**")
AROUND_EQUATION = (
    "%s",
    "%s",
    " %s",
    "%s\n",
    "\n%s",
    "(%s)",
    "%s = 7",
    "= %s",
    "+%s",
    "-(-(%s))",
    "%s.",
    "%s + 0",
    "$%s$",
    "\\(%s\\)",
)


def path_answer(data: Data, rng: Rng) -> str:
    """Moves: the shortest ones, others of that length, or changed ones, with letters, numbers and words about them."""
    moves = search(data["grid"]).path() or [pick(rng, list(MOVES)) for _ in range(rng.integers(1, 6))]
    if rng.random() < 0.4:
        place = int(rng.integers(len(moves)))
        moves = [*moves[:place], pick(rng, list(MOVES)), *moves[place + int(rng.integers(0, 2)) :]]
    if rng.random() < 0.25:
        return pick(rng, NO_WAY)
    write: Callable[[int, str], str] = pick(
        rng,
        (
            lambda _, move: move,
            lambda _, move: move,
            lambda _, move: move[0],
            lambda _, move: move.upper(),
            lambda _, move: move[0].upper(),
            lambda number, move: f"{number}. {move}",
            lambda number, move: f"{number}) {move}",
            lambda _, move: f"'{move}'",
            lambda _, move: f"move {move}",
        ),
    )
    text = pick(rng, BETWEEN_MOVES).join(write(number, move) for number, move in enumerate(moves, 1))
    return pick(rng, AROUND_MOVES) % text


def matrix_answer(data: Data, rng: Rng) -> str:
    """Distances, some of them wrong, as lines, as Python has them, as LaTeX, and as nothing of the kind."""
    rows = distances(data["matrix"])
    if rng.random() < 0.3:
        rows[int(rng.integers(len(rows)))][int(rng.integers(len(rows)))] = int(rng.integers(0, 5))
    if rng.random() < 0.05:
        rows = rows[:-1]
    return pick(rng, tuple(_MATRICES.values()))(rows)


def expression_answer(data: Data, rng: Rng) -> str:
    """Right distances as Python that is no literal."""
    return pick(rng, tuple(_EXPRESSIONS.values()))(distances(data["matrix"]))


def roles_answer(data: Data, rng: Rng) -> str:
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


def equation_answer(data: Data, rng: Rng) -> str:
    """Equations: the right one, others of the same numbers, and what only Python computes."""
    text = str(data["expression"])
    numbers = [str(number) for number in data["numbers"]]
    if rng.random() < 0.4:
        joined = [*numbers[:1]]
        for number in numbers[1:]:
            joined += [pick(rng, ("+", "-", "*", "/", "//", " + ", " - ")), number]
        text = "".join(joined)
    changes: tuple[tuple[str, str], ...] = (
        ("", ""), ("", ""), ("", ""), ("*", "×"), ("/", "÷"), ("/", "//"), (" ", ""), ("*", " * "),
        ("-", "−"), (numbers[0], numbers[0] + ".0"), (numbers[0], numbers[0] + "."), (numbers[0], "0" + numbers[0]),
        (numbers[0], "٣"), (numbers[0], f"{numbers[0]} {numbers[0]}"), (numbers[0], f"({numbers[0]})"), (" ", "\u00a0"),
    )  # fmt: skip
    old, new = pick(rng, changes)
    return pick(rng, AROUND_EQUATION) % (text.replace(old, new) if old else text)


def near_answer(rng: Rng) -> dict[str, Any]:
    """Numbers, a target, and an equation with powers, roots or fractions that come to it, nearly or not."""
    a, b, c = (int(n) for n in rng.integers(1, 10, 3))
    equations: Mapping[str, float] = {
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


_MATRICES: Mapping[str, Callable[[list[list[int]]], str]] = {
    "lines": lambda rows: "\n".join(" ".join(map(str, row)) for row in rows),
    "one line": lambda rows: " ".join(str(cell) for row in rows for cell in row),
    "wide": lambda rows: "  \n\n ".join("   ".join(map(str, row)) for row in rows) + "\n",
    "slashes": lambda rows: " / ".join(" ".join(map(str, row)) for row in rows),
    "commas": lambda rows: "\n".join(", ".join(map(str, row)) for row in rows),
    "list": str,
    "list, no spaces": lambda rows: str(rows).replace(" ", ""),
    "list on lines": lambda rows: "[\n" + ",\n".join(map(str, rows)) + ",\n]",
    "list after a space": lambda rows: f"  {rows}  ",
    "list after a line": lambda rows: f"\n{rows}\n",
    "list after a line and a space": lambda rows: f"\n  {rows}",
    "list of tuples": lambda rows: str([tuple(row) for row in rows]),
    "tuple": lambda rows: str(tuple(map(tuple, rows))),
    "tuple of lists": lambda rows: str(rows)[1:-1],
    "list of texts": lambda rows: str([" ".join(map(str, row)) for row in rows]),
    "list of digits": lambda rows: str(["".join(map(str, row)) for row in rows]),
    "list of lists of digits": lambda rows: str([[str(cell) for cell in row] for row in rows]),
    "one row": lambda rows: str([[cell for row in rows for cell in row]]),
    "flat list": lambda rows: str([cell for row in rows for cell in row]),
    "ragged": lambda rows: str([rows[0][:1], rows[0][1:], *rows[1:], []]),
    "dictionary": lambda rows: str([dict.fromkeys(row) for row in rows]),
    "sets": lambda rows: str([set(row) for row in rows]),
    "floats": lambda rows: str([[float(cell) for cell in row] for row in rows]),
    "truth values": lambda rows: str([[bool(cell) for cell in row] for row in rows]),
    "deeper": lambda rows: str([rows]),
    "texts of pieces": lambda rows: str([["".join(f" {cell}" for cell in row)] for row in rows]),
    "with a comment": lambda rows: f"{rows} # distances",
    "hexadecimal": lambda rows: "[" + ", ".join("[" + ", ".join(map(hex, row)) + "]" for row in rows) + "]",
    "LaTeX": lambda rows: "\\begin{array}" + " \\\\ ".join(" & ".join(map(str, row)) for row in rows) + "\\end{array}",
    "named": lambda rows: f"matrix = {rows}",
    "open": lambda rows: str(rows)[:-1],
    "words": lambda rows: "I do not know",
    "empty": lambda rows: "",
}  # fmt: skip
_EXPRESSIONS: Mapping[str, Callable[[list[list[int]]], str]] = {
    "repeated": lambda rows: f"{rows} * 1",
    "joined": lambda rows: f"{rows[:1]} + {rows[1:]}",
    "called": lambda rows: f"list({tuple(rows)})",
    "comprehended": lambda rows: f"[list(row) for row in {rows}]",
    "computed": lambda rows: str(rows).replace("1", "2 - 1"),
    "signed twice": lambda rows: str(rows).replace("1", "--1"),
    "compared": lambda rows: f"{rows} if 1 < 2 else 0",
    "the verifier's own": lambda rows: "[row for row in self.solution_str.split()]",
}
