"""Feedback on a finished episode: its types, and the parser of reflections.

A reflection is a JSON object written by the model, or lines of ``Key: text`` for a model too small to write
JSON. It is valid if it has the required keys, its outcome is one of three words and, unless the outcome is
``success``, it has a suggestion and a pivot that names a turn of the episode. Critiques are parsed in
r3l.baselines.critique.
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
# Keys of the schema ``lines``, each at the beginning of a line, by their JSON keys.
LINES = {
    "trajectory_outcome": "Outcome",
    "root_cause_analysis": "Cause",
    "improvement_suggestion": "Suggestion",
    "retry_from_step": "Step",
}
_NAMES = {key.lower(): name for name, key in LINES.items()}
# One line, also as a list item or in bold: (key, value).
_LINE = re.compile(
    rf"^[\W\d]*({'|'.join(LINES.values())})\W*?:[ *]*(.*?)[ *]*$",
    flags=re.IGNORECASE | re.MULTILINE,
)
NOTHING = ("", "-", "none", "null", "n/a")  # values of a line that mean null


class FeedbackSource(StrEnum):
    """Author of the feedback between two attempts.

    ``self``: the policy. ``environment``: the environment's own critic, or the policy if the critic has no
    comment. ``judge``: another model, behind a server (docs/methods.md).
    """

    SELF = "self"
    ENVIRONMENT = "environment"
    JUDGE = "judge"


class FeedbackSettings(OptionModel):
    """Options of every method that uses feedback.

    ``feedback``: its author, ``self`` (the policy), ``environment`` (its own critic) or ``judge`` (another
    model).
    """

    feedback: FeedbackSource = option(
        FeedbackSource.SELF,
        "who writes the reflection or critique (RLTF audit 4)",
        "R3L paper and released code, Critique-GRPO: the model itself (audit 1.10)",
    )


@dataclass(frozen=True)
class ParsedReflection:
    """A valid reflection.

    - ``pivot``: the turn (0-based) to retry from; None if and only if the reflection is ``perfect``.
    - ``suggestion``: what to do there; None if perfect, or if the released schema allows it to be missing.
    - ``document``: the JSON object, which guidance may show: as written, but with the pivot as an integer
      (not under the released schema).
    - ``coerced``: the pivot was not written as an integer (``"3"``, ``3.0``), or was replaced by 0 in an
      episode of one turn.
    - ``replaced``: number of lone surrogates in it that became U+FFFD.
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
        """The reflection in ``document``, a JSON object that is known to be valid.

        ``coerced``: as in the class.
        """
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
        """Whether its outcome is ``success`` (not ``success_but_inefficient``): nothing to improve."""
        return self.outcome is Outcome.SUCCESS

    def as_json(self) -> Mapping[str, Any]:
        """The reflection's JSON object, ``document``."""
        return self.document


@dataclass(frozen=True)
class ParsedCritique:
    """A valid critique. ``guidance``: the text made from it that guides the second attempt."""

    guidance: str

    def as_json(self) -> Mapping[str, Any]:
        """The JSON object ``{"guidance": text}``."""
        return {"guidance": self.guidance}


@dataclass(frozen=True)
class InvalidFeedback:
    """A reflection or critique that cannot be used.

    ``reason``: why, as a word under which metrics count it, such as ``no_json``.
    """

    reason: str

    def as_json(self) -> Mapping[str, Any]:
        """The JSON object ``{"invalid": reason}``."""
        return {"invalid": self.reason}


def feedback_from_json(content: Mapping[str, Any]) -> Feedback:
    """The feedback whose ``as_json`` gave ``content``: a reflection, a critique or InvalidFeedback.

    ``content`` is not validated: a missing key raises KeyError, an unknown outcome ValueError.
    """
    if "invalid" in content:
        return InvalidFeedback(content["invalid"])
    if "guidance" in content:
        return ParsedCritique(content["guidance"])
    return ParsedReflection.of(content)


@dataclass(frozen=True)
class ReflectionRules:
    """Rules by which a reflection is valid.

    - ``schema``: ``strict`` asks for values of the types that the prompt names, ``lines`` for the same in
      four lines of ``Key: text``; ``released`` asks only for keys, and for a pivot that Python's ``int``
      accepts (audit B-41).
    - ``coerce_pivot``: read a pivot that the released code cannot use ("3", 3.0) as that integer. Without it
      the reflection is invalid, since the released retry fails (audit B-16).
    - ``suggestion``: whether ``released`` requires a suggestion; the other schemas always do.
    - ``one_step``: episodes have one turn, so under ``coerce_pivot`` that turn is the pivot (not in
      ``released``).
    """

    schema: ReflectionSchema = "strict"
    coerce_pivot: bool = True
    suggestion: bool = True
    one_step: bool = False


STRICT = ReflectionRules()
NO_JSON = InvalidFeedback("no_json")
BAD_JSON = InvalidFeedback("bad_json")
MOST_BRACES = 1_000  # most places where a JSON object is searched; our choice, more than any reflection has


