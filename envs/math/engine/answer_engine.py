"""Mathematics as an environment: a response is graded by its answer, by our rule or by the release's.

The release's rule is kept with its defects, so that its scores can be told from those of a grader. It reads gold and
answer as bare text (defect 2: LaTeX outside a box is lost; 51 of MATH-500's golds read as nothing), and takes any
exception of math-verify for a reason to compare lower-cased text. Its workflows run in the asyncio thread of a Ray
actor, where math-verify raises at every call because it sets an alarm (defect 1): what is left there is text equality.
Sources: audit B-26, B-27; workflows/dapo and eval_math of the release; math-verify 0.9.0.
"""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from functools import cache

from r3l.envs.base.action_parsers import first_between
from r3l.envs.base.answers import AnswerEngine, AnswerGrade, ResponseGrader, extract
from r3l.envs.math import Extraction, MathOptions
from r3l.envs.math.engine.grader import compare_plainly
from r3l.envs.math.engine.grader_process import Grader

from r3l.core.task import Task
from r3l.core.text import with_opening


@cache
def _grader() -> Grader:
    """One grading process for each process of environments."""
    return Grader()


def response_grader(options: MathOptions) -> ResponseGrader:
    """How a response is graded under ``options``. Plain texts and numbers need no grading process."""

    def grade(task: Task, response: str) -> AnswerGrade:
        gold, answer = str(task.payload["answer"]), _answer(response, options.extraction)
        if options.grader == "released":
            return AnswerGrade(check_in_actor(gold, answer or ""), answer)
        if answer is None:
            return AnswerGrade(False, None)
        graded = compare_plainly(gold, answer) or _grader().grade(gold, answer)
        return AnswerGrade(graded.correct, answer)

    return grade


def _answer(response: str, rule: Extraction) -> str | None:
    return answer_in(response) if rule == "released" else extract(response, rule)


def create(options: MathOptions) -> AnswerEngine:
    return AnswerEngine(options, response_grader(options))


_ANSWER_LINE = re.compile(r"Answer:\s*(.+)", re.IGNORECASE)


def answer_in(response: str) -> str | None:
    """What stands in the first answer tags, else after the first ``Answer:``, the thinking included; box and all.

    None without either, and without thinking in its tags. Nothing between answer tags is an answer.
    """
    text = with_opening(response.strip())
    if first_between(text, "think") is None:
        return None
    answer = first_between(text, "answer", any_case=True)
    if answer is None and (line := _ANSWER_LINE.search(text)):
        answer = line[1]
    return None if answer is None else answer.strip()


def check(gold: str, answer: str) -> bool:
    """The released rule, in whatever thread this is called; in the main thread it may take 15 s (three alarms of 5)."""
    from math_verify import parse, verify

    if not gold or not answer:
        return False
    gold = gold.rpartition("#")[2].strip()
    try:
        return bool(verify(parse(gold), parse(answer)))
    except Exception:  # noqa: BLE001 - the release does so; this is what makes it text equality outside the main thread
        return gold.lower() == answer.strip().lower()


def check_in_actor(gold: str, answer: str) -> bool:
    """The released rule where training and evaluation call it: in a thread that is not the main one."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(check, gold, answer).result()
