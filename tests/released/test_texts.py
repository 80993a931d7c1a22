"""Texts of the release: which files are accepted, and which strings are read."""

import pytest
from jinja2.exceptions import SecurityError

from r3l.core.errors import ConfigError
from r3l.released import texts as release_texts
from r3l.released.texts import FOLDER, read, render, texts

UTILS = f"{FOLDER}/alfworld/utils.py"
REVIEW = f"{FOLDER}/alfworld/prompts/reflection.j2"


def test_without_a_clone_the_error_says_how_to_get_one(monkeypatch):
    release_texts.read.cache_clear()
    monkeypatch.delenv("R3L_RELEASE", raising=False)
    with pytest.raises(
        ConfigError, match="git clone https://github.com/shiweijiezero/R3L && git -C R3L checkout"
    ):
        read(REVIEW)


def test_another_text_is_not_and_is_named(clone):
    (clone / REVIEW).write_text("Review it!\n")
    with pytest.raises(ConfigError, match="alfworld/prompts/reflection.j2 is not the release's"):
        read(REVIEW)


def test_strings_of_a_function_by_their_expressions_and_use(clone):
    """The file would end a process that runs it; printed strings are skipped."""
    (again,) = texts(UTILS, "first_rollout", "repeated_action")
    assert (again.fill({"repeated_action": "look"}), again.used) == ("again look", "feedback")
    assert [text.fill({}) for text in texts(UTILS, "parse_response", used="return")] == [
        "no tags",
        "no thought",
        "no action",
    ]
    with pytest.raises(ConfigError, match="first_rollout has no text with nobody"):
        texts(UTILS, "first_rollout", "nobody")
    with pytest.raises(ConfigError, match="no function third_rollout"):
        texts(UTILS, "third_rollout")


def test_templates_are_rendered_in_a_sandbox(monkeypatch):
    monkeypatch.setattr(release_texts, "read", lambda path: "{% if True %}\na {{ b }}\n{% endif %}\n")
    assert render("made up", b=1.0) == "a 1.0\n"
    monkeypatch.setattr(release_texts, "read", lambda path: "{{ ''.__class__.__mro__ }}")
    with pytest.raises(SecurityError):
        render("made up")
