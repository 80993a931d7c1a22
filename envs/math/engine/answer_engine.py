"""Mathematics as an environment: responses are graded by their answer, with our grader or the released one.

The grader of the paper's released code is kept with its defects, so that scores can be compared with the
paper's. It parses gold and answer as bare text (defect 2: LaTeX outside a box is lost; 51 of MATH-500's gold
answers are read as nothing), and on any exception of math-verify it compares lower-cased text. Its workflows
run in the asyncio thread of a Ray actor, where math-verify raises at every call, because it sets an alarm
(defect 1): what remains is text equality. Sources: audit B-26, B-27; workflows/dapo and eval_math of the
released code; math-verify 0.9.0.
"""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from functools import cache

from r3l.envs.base.action_parsers import first_between
from r3l.envs.base.answers import AnswerEngine, AnswerGrade, ResponseGrader, extract
from r3l.envs.math import MathOptions
from r3l.envs.math.engine.grader import compare_plainly
from r3l.envs.math.engine.grader_process import Grader

from r3l.core.task import Task
from r3l.core.text import with_opening


@cache
def _grader() -> Grader:
    """One grading process for each process of environments."""
    return Grader()


def response_grader(options: MathOptions) -> ResponseGrader:
    """A function (task, response) that finds the answer in a response and grades it by the task's ``answer``.

    ``options`` name the rules for both. Equal texts and numbers are compared here, others in a grading
    process with a time limit, which this starts when first needed.
    """

    def grade(task: Task, response: str) -> AnswerGrade:
        gold = str(task.payload["answer"])
        rule = options.extraction
        answer = answer_in(response) if rule == "released" else extract(response, rule)
        if options.grader == "released":
            return AnswerGrade(check_in_actor(gold, answer or ""), answer)
        if answer is None:
            return AnswerGrade(False, None)
        graded = compare_plainly(gold, answer)
        if graded is None:
            graded = _grader().grade(gold, answer)
        return AnswerGrade(graded.correct, answer)

    return grade


def create(options: MathOptions) -> AnswerEngine:
    """The engine of mathematics, with the extraction and grading that ``options`` name."""
    return AnswerEngine(options, response_grader(options))


_ANSWER_LINE = re.compile(r"Answer:\s*(.+)", re.IGNORECASE)


def answer_in(response: str) -> str | None:
    """The answer as the paper's released code reads it, or None.

    It is the content of the first answer tags (maybe empty), else the text after the first ``Answer:`` on its
    line, or if that is blank the next line with text. Tags and ``Answer:`` may be in any case and inside the
    thought. A box around the answer is kept. None for a response without a thought in tags.
    """
    text = with_opening(response.strip())
    if first_between(text, "think") is None:
        return None
    answer = first_between(text, "answer", any_case=True)
    if answer is None:
        line = _ANSWER_LINE.search(text)
        answer = line[1] if line else None
    return None if answer is None else answer.strip()


def check(gold: str, answer: str) -> bool:
    """Whether ``answer`` is right by the grading of the paper's released code, in the calling thread.

    In the main thread math-verify compares the values, which may take 15 s (three alarms of 5 s). In other
    threads it raises, so that lower-cased texts are compared. False if either is empty. Of ``gold`` only what
    follows its last ``#`` counts.
    """
    from math_verify import parse, verify

    if not gold or not answer:
        return False
    gold = gold.rpartition("#")[2].strip()
    try:
        return bool(verify(parse(gold), parse(answer)))
    except Exception:  # noqa: BLE001 - as in the release; outside the main thread this makes it text equality
        return gold.lower() == answer.strip().lower()


def check_in_actor(gold: str, answer: str) -> bool:
    """Whether ``answer`` is right, as the released training and evaluation grade it.

    They call :func:`check` outside the main thread, where math-verify's alarms fail, so it compares texts.
    """
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(check, gold, answer).result()
