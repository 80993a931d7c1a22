"""Who wrote the feedback of a run: of stored ones too, whose manifests are older than the setting ``feedback``.

Fingerprints keep the words of stored runs: who wrote critiques was ``critic``, and reflections were the policy's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from r3l.core.feedback import FeedbackSource

CRITIC = {FeedbackSource.SELF: "model", FeedbackSource.ENVIRONMENT: "environment_or_model"}
Settings = Mapping[str, Any]  # of a method, as a manifest has them


def feedback_source(settings: Settings) -> FeedbackSource | None:
    """Who is to write the feedback that a method reads; None where it reads none."""
    if settings.get("retries") == 0 or not {"feedback", "critic", "reflect_when"} & settings.keys():
        return None
    if "feedback" in settings:
        return FeedbackSource(settings["feedback"])
    critics = {word: source for source, word in CRITIC.items()}
    return critics[settings["critic"]] if "critic" in settings else FeedbackSource.SELF


def in_words_of_today(settings: Settings) -> dict[str, Any]:
    """``settings`` of any run with the setting ``feedback``."""
    if "feedback" in settings or (source := feedback_source(settings)) is None:
        return dict(settings)
    return {key: value for key, value in settings.items() if key != "critic"} | {"feedback": source.value}


def in_words_of_fingerprints(settings: Settings) -> dict[str, Any]:
    """``settings`` of any run as stored runs have them; a source that those did not know stands there as it is."""
    if "feedback" not in settings:
        return dict(settings)
    source = FeedbackSource(settings["feedback"])
    others = {key: value for key, value in settings.items() if key != "feedback"}
    if "reflect_when" in settings:
        return others if source is FeedbackSource.SELF else {**others, "feedback": source.value}
    return {**others, "critic": CRITIC.get(source, source.value)}