def parse_reflection(
    text: str,
    turns: int,
    rules: ReflectionRules = STRICT,
) -> ParsedReflection | InvalidFeedback:
    """Parse a reflection on an episode of ``turns`` turns.

    Accepts any string and never raises; a text that is not valid by ``rules`` gives InvalidFeedback. The JSON
    object may be between other text; under schema ``strict`` a thought before it is ignored, and of
    several valid objects the last counts. A pivot must be from 0 to ``turns`` - 1.
    """
    # Lines of ``Key: text``: a document without summary. Of a repeated key the last line counts.
    if rules.schema == "lines":
        found = {"trajectory_summary": ""}
        for key, value in _LINE.findall(after_thought(text)):
            if value.lower() not in NOTHING:
                found[_NAMES[key.lower()]] = value
        if "trajectory_outcome" in found:
            words = re.findall(r"[a-z]+", found["trajectory_outcome"].lower())
            found["trajectory_outcome"] = "_".join(words)
        return _validated(found, turns, rules)

    # The JSON object is the text from the first "{" to the last "}" (released code). Our schema ignores a
    # thought.
    strict = rules.schema == "strict"
    response = after_thought(text) if strict and not text.lstrip().startswith("{") else text
    start = response.find("{")
    end = response.rfind("}")
    parsed = _parse_json(response[start : end + 1], turns, rules) if 0 <= start < end else NO_JSON
    if not strict or parsed not in (NO_JSON, BAD_JSON):
        return parsed

    # Prose with braces around the object: take the last object that is a valid reflection. An object that
    # quotes thought tags was cut by after_thought, so it is searched for in the complete text.
    quoting = (found for found in _json_objects(text) if THOUGHT in found or END_OF_THOUGHT in found)
    candidates = [_parse_json(found, turns, rules) for found in (*quoting, *_json_objects(response))]
    valid = [candidate for candidate in candidates if isinstance(candidate, ParsedReflection)]
    return valid[-1] if valid else parsed


def reflection_lines(document: Mapping[str, Any]) -> str:
    """A reflection's JSON object as text in the schema ``lines``, one ``Key: text`` per line.

    The summary is left out, and so are missing keys and null values.
    """
    values = {key: document.get(name) for name, key in LINES.items()}
    return "\n".join(f"{key}: {value}" for key, value in values.items() if value is not None)


def _json_objects(text: str) -> Iterator[str]:
    """The texts of the outermost JSON objects in a text, from left to right."""
    decoder = json.JSONDecoder()
    at = 0
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


def _parse_json(text: str, turns: int, rules: ReflectionRules) -> ParsedReflection | InvalidFeedback:
    """The reflection in ``text``, which should be one JSON object."""
    try:
        document, replaced = well_formed_json(json.loads(text))
    except (ValueError, RecursionError):
        return BAD_JSON
    parsed = _validated(document, turns, rules)
    if not replaced or isinstance(parsed, InvalidFeedback):
        return parsed
    if rules.schema == "released" and not parsed.perfect:  # its guidance prints the document
        return InvalidFeedback("not_unicode")
    return replace(parsed, replaced=replaced)


def _validated(
    document: Mapping[str, Any],
    turns: int,
    rules: ReflectionRules,
) -> ParsedReflection | InvalidFeedback:
    """The reflection in ``document``, the parsed JSON or lines, or the first rule that it breaks."""
    released = rules.schema == "released"
    missing = [key for key in REQUIRED if key not in document or (document[key] is None and not released)]
    if missing:
        return InvalidFeedback(f"missing_{missing[0]}")
    outcome = document["trajectory_outcome"]
    if outcome not in tuple(Outcome):
        return InvalidFeedback("bad_outcome")
    if outcome == Outcome.SUCCESS:
        return ParsedReflection.of(document)
    if released:
        return _validated_released(document, turns, rules)
    return _validated_strict(document, turns, rules)


def _validated_strict(
    document: Mapping[str, Any],
    turns: int,
    rules: ReflectionRules,
) -> ParsedReflection | InvalidFeedback:
    """Suggestion and pivot by the schemas ``strict`` and ``lines``: a text, and a turn of the episode."""
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


def _validated_released(
    document: Mapping[str, Any],
    turns: int,
    rules: ReflectionRules,
) -> ParsedReflection | InvalidFeedback:
    """Suggestion and pivot by the released code: any suggestion but null, any pivot that ``int`` accepts."""
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
    # The released retry compares the value as written with 0 and counts responses up to it, so a string or a
    # positive float makes it fail.
    usable = isinstance(raw, int) or (isinstance(raw, float) and raw <= 0)
    if not usable and not rules.coerce_pivot:
        return InvalidFeedback("retry_from_step_not_an_integer")
    return ParsedReflection.of(document, coerced=not usable)


def _integer(value: Any) -> int | None:
    """The integer that a JSON number or string means, else None."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    if isinstance(value, int):
        return value
    try:
        number = float(value)
    except ValueError:
        return None
    return int(number) if number.is_integer() else None
