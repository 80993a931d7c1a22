"""Which grader accepts what: ``python tests/grader_agreement.py`` writes results/stored/math_grader_agreement.csv.

Graders: ours; math-verify as documented (both sides boxed); lm-eval's ``is_equiv`` of hendrycks_math and aime; the
released rule in the main thread, and where it runs (text equality). Pairs: MATH-500's golds with themselves, with the
next item's (nearly all wrong: what is accepted there is read by hand in the tests), and variants written by hand.
"""

from __future__ import annotations

import csv
import io
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from r3l.envs.math.datasets import load
from r3l.envs.math.engine import check, check_in_actor
from r3l.envs.math.grader import grade

from r3l.core.errors import ConfigError
from r3l.files.paths import STORED
from r3l.files.writing import write_text_atomic

OUT = STORED / "math_grader_agreement.csv"
COLUMNS = ("pairs_of", "grader", "pairs", "right_pairs", "accepted", "right_rejected", "wrong_accepted")


@dataclass(frozen=True)
class Pair:
    """``right``: whether the answer, which stands in the response's box, is right to a reader."""

    kind: str
    gold: str
    answer: str
    right: bool


VARIANTS = (
    Pair("number", "1234", "1,234", True),
    Pair("number", "27", "27.0", True),
    Pair("number", "0.5", ".5", True),
    Pair("number", "34", "35", False),
    Pair("number", "1", "1.01", False),
    Pair("fraction", r"\frac{1}{2}", r"\dfrac12", True),
    Pair("fraction", r"\frac{1}{2}", "1/2", True),
    Pair("fraction", r"\frac{1}{2}", "0.5", True),
    Pair("fraction", r"\frac{1}{3}", "0.333", False),
    Pair("fraction", r"\frac{3}{4}", r"\frac{4}{3}", False),
    Pair("unit", "18", r"18\text{ dollars}", True),
    Pair("unit", "18", r"\$18", True),
    Pair("unit", "18", "18 dollars", True),
    Pair("unit", "60", r"60^\circ", True),
    Pair("unit", "5", r"5\text{ cm}", True),
    Pair("unit", "18", r"19\text{ dollars}", False),
    Pair("percent", "50", r"50\%", True),
    Pair("percent", r"50\%", r"\frac{1}{2}", True),
    Pair("percent", "50", "0.5", False),
    Pair("root", r"2\sqrt{3}", r"\sqrt{12}", True),
    Pair("root", r"\frac{\sqrt{2}}{2}", r"\frac{1}{\sqrt{2}}", True),
    Pair("root", r"\sqrt{3}", "1.732", False),
    Pair("expression", "x^2+2x+1", "(x+1)^2", True),
    Pair("expression", "p - q", "-q+p", True),
    Pair("expression", "p - q", "q - p", False),
    Pair("equation", "5", "x=5", True),
    Pair("equation", "y=2x+1", "2x+1", True),
    Pair("equation", "5", "x=6", False),
    Pair("list", "2, 8", "8, 2", True),
    Pair("list", "-1, 2, -2", r"-2,-1,2", True),
    Pair("list", "2, 8", "2", False),
    Pair("set", r"\{1,2\}", r"\{2,1\}", True),
    Pair("set", r"\{1,2\}", r"\{1,2,3\}", False),
    Pair("set", r"\{1,2\}", "(1,2)", False),
    Pair("tuple", "(3,4)", "(3, 4)", True),
    Pair("tuple", "(3,4)", "(4,3)", False),
    Pair("tuple", r"\left( 3, \frac{\pi}{2} \right)", r"(3,\pi/2)", True),
    Pair("interval", "[0,1]", r"\left[0,1\right]", True),
    Pair("interval", "[0,1)", "[0,1]", False),
    Pair("interval", r"(-\infty,2)\cup(3,\infty)", r"(3,\infty) \cup (-\infty,2)", True),
    Pair("text", r"\text{Evelyn}", "Evelyn", True),
    Pair("text", r"\text{(C)}", "C", True),
    Pair("text", r"\text{(C)}", "D", False),
)
Rule = Callable[[str, str], bool]


def ours(gold: str, answer: str) -> bool:
    """This project's grader."""
    return grade(gold, answer).correct


def documented(gold: str, answer: str) -> bool:
    """math-verify as its manual says: LaTeX in an environment, gold first."""
    from math_verify import parse, verify

    expected, given = (parse(f"\\boxed{{{text}}}", parsing_timeout=None) for text in (gold, answer))
    return bool(verify(expected, given, timeout_seconds=None))


def rules() -> dict[str, Rule]:
    """Every grader. Raises ConfigError where lm-eval is not installed."""
    try:
        from lm_eval.tasks.hendrycks_math.utils import is_equiv
    except ImportError as error:
        raise ConfigError("lm-eval is not installed: pip install -e '.[eval]'") from error
    return {
        "ours": ours,
        "math_verify_documented": documented,
        "lm_eval_is_equiv": lambda gold, answer: bool(is_equiv(answer, gold)),
        "released_main_thread": lambda gold, answer: check(gold, f"\\boxed{{{answer}}}"),
        "released_in_actor": lambda gold, answer: check_in_actor(gold, f"\\boxed{{{answer}}}"),
    }


def all_pairs() -> Iterator[Pair]:
    """All of them. A next item's gold counts as right where it is the same text: two true coincidences."""
    golds = [p.gold for p in load("math500")]
    for gold in golds:
        yield Pair("gold_vs_gold", gold, gold, True)
    for gold, other in zip(golds, [*golds[1:], golds[0]], strict=True):
        yield Pair("gold_vs_next_gold", gold, other, gold == other)
    yield from VARIANTS


def table(graders: dict[str, Rule], pairs: list[Pair]) -> list[dict[str, object]]:
    """A row a kind of pair and grader."""
    rows: list[dict[str, object]] = []
    for kind in dict.fromkeys(pair.kind for pair in pairs):
        for name, rule in graders.items():
            judged = [(pair.right, rule(pair.gold, pair.answer)) for pair in pairs if pair.kind == kind]
            rejected, wrongly = judged.count((True, False)), judged.count((False, True))
            right, accepted = (sum(column) for column in zip(*judged, strict=True))
            rows.append(dict(zip(COLUMNS, (kind, name, len(judged), right, accepted, rejected, wrongly), strict=True)))
    return rows


def main() -> None:
    """Write the table and print where it is."""
    logging.getLogger("math_verify").setLevel(logging.ERROR)  # it warns at every call without a deadline of its own
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(table(rules(), list(all_pairs())))
    write_text_atomic(OUT, text.getvalue())
    print(OUT)


if __name__ == "__main__":
    main()
