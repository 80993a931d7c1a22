"""Shortest path: the fewest moves from ``*`` to ``#`` in a grid with blocked cells ``X``, or ``infeasible``.

``data``: ``grid``, rows as strings of ``*``, ``#``, ``O`` (open) and ``X``; and ``style``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

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

Cell = tuple[int, int]
INFEASIBLE = "infeasible"
MOVES = {"right": (0, 1), "down": (1, 0), "left": (0, -1), "up": (-1, 0)}  # in the order that they are tried


class ShortestPathDifficulty(Difficulty):
    """Numbers of rows and columns, and the probability of a blocked cell."""

    min_rows: int = Field(ge=2)
    max_rows: int = Field(ge=2)
    min_cols: int = Field(ge=2)
    max_cols: int = Field(ge=2)
    p_blocked: float = Field(ge=0, lt=1)


class ShortestPath(Puzzle):
    """The puzzle: find a shortest path in a grid.

    An answer is a list of moves (``right down``), or ``infeasible``.
    """

    name = "shortest_path"
    difficulty = ShortestPathDifficulty

    def generate(self, index: int, difficulty: ShortestPathDifficulty) -> PuzzleProblem:
        """Problem ``index`` (from 0, unbounded), the same each time for one index and difficulty.

        The start is never the goal (it is in 3.4 % of the problems of RLTF's own generator).
        """
        limits = range_of(difficulty, "min_rows", "max_rows", "min_cols", "max_cols", "p_blocked")
        generated = item(self.name, difficulty.seed, index, **limits)
        grid = ["".join(row) for row in generated["metadata"]["matrix"]]
        text = generated["question"]
        if difficulty.style == "compact":
            text = f"Grid {' / '.join(map(' '.join, grid))} : shortest path from * to # ?"
        group = INFEASIBLE if generated["answer"] == INFEASIBLE else "feasible"
        return PuzzleProblem(text, generated["answer"], {"grid": grid, "style": difficulty.style}, group)

    def key(self, data: Data) -> str:
        return "/".join(data["grid"])

    def verify(self, data: Data, answer: str) -> bool:
        """True if the moves are a shortest path, or the answer is ``infeasible`` and there is no path."""
        moves = read(answer)
        return moves is not None and _are_shortest(data["grid"], moves)

    def verify_released(self, data: Data, answer: str) -> bool:
        """True if the moves among the words of ``answer`` are a shortest path.

        If there is no path, True if the answer has no moves.
        """
        return _are_shortest(data["grid"], released.moves(answer))

    def critique(self, data: Data, answer: str) -> str:
        """Name the first illegal move, a wrong end, or by how many moves the path is too long; else CORRECT.

        It never names a direction: on a small grid a single move may be the answer.
        """
        moves = read(answer)
        shortest = search(data["grid"]).path()
        if moves is None:
            return "the answer is not a list of moves"
        if not moves:
            return CORRECT if shortest is None else "there is a path"
        problem = walk(data["grid"], moves)
        if problem or shortest is None:  # without a path every walk has a problem
            return problem
        longer = len(moves) - len(shortest)
        if not longer:
            return CORRECT
        unit = "step" if longer == 1 else "steps"
        return f"the path arrives but is {longer} {unit} too long"

    def constant_answers(self, data: Data) -> dict[str, str]:
        """Answers that need no search: ``infeasible``, and each single move."""
        return {text: text for text in (INFEASIBLE, *MOVES)}

    def work(self, data: Data) -> WorkedSolution:
        """Search breadth first, with a line for the cells at each distance, then follow the moves back."""
        searched = search(data["grid"])
        lines = [f"start {_place(searched.start)} goal {_place(searched.goal)}"]
        for distance, cells in enumerate(searched.waves, 1):
            reached = ", ".join(f"{_place(cell)} {searched.came[cell]}" for cell in cells) or "none"
            lines.append(f"step {distance}: {reached}")
        path = searched.path()
        if path is None:
            return WorkedSolution([*lines, "goal not reached"], INFEASIBLE)
        lines.append(f"back: {' '.join(reversed(path))}")
        return WorkedSolution(lines, " ".join(path))

    def misreadings(self, data: Data, rng: np.random.Generator) -> Iterator[Data]:
        """Problems with one cell misread as blocked or open, then problems with another cell as the goal."""
        grid = [list(row) for row in data["grid"]]
        cells = [(r, c) for r, row in enumerate(grid) for c, mark in enumerate(row) if mark in "OX"]
        for r, c in shuffled(cells, rng):
            yield _changed(data, {(r, c): "X" if grid[r][c] == "O" else "O"})
        goal = search(data["grid"]).goal
        for cell in shuffled(cells, rng):
            yield _changed(data, {goal: "O", cell: "#"})


@dataclass(frozen=True)
class Search:
    """The result of a breadth-first search.

    ``waves``: the new cells at distance 1, 2, ...; the last one is empty if the goal cannot be reached.
    ``came``: for each reached cell but the start, the move that first reached it.
    """

    start: Cell
    goal: Cell
    waves: list[list[Cell]]
    came: dict[Cell, str]

    def path(self) -> list[str] | None:
        """The moves of a shortest path, from the finished search; None if it did not reach the goal."""
        if self.goal not in self.came:
            return None
        moves: list[str] = []
        cell = self.goal
        while cell != self.start:
            moves.append(self.came[cell])
            cell = _moved(cell, moves[-1], -1)
        return moves[::-1]


def search(grid: Sequence[str]) -> Search:
    """Search breadth first from the start ``*`` until the goal ``#`` or no new cell is reached.

    ``grid``: rows of marks (see the module). Raises ValueError for a grid without start or goal.
    """
    start = _find(grid, "*")
    goal = _find(grid, "#")
    waves: list[list[Cell]] = []
    came: dict[Cell, str] = {}
    edge = [start]
    while edge and goal not in came:
        wave: list[Cell] = []
        for cell in edge:
            for move in MOVES:
                to = _moved(cell, move)
                if _mark(grid, to) in ("O", "#") and to not in came:
                    came[to] = move
                    wave.append(to)
        waves.append(wave)
        edge = wave
    return Search(start, goal, waves, came)


def walk(grid: Sequence[str], moves: Sequence[str]) -> str:
    """The reason why ``moves`` (keys of MOVES) do not lead from start to goal; "" if they do.

    It names the number of the first illegal move (from 1), or the cell where the moves end. Passing the goal
    is legal. Raises ValueError for a grid without a start.
    """
    cell = _find(grid, "*")
    for number, move in enumerate(moves, 1):
        cell = _moved(cell, move)
        mark = _mark(grid, cell)
        if mark is None:
            return f"move {number} leaves the grid"
        if mark == "X":
            return f"move {number} runs into a blocked cell"
    place = f"row {cell[0] + 1}, column {cell[1] + 1}"
    return "" if _mark(grid, cell) == "#" else f"the path ends in {place}, not at the goal"


def read(answer: str) -> list[str] | None:
    """The moves of an answer, an empty list for ``infeasible``; None for any other text.

    Moves are separated by blanks or commas; case does not matter. None too for a text longer than MAX_ANSWER.
    """
    if len(answer) > MAX_ANSWER:
        return None
    words = re.split(r"[\s,]+", answer.strip().lower())
    if words == [INFEASIBLE]:
        return []
    return words if all(word in MOVES for word in words) else None


def _are_shortest(grid: Sequence[str], moves: Sequence[str]) -> bool:
    """Whether ``moves`` are a shortest path; an empty list says that there is none."""
    shortest = search(grid).path()
    if shortest is None or not moves:
        return shortest is None and not moves
    return len(moves) == len(shortest) and not walk(grid, moves)


def _changed(data: Data, marks: dict[Cell, str]) -> Data:
    """The problem with other ``marks`` in some cells."""
    grid = []
    for r, row in enumerate(data["grid"]):
        grid.append("".join(marks.get((r, c), mark) for c, mark in enumerate(row)))
    return {**data, "grid": grid}


def _moved(cell: Cell, move: str, times: int = 1) -> Cell:
    down, right = MOVES[move]
    return cell[0] + times * down, cell[1] + times * right


def _mark(grid: Sequence[str], cell: Cell) -> str | None:
    """The mark of a cell; None outside the grid."""
    r, c = cell
    inside = 0 <= r < len(grid) and 0 <= c < len(grid[0])
    return grid[r][c] if inside else None


def _find(grid: Sequence[str], mark: str) -> Cell:
    for r, row in enumerate(grid):
        if mark in row:
            return r, row.index(mark)
    raise ValueError(f"there is no {mark!r} in the grid {' / '.join(grid)}")


def _place(cell: Cell) -> str:
    return f"{cell[0] + 1} {cell[1] + 1}"
