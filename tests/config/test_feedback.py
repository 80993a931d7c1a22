"""Who wrote the feedback of a run, and the fingerprints of runs that are older than the setting."""

import pytest

from r3l.config import resolve
from r3l.config.feedback import feedback_source, in_words_of_today
from r3l.core.feedback import FeedbackSource
from r3l.core.files import read_json
from r3l.core.paths import ROOT

STORED = ROOT / "results" / "stored" / "nano" / "math" / "nano_math"
ENVIRONMENT, SELF, JUDGE = FeedbackSource.ENVIRONMENT, FeedbackSource.SELF, FeedbackSource.JUDGE


@pytest.mark.parametrize(
    ("method", "source"),
    [("grpo", None), ("r3l", SELF), ("reflect_grpo", SELF), ("critique_grpo", SELF), ("rltf_fm", ENVIRONMENT)],
)
def test_stored_runs_keep_their_fingerprint_and_say_who_wrote(method, source):
    manifest = read_json(STORED / method / "seed0" / "manifest.json")
    stored, run = manifest["run"]["method_settings"], resolve("nano", "math", method, 0)
    assert "feedback" not in stored
    assert run.fingerprint(manifest.get("corrections", [])) == manifest["fingerprint"]
    assert feedback_source(stored) is feedback_source(run.method_settings) is source
    assert in_words_of_today(stored).get("feedback") == run.method_settings.get("feedback")


@pytest.mark.parametrize("method", ["r3l", "reflect_grpo", "critique_grpo", "rltf_sd", "rltf_grpo"])
def test_another_source_is_another_run(method):
    settings = [[f"method_settings.feedback={source}"] for source in FeedbackSource]
    prints = {resolve("nano", "math", method, 0, overrides=own).fingerprint() for own in settings}
    assert len(prints) == 3 and resolve("nano", "math", method, 0).fingerprint() in prints


@pytest.mark.parametrize(
    ("place", "source"),
    [
        (("nano", "math", "rltf_sd"), ENVIRONMENT),
        (("nano", "math", "rltf_sd@profile=released_code"), JUDGE),
        (("nano", "math", "rltf_fm@profile=fair"), SELF),
        (("nano", "math", "r3l@profile=fair"), SELF),
        (("nano", "math", "critique_grpo@profile=fair"), SELF),
        (("rltf", "knights_knaves", "rltf_grpo"), JUDGE),
        (("rltf", "knights_knaves", "rltf_grpo@profile=fair"), SELF),
        (("rltf", "knights_knaves", "r3l"), SELF),
        (("nano", "math", "r3l_no_reflection"), None),
        (("nano", "math", "zero_shot"), None),
    ],
)
def test_each_profile_has_its_source(place, source):
    assert feedback_source(resolve(*place, 0).method_settings) is source
