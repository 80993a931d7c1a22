"""Reflections: which reports count, what guides, and the pivot that a retry then has, in every environment.

The answer of either side: ``perfect``; ``none``, where no retry comes of it, for whatever reason; or the report as the
guidance prints it with the turns that the retry's mask leaves out.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np

from r3l.core.feedback import InvalidFeedback, ReflectionRules, parse_reflection
from r3l.core.seeds import generator
from r3l.original.clones import R3L
from r3l.released.check import Case, Check, Code, Namespace, Value, answer, pick

FOLDER = "trinity/common/workflows/envs/R3L"
WORKFLOW = f"{FOLDER}/qwen_math/R3L_workflow.py"  # those of the six environments read and mask by the same lines
METHODS = ("R3LQwenMathWorkflow.get_reflect", "R3LQwenMathWorkflow._adjust_action_mask_for_retry")
OURS = {  # the release's environments, and our names of them
    "alfworld": "alfworld",
    "scienceworld": "scienceworld",
    "webshop": "webshop",
    "dapo": "math",
    "qwen_math": "math",
    "countdown": "puzzles",
}
CASES = 6000  # of each environment; our choice

TEXTS = (None, None, "", "  ", "went to the sink", "gefäß 水", "all well", 0, True, ["a"], {"a": None})
UNWRITABLE = "\ud800"  # half of a surrogate pair
OUTCOMES = ("success", "success_but_inefficient", "failure")
ODD_OUTCOMES = ("Success", "partial", "", None, True, ["failure"], {"failure": 1}, 3)
PIVOTS = (True, False, 0.0, -0.0, -0.5, 0.5, 1.0, 1.5, -1, -1.5, 30.0, "0", "2", " 1 ", "1_0", "2.0", "two", "", "٣")
ODD_PIVOTS: tuple[Any, ...] = (None, [1], {}, float("nan"), float("inf"), float("-inf"), 10**30, "1" * 5000)
FRAMES = ("{}", "Here it is:\n```json\n{}\n```", "{} }}", "{{ {}", "{}\n{{}}", " \n{}\n ", "{} trailing words")
BROKEN = ("", "no report", "}} {{", "{{", "[1, 2]", "null", "{{'a': 1}}")


def reports(environment: str) -> Iterator[Case]:
    """A model's words after an episode of 1 to 6 turns: mostly a report with odd values, in every kind of frame."""
    for k in range(CASES):
        draw = generator("reflections", environment, k)
        document: dict[str, Any] = {
            "trajectory_summary": pick(draw, TEXTS),
            "root_cause_analysis": pick(draw, TEXTS),
            "trajectory_outcome": pick(draw, OUTCOMES if draw.random() < 0.9 else ODD_OUTCOMES),
            "improvement_suggestion": pick(draw, TEXTS) if draw.random() < 0.5 else "look first",
            "retry_from_step": _pivot(draw),
        }
        if draw.random() < 0.05:
            document["trajectory_summary"] = UNWRITABLE
        if draw.random() < 0.15:
            del document[pick(draw, tuple(document))]
        frame = FRAMES[0] if draw.random() < 0.8 else pick(draw, FRAMES)
        text = frame.format(json.dumps(document, ensure_ascii=bool(draw.random() < 0.5)))
        yield {"text": pick(draw, BROKEN) if draw.random() < 0.02 else text, "turns": int(draw.integers(1, 7))}


def theirs(released: Namespace, case: Case) -> Value:
    """Read, checked, printed and masked by the released definitions."""
    released["utils"] = SimpleNamespace(format_trajectory_for_reflection=lambda trajectory: "")
    written = SimpleNamespace(response_text=case["text"])
    model = SimpleNamespace(chat=lambda messages, **options: [written])
    template = SimpleNamespace(render=lambda report="": report)
    workflow = SimpleNamespace(model=model, reflection_template=template, temperature=1.0, max_reflect_tokens=1)
    released["_get_jinja_env"] = lambda: SimpleNamespace(get_template=lambda name: template)
    found = answer(_retry, released, released["get_reflect"](workflow, [])[0], case["turns"])
    # The workflow catches whatever goes wrong, and goes on without the retry.
    return "none" if isinstance(found, dict) and "raised" in found else found


def _retry(released: Namespace, document: Any, turns: int) -> Value:
    valid, perfect = released["validate_reflect_report"](document, turns)
    if not valid or perfect:
        return "perfect" if perfect else "none"
    guidance = released["reflect_report_to_guidance_prompt"](document)
    guidance.encode()  # as the tokenizer does
    return {"report": guidance, "pivot": _masked(released, document.get("retry_from_step", 0), turns)}


def ours(environment: str, case: Case) -> Value:
    """Under the profile."""
    from r3l.envs.registry import find_environment
    from r3l.released.ours import method_of
    from r3l.retry import guidance_text

    settings: Any = method_of("r3l").settings  # type: ignore[attr-defined]
    dialogue = find_environment(OURS[environment]).dialogue("compact", 1)
    rules = ReflectionRules(settings.reflection_schema, settings.coerce_pivot, not dialogue.suggestion_optional)
    parsed = parse_reflection(case["text"], case["turns"], rules)
    if isinstance(parsed, InvalidFeedback):
        return "none"
    if parsed.perfect:
        return "perfect"
    guidance = guidance_text(parsed, settings) or ""
    return {"report": guidance[guidance.index("{") : guidance.rindex("}") + 1], "pivot": parsed.pivot}


def _masked(released: Namespace, step: Any, turns: int) -> int:
    """The responses of an episode of ``turns`` that are masked when a retry starts at ``step``."""
    import torch

    if not step > 0:
        return 0
    mask = torch.tensor([0, 1] * turns)  # a response of one token after each observation
    released["_adjust_action_mask_for_retry"](None, SimpleNamespace(action_mask=mask), step)
    return turns - int(mask.sum())


def _pivot(draw: np.random.Generator) -> Any:
    kind = draw.random()
    if kind < 0.6:
        return int(draw.integers(0, 5))
    return pick(draw, PIVOTS if kind < 0.95 else ODD_PIVOTS)


def _check(environment: str) -> Check:
    functions = ("validate_reflect_report", "reflect_report_to_guidance_prompt")
    return Check(
        "reflections",
        environment,
        R3L,
        (Code(f"{FOLDER}/{environment}/utils.py", functions), Code(WORKFLOW, METHODS)),
        partial(reports, environment),
        theirs,
        partial(ours, environment),
    )


CHECKS = tuple(_check(environment) for environment in OURS)
