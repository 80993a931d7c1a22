"""How the releases read responses and answers, worked out from their code (a test ran it up to commit
9d9d3e26)."""

from pathlib import Path

import pytest
from r3l.envs.puzzles import PuzzleOptions
from r3l.envs.puzzles.engine.answer_engine import response_grader
from r3l.envs.puzzles.engine.released import answer_in, cells, moves, solves

from r3l.core.task import Task
from r3l.files.yaml_files import read_yaml

RIGHT = ["0", "1", "1", "0"]
RELEASED = read_yaml(Path(__file__).with_name("released.yaml"))


@pytest.mark.parametrize(("response", "answer"), RELEASED["boxes"])
def test_the_box(response, answer):
    assert answer_in(response) == answer


@pytest.mark.parametrize(("answer", "read"), RELEASED["moves"])
def test_moves(answer, read):
    assert moves(answer) == read


@pytest.mark.parametrize(
    "answer",
    [
        "[[0, 1], [1, 0]]",
        "[(0, 1), (1, 0)]",
        "['0 1', '1 0']",
        "['01', '10']",  # a text is a row of letters
        "[[0, 1, 1, 0]]",
        "[[0], [1, 1], [], [0]]",
        "[\n[0, 1],\n[1, 0], # so\n]\n",
    ],
)
def test_lists_are_read_as_they_print(answer):
    assert cells(answer) == RIGHT


@pytest.mark.parametrize(
    "answer",
    [
        "((0, 1), (1, 0))",
        "[0, 1, 1, 0]",
        "[0, 1], [1, 0]",
        "\n  [[0, 1], [1, 0]]",
        "[[0, 1], [1, 0]] * 1",  # here and below only eval reads on
        "[x for x in [[0, 1], [1, 0]]]",
        "__import__('os').abort()",
        "1" + "0" * 400 + " + 1j",
        "0x" + "f" * 5000,
        "\x00",
        "\ud800",
    ],
)
def test_what_is_no_list_of_rows(answer):
    assert cells(answer) is None


@pytest.mark.parametrize(("equation", "numbers", "target", "right"), RELEASED["equations"])
def test_equations(equation, numbers, target, right):
    assert solves(equation, numbers, target) == right


def test_the_environment_reads_box_and_answer_as_the_release_does():
    data = {"grid": ["*XO", "XOO", "#OO"], "style": "released"}
    task = Task("t", "puzzles", "test", payload={"puzzle": "shortest_path", "data": data})
    ours, theirs = response_grader(PuzzleOptions()), response_grader(PuzzleOptions(verifier="released"))
    for response, correct, answer in (
        ("\\boxed{}", True, ""),
        ("\\boxed{I do not know}", True, "I do not know"),
        ("\\boxed nothing", True, "nothing"),
        ("nothing", False, None),
        ("\\boxed{infeasible}}", False, None),
    ):
        graded = theirs(task, response)
        assert (graded.correct, graded.answer) == (correct, answer)
        assert not ours(task, response).correct or response.endswith("}}")
