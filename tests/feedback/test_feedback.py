"""Reflection parsing: the audit's rules, and no exception on arbitrary strings."""

import json

import pytest
from conftest import make_trajectory
from hypothesis import given
from hypothesis import strategies as st
from scripted import report

from r3l.core.environment import Critique, Outcome
from r3l.core.task import Task
from r3l.feedback.feedback import InvalidFeedback, ParsedReflection, ReflectionRules, parse_reflection
from r3l.feedback.prompt_templates import PROMPTS
from r3l.files.digests import digest_of_all
from r3l.reflection import ReflectionSettings, reflection_text, shown_feedback
from r3l.retry import guidance_text

GOOD = report(2, improvement_suggestion="go to desk 1")


def parse(turns=5, **changes):
    return parse_reflection("noise " + json.dumps(GOOD | changes) + " tail", turns)


def test_a_valid_reflection():
    parsed = parse()
    assert isinstance(parsed, ParsedReflection)
    assert (parsed.outcome, parsed.pivot, parsed.suggestion) == ("failure", 2, "go to desk 1")
    assert not parsed.perfect and not parsed.coerced
    perfect = parse(trajectory_outcome="success", improvement_suggestion=None, retry_from_step=None)
    assert isinstance(perfect, ParsedReflection) and perfect.perfect and perfect.pivot is None


VALID, OTHER = json.dumps(GOOD), json.dumps(GOOD | {"improvement_suggestion": "a draft"})


@pytest.mark.parametrize(
    "text",
    [
        f"<think>It wants {{keys}} and a number.</think>{VALID}",
        f"It wants {{keys}} and a number.</think>{VALID}",  # the chat template opened the thought
        f"<think>{OTHER}</think>\n```json\n{VALID}\n```",
        f"<think>{OTHER[:60]}...</think>{VALID}",
        f"The rooms were {{hall, attic}}.\n{VALID}",
        f"{VALID}\nDone :-}}",
        f"A first try: {OTHER}\nBetter: {VALID}",
        f'{{"a": 1}} is no reflection. {VALID} {{}}',
    ],
)
def test_braces_in_a_thought_or_in_prose_lose_no_reflection(text):
    parsed = parse_reflection(text, 5)
    assert isinstance(parsed, ParsedReflection) and parsed.document == GOOD


@pytest.mark.parametrize(
    "cause", ["<think> was never closed", "no </think>", "<think>a</think><action>b</action>"]
)
def test_a_reflection_may_quote_tags(cause):
    for before in ("", "Here it is: "):
        assert (
            parse_reflection(before + json.dumps(GOOD | {"root_cause_analysis": cause}), 5).root_cause
            == cause
        )


@pytest.mark.parametrize("text", [f"<think>{VALID}", f"<think>{VALID}</think>", f"So {VALID}</think>No."])
def test_a_thought_is_no_reflection(text):
    assert parse_reflection(text, 5) == InvalidFeedback("no_json")


def test_a_critique_is_written_as_a_reflection_in_the_order_that_start_models_were_taught():
    text = reflection_text(Critique(Outcome.FAILURE, "s", "c", "go to desk 1", 2))
    assert text == json.dumps(GOOD) and parse_reflection(text, 3).document == GOOD
    perfect = reflection_text(Critique(Outcome.SUCCESS, "s", "c"))
    assert perfect.endswith(
        '"trajectory_outcome": "success", "improvement_suggestion": null, "retry_from_step": null}'
    )


IN_LINES = ReflectionRules("lines")


