"""Which grader accepts which pairs: this script writes results/stored/math_grader_agreement.csv.

Graders: ours; math-verify as its manual says (both sides in a box); lm-eval's ``is_equiv`` of hendrycks_math
and aime; the released rule in the main thread, and in a thread of an actor, where it compares text. Pairs:
MATH-500's gold answers with themselves, with the next problem's (nearly all wrong), and the pairs of
``variants.yaml`` by kind.
"""

from __future__ import annotations

import csv
import io
import logging
from collections.abc import Callable
from pathlib import Path

from r3l.envs.math.engine.answer_engine import check, check_in_actor
from r3l.envs.math.engine.grader import grade
from r3l.envs.math.task_sets.datasets import load

from r3l.files.paths import STORED
from r3l.files.writing import write_text_atomic
from r3l.files.yaml_files import read_yaml

COLUMNS = ("pairs_of", "grader", "pairs", "right_pairs", "accepted", "right_rejected", "wrong_accepted")
Pair = tuple[str, str, bool]  # gold answer, answer, whether it is right to a reader


def documented(gold: str, answer: str) -> bool:
    """math-verify as its manual says."""
    from math_verify import parse, verify

    expected, given = (parse(f"\\boxed{{{text}}}", parsing_timeout=None) for text in (gold, answer))
    return bool(verify(expected, given, timeout_seconds=None))


def graders() -> dict[str, Callable[[str, str], bool]]:
    from lm_eval.tasks.hendrycks_math.utils import is_equiv

    return {
        "ours": lambda gold, answer: grade(gold, answer).correct,
        "math_verify_documented": documented,
        "lm_eval_is_equiv": lambda gold, answer: bool(is_equiv(answer, gold)),
        "released_main_thread": lambda gold, answer: check(gold, f"\\boxed{{{answer}}}"),
        "released_in_actor": lambda gold, answer: check_in_actor(gold, f"\\boxed{{{answer}}}"),
    }


def pairs() -> dict[str, list[Pair]]:
    """Pairs by kind. The next problem's answer counts as right where it is the same text."""
    golds = [problem.gold for problem in load("math500")]
    by_kind: dict[str, list[Pair]] = {
        "gold_vs_gold": [(gold, gold, True) for gold in golds],
        "gold_vs_next_gold": [
            (g, other, g == other) for g, other in zip(golds, [*golds[1:], golds[0]], strict=True)
        ],
    }
    for kind, variants in read_yaml(Path(__file__).parent / "variants.yaml").items():
        right = [(gold, answer, True) for gold, answer in variants["right"]]
        by_kind[kind] = right + [(gold, answer, False) for gold, answer in variants.get("wrong", [])]
    return by_kind


def main() -> None:
    """Write the table and print where it is."""
    logging.getLogger("math_verify").setLevel(
        logging.ERROR
    )  # it warns at every call without a deadline of its own
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for kind, judged in pairs().items():
        for name, accepts in graders().items():
            accepted = [accepts(gold, answer) for gold, answer, _ in judged]
            right = [is_right for *_, is_right in judged]
            rejected = sum(is_right and not yes for is_right, yes in zip(right, accepted, strict=True))
            wrong = sum(yes and not is_right for is_right, yes in zip(right, accepted, strict=True))
            writer.writerow([kind, name, len(judged), sum(right), sum(accepted), rejected, wrong])
    path = STORED / "math_grader_agreement.csv"
    write_text_atomic(path, text.getvalue())
    print(path)


if __name__ == "__main__":
    main()
