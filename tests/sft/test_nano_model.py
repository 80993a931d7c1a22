"""The nano model's tokenizer: names with their numbers as one token."""

import pytest

from r3l.sft.nano_model import build_tokenizer

TEXTS = ["You arrive at desk 1. On the desk 1, you see a mug 1, and a mug 2.", "go to desk 1, take mug 2"] * 4


@pytest.mark.parametrize("numbered, tokens", [(True, [" mug 2"]), (False, [" mug", " 2"])])
def test_a_numbered_name_is_one_token_where_that_is_asked_for(numbered, tokens):
    tokenizer = build_tokenizer(TEXTS, numbered)
    assert [tokenizer.decode([token]) for token in tokenizer(" mug 2")["input_ids"]] == tokens


@pytest.mark.parametrize("text", ["a mug 17 and b0419, step\n3: 12 %", "Mug 1 MUG 2é  desk 1.5"])
def test_any_text_comes_back_as_it_was(text):
    tokenizer = build_tokenizer(TEXTS, True)
    assert tokenizer.decode(tokenizer(text)["input_ids"]) == text
