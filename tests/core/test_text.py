"""Thoughts in the marks of many models are read as those in <think> tags."""

from __future__ import annotations

import time

import pytest

from r3l.core.text import after_thought, split_thought, with_think_tags

MARKED = {
    "Magistral": "[THINK]two[/THINK]4",
    "Seed-OSS": "<seed:think>two</seed:think>4",
    "Kimi": "\u25c1think\u25b7two\u25c1/think\u25b74",
    "Command A": "<|START_THINKING|>two<|END_THINKING|><|START_RESPONSE|>4",
    "Apertus": "<|inner_prefix|>two<|inner_suffix|>4",
    "Gemma 4": "<|channel>thought\ntwo<channel|>4",
    "gpt-oss": "<|channel|>analysis<|message|>two<|end|><|start|>assistant<|channel|>final<|message|>4",
    "gpt-oss, constrained": "<|channel|>analysis<|message|>two<|end|><|start|>assistant"
    "<|channel|>final <|constrain|>json<|message|>4",
    "gpt-oss without its control tokens": "analysistwoassistantfinal4",
}


@pytest.mark.parametrize("text", MARKED.values(), ids=MARKED)
def test_marks_of_other_models(text):
    assert with_think_tags(text) == "<think>two</think>4"
    opening = text.partition("two")[0]
    if "<" in opening or "[" in opening:  # also where the template has written the opening mark
        assert after_thought(with_think_tags(text.removeprefix(opening))) == "4"
        assert split_thought(with_think_tags(f"{opening}two")).after is None  # cut off


def test_two_thoughts_of_gpt_oss_are_one():
    calls = "<|channel|>commentary<|message|>plan<|end|><|start|>assistant"
    text = f"<|channel|>analysis<|message|>a<|end|><|start|>assistant{calls}<|channel|>final<|message|>4"
    assert after_thought(with_think_tags(text)) == "4"


@pytest.mark.parametrize(
    "text",
    [
        "<think>a</think>b",
        "4",
        "a [THINKING] b",
        "analysis: the assistant is final",
        "[think]",
        "an analysis final",
    ],
)
def test_other_texts_stay(text):
    assert with_think_tags(text) == text


@pytest.mark.parametrize(
    "text", ["<|channel|>analysis", "analysis" + "assistant", "[THINK]", "<|end|><|start|>"]
)
def test_a_long_text_takes_no_time(text):
    began = time.process_time()
    with_think_tags(text * 100_000)
    assert time.process_time() - began < 2