@pytest.mark.parametrize(
    "text",
    [
        "Outcome: failure\nCause: it went left\nSuggestion: go to desk 1\nStep: 2",
        "<think>Outcome: success</think>Here:\n**Outcome:** Failure.\n- cause : it went left\n"
        "**Suggestion**: go to desk 1 **\n2. Step: 2",
        reflection_text(Critique(Outcome.FAILURE, "s", "it went left", "go to desk 1", 2), "lines"),
    ],
)
def test_a_reflection_in_lines(text):
    parsed = parse_reflection(text, 5, IN_LINES)
    assert isinstance(parsed, ParsedReflection)
    assert (parsed.outcome, parsed.root_cause, parsed.pivot) == ("failure", "it went left", 2)
    assert parsed.suggestion == "go to desk 1"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("It failed.", "missing_root_cause_analysis"),
        ("Cause: c\nOutcome: unclear", "bad_outcome"),
        ("Cause: c\nOutcome: failure\nSuggestion: none", "missing_improvement_suggestion"),
        ("Cause: c\nOutcome: failure\nSuggestion: s", "missing_retry_from_step"),
        ("Cause: c\nOutcome: failure\nSuggestion: s\nStep: 5", "pivot_out_of_range"),
    ],
)
def test_lines_that_are_no_reflection(text, reason):
    assert parse_reflection(text, 5, IN_LINES) == InvalidFeedback(reason)


def test_lines_of_an_episode_of_one_step_name_none():
    parsed = parse_reflection(
        "Cause: c\nOutcome: failure\nSuggestion: s", 1, ReflectionRules("lines", one_step=True)
    )
    assert isinstance(parsed, ParsedReflection) and parsed.pivot == 0
    perfect = parse_reflection("Outcome: success\nCause: c", 1, IN_LINES)
    assert isinstance(perfect, ParsedReflection) and perfect.perfect


@pytest.mark.parametrize("raw", ["2", 2.0, " 2 "])
def test_pivot_is_coerced_once_and_marked(raw):
    parsed = parse(retry_from_step=raw)
    assert isinstance(parsed, ParsedReflection) and parsed.pivot == 2 and parsed.coerced
    assert parsed.document["retry_from_step"] == 2


@pytest.mark.parametrize("raw", [None, 1, "first", 0])
def test_where_episodes_have_one_step_it_is_the_pivot_whatever_is_named(raw):
    text = json.dumps(GOOD | {"retry_from_step": raw})
    parsed = parse_reflection(text, 1, ReflectionRules(one_step=True))
    assert isinstance(parsed, ParsedReflection) and parsed.pivot == 0 and parsed.coerced == (raw != 0)
    assert isinstance(parse_reflection(text, 1), ParsedReflection) == (raw == 0)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"trajectory_summary": None}, "missing_trajectory_summary"),
        ({"trajectory_outcome": "partial"}, "bad_outcome"),
        ({"trajectory_outcome": ["failure"]}, "bad_outcome"),
        ({"improvement_suggestion": None}, "missing_improvement_suggestion"),
        ({"improvement_suggestion": "  "}, "missing_improvement_suggestion"),
        ({"retry_from_step": None}, "missing_retry_from_step"),
        ({"retry_from_step": "two"}, "bad_retry_from_step"),
        ({"retry_from_step": 1.5}, "bad_retry_from_step"),
        ({"retry_from_step": True}, "bad_retry_from_step"),
        ({"retry_from_step": 5}, "pivot_out_of_range"),
        ({"retry_from_step": -1}, "pivot_out_of_range"),
        ({"retry_from_step": 10**400}, "pivot_out_of_range"),
    ],
)
def test_every_defect_has_a_reason(changes, reason):
    assert parse(**changes) == InvalidFeedback(reason)


@pytest.mark.parametrize(("text", "reason"), [("", "no_json"), ("} {", "no_json"), ("{a}", "bad_json")])
def test_text_without_json(text, reason):
    assert parse_reflection(text, 5) == InvalidFeedback(reason)


values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5)),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)


@pytest.mark.parametrize(
    "rules", [ReflectionRules(), ReflectionRules("released"), ReflectionRules("released", False)]
)
@given(content=st.fixed_dictionaries({}, optional=dict.fromkeys(GOOD, values)), turns=st.integers(1, 9))
def test_never_raises_on_any_json(rules, content, turns):
    parsed = parse_reflection(json.dumps(content), turns, rules)
    if isinstance(parsed, ParsedReflection) and not parsed.perfect:
        assert parsed.pivot is not None and 0 <= parsed.pivot < turns


RELEASED = ReflectionRules("released", coerce_pivot=False)


def released(rules=RELEASED, **changes):
    return parse_reflection(json.dumps(GOOD | changes), 5, rules)


