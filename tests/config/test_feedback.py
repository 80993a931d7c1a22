"""The author of feedback is a setting of the method, and part of its name unless it is the model itself."""

import pytest

from r3l.config import feedback_source, method_label, names, planned_feedback_source, resolve, variant
from r3l.feedback.feedback import FeedbackSource
from r3l.workflow import plan

ENVIRONMENT, SELF, JUDGE = FeedbackSource.ENVIRONMENT, FeedbackSource.SELF, FeedbackSource.JUDGE


@pytest.mark.parametrize(
    ("place", "source"),
    [
        (("nano", "math", "rltf_sd"), SELF),
        (("nano", "math", "rltf_sd@feedback=environment"), ENVIRONMENT),
        (("nano", "math", "rltf_sd@profile=released_code"), JUDGE),
        (("nano", "math", "rltf_fm@profile=fair"), SELF),
        (("nano", "math", "r3l@profile=fair"), SELF),
        (("nano", "math", "critique_grpo@profile=fair"), SELF),
        (("rltf", "knights_knaves", "rltf_grpo"), SELF),
        (("rltf", "knights_knaves", "rltf_grpo@feedback=judge"), JUDGE),
        (("rltf", "knights_knaves", "rltf_grpo@profile=fair"), SELF),
        (("rltf", "knights_knaves", "r3l"), SELF),
        (("nano", "math", "r3l_no_reflection"), None),
        (("nano", "math", "zero_shot"), None),
    ],
)
def test_each_profile_has_its_source(place, source):
    assert feedback_source(resolve(*place, 0).method_settings) is source


def row_names(table):
    """Every row that a table can have."""
    return list(dict.fromkeys([*table.core, *table.methods]))


@pytest.mark.parametrize("tier", names("tiers"))
@pytest.mark.parametrize("name", [name for name, table in plan.tables().items() if table.methods])
def test_rows_of_a_table_learn_with_one_teacher_or_say_in_their_name_with_which(name, tier):
    for row in map(variant, row_names(plan.tables()[name])):
        source = planned_feedback_source(row, tier)
        assert source in (None, SELF) or f"feedback={source}" in row.changes, row.name
        named = f"feedback={source}" in row.name
        assert named == (f"feedback={source}" in method_label(row)) == (source not in (None, SELF)), row.name
