"""What every puzzle promises: made by address, graded without harm, criticised without telling, solved with
errors."""

import subprocess
import sys

import pytest
from puzzle_problems import SIZES, generated
from r3l.envs.puzzles.engine.answer_engine import PUZZLES
from r3l.envs.puzzles.engine.base import CORRECT

from r3l.core.seeds import generator

HOSTILE = [
    "",
    " \n\t",
    "\x00",
    "9" * 10**6,
    "(" * 10**5,
    "[" * 10**5,
    "{" * 1900,
    "-" * 1900 + "1",
    "1" + "+1" * 900,
    "10**10**10",
    "__import__('os').abort()",
    "[x for x in ().__class__.__bases__]",
    "\\boxed{\\text{A is a knight}}",
    "𝟙 ² ٣ １",
    "İ is a Knight",
    "\ud800",
    "[[1e999]]",
    "[[NaN]]",
    "P is " * 300,
    "infeasible, right",
    "1/0",
]


@pytest.fixture(params=list(PUZZLES))
def kind(request):
    return PUZZLES[request.param]


@pytest.mark.parametrize("size", SIZES)
def test_hostile_answers_are_wrong_and_harmless(kind, size):
    problem = generated(kind.name, size, 3)
    for text in HOSTILE:
        assert not kind.verify(problem.data, text)
        critique = kind.critique(problem.data, text)
        assert critique != CORRECT and len(critique) < 5000
        if kind.name != "shortest_path" or problem.group == "feasible":
            assert not kind.verify_released(problem.data, text)


def test_released_texts_are_reasoning_gyms(kind):
    import reasoning_gym  # not when tests are collected: a second

    parameters = {
        "knights_knaves": {"n_people": 5, "depth_constraint": 3, "width_constraint": 3},
        "binary_matrix": {"min_n": 3, "max_n": 5, "p_zero": 0.25},
        "shortest_path": {"min_rows": 5, "max_rows": 6, "min_cols": 5, "max_cols": 6, "p_blocked": 0.4},
        "countdown": {},
    }[kind.name]
    items = reasoning_gym.create_dataset(kind.name, seed=0, size=12, **parameters)
    for index in range(12):
        problem, item = generated(kind.name, "rltf", index), items[index]
        assert (problem.text, problem.answer) == (item["question"], item["answer"])
        assert items.score_answer(problem.answer, item) == 1.0


def test_the_first_import_of_the_generators_prints_no_warning(tmp_path):
    """Without bytecode, as `make setup` leaves packages, Python warns of cellpylib's comparisons."""
    code = (
        "import sys, numpy, scipy.stats, sympy\n"  # with their bytecode: only the rest is compiled
        "from r3l.envs.puzzles.engine.base import item\n"
        f"sys.pycache_prefix = {str(tmp_path)!r}\n"
        "print(item('countdown', 0, 0)['question'])"
    )
    done = subprocess.run([sys.executable, "-B", "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and done.stdout
    assert done.stderr == ""


def test_critiques_never_state_the_gold_answer(kind):
    for size, count in (("nano", 40), ("rltf", 10)):
        for index in range(count):
            problem = generated(kind.name, size, index)
            wrong = [
                kind.attempt(problem.data, generator("leak", index), 0).answer,
                "",
                "right",
                "infeasible",
            ]
            for answer in [
                *wrong,
                *kind.constant_answers(problem.data).values(),
                problem.answer[:-2],
                problem.answer + " x",
            ]:
                critique = kind.critique(problem.data, answer)
                assert critique == CORRECT or problem.answer not in critique, (problem, answer, critique)
                assert (critique == CORRECT) == kind.verify(problem.data, answer)
