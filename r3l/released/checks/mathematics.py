"""Mathematics: how R3L's release reads an answer and grades it, where it runs and where it works; RLTF's grader."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial

from grader_agreement import VARIANTS

from r3l.core.seeds import generator
from r3l.envs.math.datasets import load
from r3l.envs.math.engine import answer_in, check, check_in_actor
from r3l.envs.math.grader import grade
from r3l.original.clones import R3L, RLTF
from r3l.released.check import Case, Check, Code, Namespace, Value, pick

RESPONSES = 6000  # our choice, as of what follows
IN_THREAD, IN_MAIN_THREAD, BY_RLTF = 4000, 1500, 1500  # pairs of gold and answer; a text is compared in no time
PACKAGED = ("math500", "olympiadbench", "gsm8k")
FOLDER = "trinity/common/workflows/envs/R3L"
PIECES = (
    *("<think>", "</think>", "<answer>", "</answer>") * 3,
    *("<Think>", "<ANSWER>", "</Answer>", "<answer> ", "\n</answer>", "<answer></answer>"),
    *("Answer:", "answer: ", "\nAnswer:\n", "Final Answer: "),
    *("34", " 34 ", "\\boxed{34}", "x\ny", "\n", " ", "so", "$1/2$"),
)
ANSWERS = (
    "%s",
    "%s",
    "%s",
    "%s",
    " %s ",
    "\\boxed{%s}",
    "$%s$",
    "%s.",
    "x = %s",
    "%s cm",
    "\\text{%s}",
    "(%s)",
    "# %s",
)
GOLDS = ("%s", "%s", "%s", "#### %s", "So it is\n#### %s", "%s #", " %s", "$%s$")

logging.getLogger("math_verify").setLevel(logging.ERROR)  # it warns at every call without a deadline of its own


def responses() -> Iterator[Case]:
    """Tags, answers and what is neither, half of them in an order that has an answer."""
    for k in range(RESPONSES):
        rng = generator("released", "reading", k)
        pieces = [pick(rng, PIECES) for _ in range(rng.integers(0, 9))]
        if k % 2:
            pieces = ["<think>", pick(rng, PIECES), "</think>", *pieces, "<answer>", pick(rng, PIECES), "</answer>"]
        yield {"response": "".join(pieces)}


@cache
def golds() -> Sequence[str]:
    """Gold answers of the packaged sets."""
    return [problem.gold for name in PACKAGED for problem in load(name)]


def pairs(purpose: str, count: int, worded: bool = True) -> Iterator[Case]:
    """A gold answer, and itself, another one or a variant written by hand; ``worded``: with text about both."""
    for k in range(count):
        rng = generator("released", "mathematics", purpose, k)
        variant, gold = pick(rng, VARIANTS), pick(rng, golds())
        chosen = ((variant.gold, variant.answer), (gold, pick(rng, golds())), (gold, gold), (gold, gold.upper()))
        gold, answer = pick(rng, chosen)
        if worded:
            gold, answer = pick(rng, GOLDS) % gold, pick(rng, ANSWERS) % answer if rng.random() < 0.95 else ""
        yield {"gold": gold, "answer": answer}


def read(released: Namespace, case: Case) -> Value:
    """R3L's reading; without thinking the workflows take no answer."""
    thought, answer = released["parse_response"](case["response"].strip())
    return None if thought is None else answer


def verified(released: Namespace, case: Case) -> Value:
    """R3L's grader in the main thread."""
    return bool(released["my_math_verify"](case["answer"], case["gold"]))


def verified_in_thread(released: Namespace, case: Case) -> Value:
    """R3L's grader in a thread, as in a Ray actor."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(verified, released, case).result()


def graded(released: Namespace, case: Case) -> Value:
    """RLTF's grader; what it raises is wrong."""
    try:
        return bool(released["grade_answer_math_verify"](case["answer"], case["gold"]))
    except Exception:  # noqa: BLE001 - so does the release
        return False


def explain_rltf(case: Case, ours: Value, theirs: Value) -> str:
    """math-verify takes a tuple for a set, and between dollar signs it skips an unknown command."""
    lenient = ("{" in case["gold"] and "(" in case["answer"]) or "^\\CIRC" in case["answer"]
    return "RLTF audit 5" if theirs and lenient else ""


READING = Check(
    "mathematics",
    "reading of answers",
    R3L,
    (Code(f"{FOLDER}/dapo/utils.py", ("parse_response",)),),
    responses,
    read,
    lambda case: answer_in(case["response"]),
)
GRADER = (Code(f"{FOLDER}/qwen_math/utils.py", ("my_math_verify",)),)
CHECKS = (
    READING,
    Check(
        "mathematics",
        "grader, in a thread",
        R3L,
        GRADER,
        partial(pairs, "thread", IN_THREAD),
        verified_in_thread,
        lambda case: check_in_actor(case["gold"], case["answer"]),
    ),
    Check(
        "mathematics",
        "grader, in the main thread",
        R3L,
        GRADER,
        partial(pairs, "main", IN_MAIN_THREAD),
        verified,
        lambda case: check(case["gold"], case["answer"]),
    ),
    Check(
        "mathematics",
        "RLTF's grader and ours",
        RLTF,
        (Code("tinker_cookbook/recipes/rltf/envs/math/math_grading.py", ("grade_answer_math_verify",)),),
        partial(pairs, "rltf", BY_RLTF, worded=False),
        graded,
        lambda case: grade(case["gold"], case["answer"]).correct,
        explain_rltf,
    ),
)
