"""Feedback: what was written about a finished episode, and the reading of a reflection.

A reflection is a JSON object in the model's words, or lines of ``Key: text`` where a model is too small for JSON. It is
valid when the required keys are there, the outcome is one of three words and, unless the outcome is ``success``, there
is a suggestion and a pivot that names a played turn.
(Critiques are read in r3l.baselines.critique.)
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Literal

from r3l.core.environment import Outcome
from r3l.core.option import OptionModel, option
from r3l.core.text import END_OF_THOUGHT, THOUGHT, after_thought, well_formed_json
from r3l.core.trajectory import Feedback

ReflectionSchema = Literal["strict", "released", "lines"]
REQUIRED = ("trajectory_summary", "root_cause_analysis", "trajectory_outcome")
LINES = {  # keys of the schema of that name, each at the beginning of a line, by what they are in JSON
    "trajectory_outcome": "Outcome",
    "root_cause_analysis": "Cause",
    "improvement_suggestion": "Suggestion",
    "retry_from_step": "Step",
}
_NAMES = {key.lower(): name for name, key in LINES.items()}
_LINE = re.compile(rf"^[\W\d]*({'|'.join(LINES.values())})\W*?:[ *]*(.*?)[ *]*$", re.IGNORECASE | re.MULTILINE)
NOTHING = ("", "-", "none", "null", "n/a")  # as values of a line


class FeedbackSource(StrEnum):
    """Who writes the feedback between two attempts."""

    SELF = "self"  # the policy
    ENVIRONMENT = "environment"  # the environment's own critic; the policy where that has nothing to say
    JUDGE = "judge"  # a model behind a server (docs/methods.md)


class FeedbackSettings(OptionModel):
    """What every method that reads feedback can be set to."""

    feedback: FeedbackSource = option(
        FeedbackSource.SELF,
        "who writes the reflection or critique (RLTF audit 4)",
        "R3L paper and released code, Critique-GRPO: the model itself (audit 1.10)",
    )


@dataclass(frozen=True)
class ParsedReflection:
    """A valid reflection. ``pivot`` (0-based turn) is None iff ``perfect``; ``suggestion`` may be missing elsewhere.

    ``document`` is the JSON object as it was written, which guidance may print; its pivot is one that ``int`` takes.
    ``replaced``: characters of it that were no Unicode.
    """

    summary: str
    root_cause: str
    outcome: Outcome
    suggestion: str | None
    pivot: int | None
    document: Mapping[str, Any]
    coerced: bool = False
    replaced: int = 0

    @classmethod
    def of(cls, document: Mapping[str, Any], coerced: bool = False) -> ParsedReflection:
        """That of a document which is known to be valid."""
        perfect = document["trajectory_outcome"] == Outcome.SUCCESS
        suggestion = None if perfect else document.get("improvement_suggestion")
        return cls(
            summary=str(document["trajectory_summary"]),
            root_cause=str(document["root_cause_analysis"]),
            outcome=Outcome(document["trajectory_outcome"]),
            suggestion=None if suggestion is None else str(suggestion),
            pivot=None if perfect else int(document["retry_from_step"]),
            document=document,
            coerced=coerced,
        )

    @property
    def perfect(self) -> bool:
        """The reflection says that nothing needs improving."""
        return self.outcome is Outcome.SUCCESS

    def as_json(self) -> Mapping[str, Any]:
        return self.document


@dataclass(frozen=True)
class ParsedCritique:
    """A critique as the guidance that is made from it."""

    guidance: str

    def as_json(self) -> Mapping[str, Any]:
        return {"guidance": self.guidance}


@dataclass(frozen=True)
class InvalidFeedback:
    """A reflection or critique that cannot be used, and the countable reason."""

    reason: str

    def as_json(self) -> Mapping[str, Any]:
        return {"invalid": self.reason}


def feedback_of(content: Mapping[str, Any]) -> Feedback:
    """What gave ``content`` by ``as_json``."""
    if "invalid" in content:
        return InvalidFeedback(content["invalid"])
    return ParsedCritique(content["guidance"]) if "guidance" in content else ParsedReflection.of(content)


@dataclass(frozen=True)
class ReflectionRules:
    """When a reflection is valid.

    ``strict``: values are there, and of the kind that the prompt asks for. ``lines``: the same of LINES.
    ``released``: keys are there, whatever their values, and a pivot is anything that Python's ``int`` takes (audit
    B-41). ``coerce_pivot``: one that the released code cannot use is read as that integer; without it, it is invalid,
    as the released retry then fails (audit B-16). ``suggestion``: whether a retry needs one. ``one_step``: episodes
    have one, so with ``coerce_pivot`` it is the pivot whatever is named (not in ``released``).
    """

    schema: ReflectionSchema = "strict"
    coerce_pivot: bool = True
    suggestion: bool = True
    one_step: bool = False


STRICT = ReflectionRules()
NO_JSON = InvalidFeedback("no_json")
BAD_JSON = InvalidFeedback("bad_json")
MOST_BRACES = 1_000  # places where an object is looked for; ours: no reflection has as many


def parse_reflection(text: str, turns: int, rules: ReflectionRules = STRICT) -> ParsedReflection | InvalidFeedback:
    """Read a reflection of a trajectory of ``turns`` responses. Never raises on any string.

    The JSON is what stands between the first "{" and the last "}" (released code). Under our schema a thought before it
    does not count, and where braces of prose stand beside the object, the last one that is a valid reflection does.
    """
    if rules.schema == "lines":
        return _judged(_in_lines(after_thought(text)), turns, rules)
    ours = rules.schema == "strict"
    response = after_thought(text) if ours and not text.lstrip().startswith("{") else text
    start, end = response.find("{"), response.rfind("}")
    whole = _read_document(response[start : end + 1], turns, rules) if 0 <= start < end else NO_JSON
    if ours and whole in (NO_JSON, BAD_JSON):
        quoting = (found for found in _objects(text) if THOUGHT in found or END_OF_THOUGHT in found)
        read = [_read_document(found, turns, rules) for found in (*quoting, *_objects(response))]
        return next((parsed for parsed in reversed(read) if isinstance(parsed, ParsedReflection)), whole)
    return whole


def reflection_lines(document: Mapping[str, Any]) -> str:
    return "\n".join(f"{key}: {document[name]}" for name, key in LINES.items() if document.get(name) is not None)


def _in_lines(text: str) -> dict[str, Any]:
    """The document that lines hold; the last of a kind counts. They have no summary."""
    found = {_NAMES[key.lower()]: value for key, value in _LINE.findall(text) if value.lower() not in NOTHING}
    if outcome := found.get("trajectory_outcome"):
        found["trajectory_outcome"] = "_".join(re.findall(r"[a-z]+", outcome.lower()))
    return {"trajectory_summary": "", **found}


def _objects(text: str) -> Iterator[str]:
    """The outermost JSON objects in a text, from left to right."""
    decoder, at = json.JSONDecoder(), 0
    for _ in range(MOST_BRACES):
        at = text.find("{", at)
        if at < 0:
            return
        try:
            _, end = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            end = at + 1
        else:
            yield text[at:end]
        at = end


def _read_document(text: str, turns: int, rules: ReflectionRules) -> ParsedReflection | InvalidFeedback:
    try:
        document, replaced = well_formed_json(json.loads(text))
    except (ValueError, RecursionError):
        return BAD_JSON
    parsed = _judged(document, turns, rules)
    if not replaced or isinstance(parsed, InvalidFeedback):
        return parsed
    if rules.schema == "released" and not parsed.perfect:  # a prompt that prints it cannot be sent
        return InvalidFeedback("not_unicode")
    return replace(parsed, replaced=replaced)


def _judged(document: Mapping[str, Any], turns: int, rules: ReflectionRules) -> ParsedReflection | InvalidFeedback:
    released = rules.schema == "released"
    missing = [key for key in REQUIRED if key not in document or (document[key] is None and not released)]
    if missing:
        return InvalidFeedback(f"missing_{missing[0]}")
    outcome = document["trajectory_outcome"]
    if outcome not in tuple(Outcome):
        return InvalidFeedback("bad_outcome")
    if outcome == Outcome.SUCCESS:
        return ParsedReflection.of(document)
    return _released(document, turns, rules) if released else _strict(document, turns, rules)


def _strict(document: Mapping[str, Any], turns: int, rules: ReflectionRules) -> ParsedReflection | InvalidFeedback:
    suggestion = document.get("improvement_suggestion")
    if not isinstance(suggestion, str) or not suggestion.strip():
        return InvalidFeedback("missing_improvement_suggestion")
    raw = document.get("retry_from_step")
    pivot = 0 if rules.one_step and rules.coerce_pivot else _integer(raw)
    if pivot is None:
        return InvalidFeedback("missing_retry_from_step" if raw is None else "bad_retry_from_step")
    if not 0 <= pivot < turns:
        return InvalidFeedback("pivot_out_of_range")
    coerced = not isinstance(raw, int) or raw != pivot
    if coerced and not rules.coerce_pivot:
        return InvalidFeedback("retry_from_step_not_an_integer")
    return ParsedReflection.of({**document, "retry_from_step": pivot}, coerced)


def _released(document: Mapping[str, Any], turns: int, rules: ReflectionRules) -> ParsedReflection | InvalidFeedback:
    if rules.suggestion and document.get("improvement_suggestion") is None:
        return InvalidFeedback("missing_improvement_suggestion")
    raw = document.get("retry_from_step")
    if raw is None:
        return InvalidFeedback("missing_retry_from_step")
    try:
        pivot = int(raw)
    except (ValueError, TypeError, OverflowError):
        return InvalidFeedback("bad_retry_from_step")
    if not 0 <= pivot < turns:
        return InvalidFeedback("pivot_out_of_range")
    # Its retry asks whether the value as written is above 0, and counts responses up to it if so.
    usable = isinstance(raw, int) or (isinstance(raw, float) and raw <= 0)
    if not usable and not rules.coerce_pivot:
        return InvalidFeedback("retry_from_step_not_an_integer")
    return ParsedReflection.of(document, coerced=not usable)


def _integer(value: Any) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    if isinstance(value, int):
        return value
    try:
        number = float(value)
    except ValueError:
        return None
    return int(number) if number.is_integer() else None
