"""Binary matrix: the distance in steps of each cell of a square 0/1 matrix to the nearest zero.

``data``: ``matrix`` (n rows of n numbers, at least one of them zero) and ``style``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence

import numpy as np
from pydantic import Field
from r3l.envs.puzzles.engine import released
from r3l.envs.puzzles.engine.base import (
    CORRECT,
    MAX_ANSWER,
    Data,
    Difficulty,
    Puzzle,
    PuzzleProblem,
    WorkedSolution,
    item,
    range_of,
    shuffled,
)

Matrix = list[list[int]]
_NUMBER = re.compile(r"[0-9]{1,3}")


class BinaryMatrixDifficulty(Difficulty):
    """Size of the matrix: ``min_n`` to ``max_n`` rows and as many columns. ``p_zero``: probability of a 0."""

    min_n: int = Field(ge=2)
    max_n: int = Field(ge=2, le=9)
    p_zero: float = Field(gt=0, le=1)


class BinaryMatrix(Puzzle):
    """The puzzle: give the distance of each cell to the nearest 0.

    An answer has rows on lines or between ``/``, or is a JSON list of lists.
    """

    name = "binary_matrix"
    difficulty = BinaryMatrixDifficulty

    def generate(self, index: int, difficulty: BinaryMatrixDifficulty) -> PuzzleProblem:
        generated = item(
            self.name, difficulty.seed, index, **range_of(difficulty, "min_n", "max_n", "p_zero")
        )
        data = {"matrix": generated["metadata"]["matrix"], "style": difficulty.style}
        text = generated["question"]
        if difficulty.style == "compact":
            text = f"Matrix {_write(data, data['matrix'])} : distance of each cell to the nearest 0 ?"
        size = len(data["matrix"])
        return PuzzleProblem(text, _write(data, distances(data["matrix"])), data, f"{size}x{size}")

    def key(self, data: Data) -> str:
        return json.dumps(data["matrix"])

    def verify(self, data: Data, answer: str) -> bool:
        """Whether the answer has the right number in every cell, and the matrix's rows."""
        return read(answer) == distances(data["matrix"])

    def verify_released(self, data: Data, answer: str) -> bool:
        """Whether the cells are equal in reading order; white space does not count, as in RLTF."""
        gold = [str(cell) for row in distances(data["matrix"]) for cell in row]
        return gold in (answer.split(), released.cells(answer))

    def critique(self, data: Data, answer: str) -> str:
        """Name the wrong cells (row, column from 1), or the shape that is needed; CORRECT if all is right."""
        gold = distances(data["matrix"])
        matrix = read(answer)
        if matrix is None or [len(row) for row in matrix] != [len(row) for row in gold]:
            return f"the answer must have {len(gold)} rows of {len(gold)} numbers"
        wrong = []
        for r, row in enumerate(matrix, 1):
            for c, value in enumerate(row, 1):
                if value != gold[r - 1][c - 1]:
                    wrong.append(f"({r}, {c})")
        return f"wrong at (row, column) {', '.join(wrong)}" if wrong else CORRECT

    def constant_answers(self, data: Data) -> dict[str, str]:
        """Answers that need no search, by name: ``all 0``, ``all 1``, and a ``copy`` of the matrix.

        They are in the problem's answer format. The copy is right if each 1 has a 0 next to it.
        """
        size = len(data["matrix"])
        answers = {}
        for value in (0, 1):
            answers[f"all {value}"] = _write(data, [[value] * size] * size)
        answers["copy"] = _write(data, data["matrix"])
        return answers

    def work(self, data: Data) -> WorkedSolution:
        solution = distances(data["matrix"])
        pairs = zip(data["matrix"], solution, strict=True)
        lines = [f"row {k}: {_row(ones)} gives {_row(row)}" for k, (ones, row) in enumerate(pairs, 1)]
        return WorkedSolution(lines, _write(data, solution))

    def misreadings(self, data: Data, rng: np.random.Generator) -> Iterator[Data]:
        """Matrices with one cell read as the other digit, in random order; at least one zero remains."""
        size = range(len(data["matrix"]))
        for r, c in shuffled([(r, c) for r in size for c in size], rng):
            matrix = [list(row) for row in data["matrix"]]
            matrix[r][c] = 1 - matrix[r][c]
            if any(0 in row for row in matrix):
                yield {**data, "matrix": matrix}


def distances(matrix: Sequence[Sequence[int]]) -> Matrix:
    """Steps up, down, left or right from each cell to the nearest zero; ``matrix`` must have a zero."""
    zeros = [(r, c) for r, row in enumerate(matrix) for c, value in enumerate(row) if value == 0]
    # The matrix has no obstacles, so a distance in steps is the row distance plus the column distance.
    rows: Matrix = []
    for r, row in enumerate(matrix):
        steps = []
        for c in range(len(row)):
            steps.append(min(abs(r - zero_r) + abs(c - zero_c) for zero_r, zero_c in zeros))
        rows.append(steps)
    return rows


def read(answer: str) -> Matrix | None:
    """The rows of an answer, in which all numbers count; their shape is not checked.

    None if it is neither lines of numbers (of up to three digits) nor a JSON list of lists of integers, or is
    longer than MAX_ANSWER characters.
    """
    if len(answer) > MAX_ANSWER:
        return None
    if answer.strip().startswith("["):
        try:
            rows = json.loads(answer)
        except (ValueError, RecursionError):
            return None
        for row in rows:
            if not isinstance(row, list) or not all(type(cell) is int for cell in row):
                return None
        return rows or None
    rows = [row.split() for row in re.split(r"[\n/]", answer.strip())]
    if not all(_NUMBER.fullmatch(cell) for row in rows for cell in row):
        return None
    return [[int(cell) for cell in row] for row in rows]


def _write(data: Data, matrix: Sequence[Sequence[int]]) -> str:
    return (" / " if data["style"] == "compact" else "\n").join(map(_row, matrix))


def _row(cells: Sequence[int]) -> str:
    return " ".join(map(str, cells))