def test_the_released_code_takes_a_perfect_report_with_nulls_as_its_prompt_asks_for():
    changes = dict.fromkeys(GOOD, None) | {"trajectory_outcome": "success"}
    parsed = released(**changes)
    assert isinstance(parsed, ParsedReflection) and parsed.perfect
    assert parse(**changes) == InvalidFeedback("missing_trajectory_summary")


@pytest.mark.parametrize("suggestion", ["", "  ", 7, ["a"], {}, False])
def test_the_released_code_takes_any_suggestion_that_is_there(suggestion):
    parsed = released(improvement_suggestion=suggestion, root_cause_analysis=None)
    assert isinstance(parsed, ParsedReflection) and (parsed.pivot, parsed.suggestion) == (2, str(suggestion))
    assert parse(improvement_suggestion=suggestion) == InvalidFeedback("missing_improvement_suggestion")


@pytest.mark.parametrize(("raw", "pivot"), [(True, 1), (False, 0), (0.0, 0), (-0.5, 0), (4, 4)])
def test_pivots_that_the_released_retry_can_use(raw, pivot):
    parsed = released(retry_from_step=raw)
    assert isinstance(parsed, ParsedReflection) and parsed.pivot == pivot and not parsed.coerced
    assert parsed.document["retry_from_step"] is raw or parsed.document["retry_from_step"] == raw


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (1.5, "retry_from_step_not_an_integer"),  # checked as 1; a response counter cannot go up to 1.5
        (3.0, "retry_from_step_not_an_integer"),
        ("3", "retry_from_step_not_an_integer"),
        ("3.0", "bad_retry_from_step"),
        ([3], "bad_retry_from_step"),
        (float("nan"), "bad_retry_from_step"),
        (float("inf"), "bad_retry_from_step"),
        (-1.0, "pivot_out_of_range"),
        (5.5, "pivot_out_of_range"),
    ],
)
def test_pivots_that_lose_the_released_retry(raw, reason):
    assert released(retry_from_step=raw) == InvalidFeedback(reason)


def test_released_guidance_is_the_report_as_it_was_written():
    parsed = released(trajectory_summary="gefäß", retry_from_step=True)
    text = guidance_text(parsed, ReflectionSettings(reflection_schema="released"))
    assert '"trajectory_summary": "gefäß"' in text and '"retry_from_step": true' in text
    assert "gef\\u00e4\\u00df" in guidance_text(parsed, ReflectionSettings())


def shown(sees, payload):
    base = make_trajectory(1)
    base.task, base.feedback = Task("t", "toy", "train", payload=payload), "not completed."
    return shown_feedback(base, sees)


def test_what_a_reflection_sees():
    assert shown("none", {"answer": 42}) == "(not shown)"
    assert shown("outcome", {"answer": 42}) == shown("answer", {}) == "not completed."
    assert shown("answer", {"answer": 42}) == "not completed. The correct answer is 42."


def test_lone_surrogates_in_its_json_are_replaced_and_told():
    parsed = parse(
        improvement_suggestion="go to \ud800desk\udfff 1", trajectory_summary="\udc80", extra=["\ud800"]
    )
    assert isinstance(parsed, ParsedReflection)
    assert (parsed.suggestion, parsed.summary, parsed.replaced) == ("go to \ufffddesk\ufffd 1", "\ufffd", 4)
    assert parsed.document["extra"] == ["\ufffd"] and parse().replaced == 0
    assert released(improvement_suggestion="\ud800") == InvalidFeedback("not_unicode")


@pytest.mark.parametrize("schema", ["strict", "released"])
def test_json_too_deep_to_be_written_again_is_invalid(schema):
    """Guidance prints the document, which recurses once per level."""
    for depth in (100, 900, 20_000):
        text = json.dumps(GOOD)[:-1] + ', "x": ' + "[" * depth + "]" * depth + "}"
        assert parse_reflection(text, 5, ReflectionRules(schema)) == InvalidFeedback("bad_json")


def test_templates_are_those_that_stored_runs_read():
    """They are in no fingerprint: a change of their words is a change of the methods, whose version tells."""
    texts = {path.stem: path for path in PROMPTS.glob("*.txt")}
    assert digest_of_all(texts) == "a0b23564f8a01789298e187c994abf99969c58606a893b19a9e0395cd7145810"
