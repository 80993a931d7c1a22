"""Feedback: what was said of a finished episode, as it was read (r3l.core.reflections, r3l.baselines.critique)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from r3l.core.environment import Outcome
from r3l.core.option import OptionModel, option


class FeedbackSource(StrEnum):
    """Who writes the feedback between two attempts."""

    SELF = "self"  # the policy
    ENVIRONMENT = "environment"  # the environment's own critic; the policy where that has nothing to say
    JUDGE = "judge"  # a model behind a server (docs/feedback.md)


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
        """The document."""
        return self.document


@dataclass(frozen=True)
class ParsedCritique:
    """A critique as the guidance that is made from it."""

    guidance: str

    def as_json(self) -> Mapping[str, Any]:
        """``guidance``."""
        return {"guidance": self.guidance}


@dataclass(frozen=True)
class InvalidFeedback:
    """A reflection or critique that cannot be used, and the countable reason."""

    reason: str

    def as_json(self) -> Mapping[str, Any]:
        """The reason, as ``invalid``."""
        return {"invalid": self.reason}


Feedback = ParsedReflection | ParsedCritique | InvalidFeedback


def feedback_of(content: Mapping[str, Any]) -> Feedback:
    """What gave ``content`` by ``as_json``."""
    if "invalid" in content:
        return InvalidFeedback(content["invalid"])
    return ParsedCritique(content["guidance"]) if "guidance" in content else ParsedReflection.of(content)
