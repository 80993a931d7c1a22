"""Mathematics: how R3L's release reads and grades an answer, where it runs and where it works; RLTF's grader."""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import pytest
from r3l.envs.math.datasets import load
from r3l.envs.math.engine import answer_in, check, check_in_actor
from r3l.envs.math.grader import grade

from r3l.core.seeds import generator
from r3l.original.clones import R3L, RLTF
from tests.envs.math.test_agreement import VARIANTS
from tests.released.release import compare, definitions, pick

pytestmark = pytest.mark.released
FOLDER = "trinity/common/workflows/envs/R3L"
GRADER = (f"{FOLDER}/qwen_math/utils.py", ("my_math_verify",))
RLTF_GRADER = ("tinker_cookbook/recipes/rltf/envs/math/math_grading.py", ("grade_answer_math_verify",))
PIECES = (
    *("<think>", "</think>", "<answer>", "</answer>") * 3,
    *("<Think>", "<ANSWER>", "</Answer>", "<answer> ", "\n</answer>", "<answer></answer>"),
    *("Answer:", "answer: ", "\nAnswer:\n", "Final Answer: "),
    *("34", " 34 ", "\\boxed{34}", "x\ny", "\n", " ", "so", "$1/2$"),
)
ANSWERS = (
    *["%s"] * 4,
    *(" %s ", "\\boxed{%s}", "$%s$", "%s.", "x = %s", "%s cm", "\\text{%s}", "(%s)", "# %s"),
)
PAIRS = [pair for right, wrong in VARIANTS.values() for pair in (*right, *wrong)]
GOLDS = ("%s", "%s", "%s", "#### %s", "So it is\n#### %s", "%s #", " %s", "$%s$")

logging.getLogger("math_verify").setLevel(logging.ERROR)  # it warns at every call without a deadline of its own


def responses():
    """Tags, answers and neither, half of them in an order that has an answer."""
    for k in range(6000):
        rng = generator("released", "reading", k)
        pieces = [pick(rng, PIECES) for _ in range(rng.integers(0, 9))]
        if k % 2:
            pieces = ["<think>", pick(rng, PIECES), "</think>", *pieces, "<answer>", pick(rng, PIECES), "</answer>"]
        yield "".join(pieces)


def test_reading_of_answers():
    released = definitions(R3L, (f"{FOLDER}/dapo/utils.py", ("parse_response",)))

    def theirs(response):  # without thinking the workflows take no answer
        thought, answer = released["parse_response"](response.strip())
        return None if thought is None else answer

    compare(responses(), answer_in, theirs)


@cache
def golds():
    return [problem.gold for name in ("math500", "olympiadbench", "gsm8k") for problem in load(name)]


def pairs(purpose, count, worded=True):
    """A gold answer, and itself, another one or a variant written by hand; ``worded``: with text about both."""
    for k in range(count):
        rng = generator("released", "mathematics", purpose, k)
        variant, gold = pick(rng, PAIRS), pick(rng, golds())
        chosen = (variant, (gold, pick(rng, golds())), (gold, gold), (gold, gold.upper()))
        gold, answer = pick(rng, chosen)
        if worded:
            gold, answer = pick(rng, GOLDS) % gold, pick(rng, ANSWERS) % answer if rng.random() < 0.95 else ""
        yield {"gold": gold, "answer": answer}


@pytest.mark.parametrize(("place", "ours", "count"), [("thread", check_in_actor, 4000), ("main", check, 1500)])
def test_grader_of_r3l(place, ours, count):
    """In a Ray actor it runs in a thread, where math-verify fails and only text is compared."""
    released = definitions(R3L, GRADER)["my_math_verify"]

    def theirs(case):
        if place == "main":
            return bool(released(case["answer"], case["gold"]))
        with ThreadPoolExecutor(1) as thread:
            return bool(thread.submit(released, case["answer"], case["gold"]).result())

    compare(pairs(place, count), lambda case: ours(case["gold"], case["answer"]), theirs)


def test_graders_of_rltf_and_ours():
    released = definitions(RLTF, RLTF_GRADER)

    def theirs(case):
        try:
            return bool(released["grade_answer_math_verify"](case["answer"], case["gold"]))
        except Exception:  # noqa: BLE001 - as in the release
            return False

    def lenient(case, ours, theirs):
        """math-verify takes a tuple for a set, and between dollar signs it skips an unknown command."""
        odd = ("{" in case["gold"] and "(" in case["answer"]) or "^\\CIRC" in case["answer"]
        return "RLTF audit 5" if theirs and odd else ""

    compare(
        pairs("rltf", 1500, worded=False), lambda case: grade(case["gold"], case["answer"]).correct, theirs, lenient
    )
