"""Answers as many servers write them, from a real HTTP server: ends, thoughts, counts, and bounds."""

import gzip
import json

import pytest
from chat_requests import ask, choice, said
from chat_server import completion, serving

from r3l.core.policy import FinishReason, Usage
from r3l.endpoint import connection
from r3l.endpoint.options import ServerError
from r3l.endpoint.responses import ChatAnswer, TokenAnswer, UnusableAnswer


def test_what_servers_add_or_leave_out():
    message = {"content": "4", "reasoning_content": "two and two"}
    answers = [
        (200, {"choices": [{"message": message, "finish_reason": "length"}]}),
        (200, {"choices": [{"message": {"content": "4", "reasoning": "2, 2"}, "finish_reason": "stop"}]}),
        (200, {"choices": [choice("4")], "usage": None}),
        (200, {"choices": [choice("4")], "usage": {"prompt_tokens": None, "completion_tokens": None}}),
        (200, {"choices": [choice("4")], "usage": {"prompt_tokens": 7, "completion_tokens": None}}),
        (200, {"choices": [choice("5", index=1), choice("4", index=0), choice("6", index=2)]}),
        (200, {"choices": [choice("4", index=3)]}),
    ]
    counts = {}
    with serving(lambda request, before: answers[before]) as (url, _):
        assert said(ask(url)) == ("<think>two and two</think>4", FinishReason.LENGTH, None)
        assert said(ask(url)) == ("<think>2, 2</think>4", FinishReason.END, None)
        assert said(ask(url, counts)) == ("4", FinishReason.END, None) and counts == {
            "requests": 1,
            "uncounted": 1,
        }
        assert said(ask(url)) == ("4", FinishReason.END, None)
        assert said(ask(url)) == ("4", FinishReason.END, Usage(7, 0))
        assert said(ask(url)) == ("4", FinishReason.END, None)
        assert said(ask(url)) == ("4", FinishReason.END, None)


END_MARKS = ["<|im_end|>", "<|end|>\n", "</s>", "<end_of_turn>", "<|eot_id|><|end_of_text|>"]
# DeepSeek's, Gemma 4's, Seed-OSS's, EXAONE's, Hunyuan's
END_MARKS += [
    "<\uff5cend\u2581of\u2581sentence\uff5c>",
    "<turn|>",
    "<seed:eos>",
    "[|endofturn|]",
    "<\uff5chy_eos\uff5c>",
]
# Nemotron's, MiniMax's, CodeLlama's, InternLM's, Yuan's; many of them, or with many blanks
END_MARKS += ["<SPECIAL_12>", "<extra_id_1>", "[e~[", "<EOT>", "<eoa>", "<eod>", "<|im_end|>" * 9]
END_MARKS += ["<|im_end|>" + 6 * "\n", "<eos>" + 40 * "<pad>"]


@pytest.mark.parametrize("mark", END_MARKS)
def test_an_end_of_turn_that_the_server_leaves_in_the_text_is_taken_off(mark):
    """Otherwise the next prompt would have it twice."""
    counts, text = {}, "<action>look</action>"
    with serving(lambda request, before: completion(text + mark)) as (url, _):
        assert said(ask(url, counts))[0] == text and counts["end_marks"] == 1
    for kept in (
        text,
        "a <|b|> c",
        "x<y>",
        "<s>",
        "<answer>4</answer>",
        "|x|>",
        "[4]",
        "a <eos> b",
        "[[x|y]]",
    ):
        with serving(lambda request, before, kept=kept: completion(kept)) as (url, _):
            assert said(ask(url))[0] == kept


@pytest.mark.parametrize(
    ("content", "reason"), [(None, "length"), ("", "length"), ("", "stop"), (None, "stop")]
)
def test_a_thought_that_was_cut_off_is_not_closed(content, reason):
    message = {"content": content, "reasoning_content": "two and"}
    ended = FinishReason.LENGTH if reason == "length" else FinishReason.END
    with serving(
        lambda request, before: (
            200,
            {"choices": [choice("") | {"message": message, "finish_reason": reason}]},
        )
    ) as (url, _):
        assert said(ask(url)) == ("<think>two and", ended, None)


ENDS = ["stop", "STOP", "eos", "eos_token", "end_turn", "stop_sequence", "COMPLETE"]
LENGTHS = ["length", "max_tokens", "MAX_TOKENS", "model_length", "LENGTH", "max_output_tokens"]


@pytest.mark.parametrize("reason", [*ENDS, *LENGTHS])
def test_known_ends_in_the_words_of_many_servers(reason):
    with serving(lambda request, before: completion("4", reason)) as (url, _):
        assert ask(url).finish_reason is (FinishReason.END if reason in ENDS else FinishReason.LENGTH)


def test_a_body_is_bounded_packed_or_not(monkeypatch):
    monkeypatch.setattr(connection, "LARGEST_BODY", 10_000)
    packed = gzip.compress(b" " * 20_000).decode("latin-1")
    for large in ((200, " " * 20_000), (200, packed.encode("latin-1"), {"Content-Encoding": "gzip"})):
        refused = pytest.raises(ServerError, match=r"it is longer than 0 MiB; it begins")
        with serving(lambda request, before, large=large: large) as (url, _), refused:
            ask(url)


@pytest.mark.parametrize(
    "content",
    [
        '{"choices": [' + "{}," * 300_000 + "{}]}",
        '{"choices": [' + "0," * 1_000_000 + "0]}",
        '{"choices": [], "logprobs": [' + "0," * 2_000_000 + "0]}",
    ],
)
def test_a_million_choices_are_refused_unread(content):
    """Reading them took 26 s, in which no other dialog went on."""
    with pytest.raises(
        UnusableAnswer, match="more than 500,000 values|choices: List should have at most 128"
    ):
        ChatAnswer.read(content.encode())


@pytest.mark.parametrize("token", [-1, 2**31, 1.0, "1", True, None])
def test_a_token_that_is_no_token_number_is_refused(token):
    with pytest.raises(UnusableAnswer, match=r"choices.0.token_ids.0: Input should be"):
        TokenAnswer.read(json.dumps({"choices": [{"token_ids": [token]}]}).encode())


def test_what_is_no_unicode_is_replaced_and_counted():
    counts = {}
    with serving(lambda request, before: completion("4\udfff\ud800!")) as (url, _):
        assert ask(url, counts, times=2).text == "4\ufffd\ufffd!"
    assert counts == {"requests": 2, "replaced": 4}
    latin_1 = b'{"choices": [{"message": {"content": "caf\xe9"}}]}'
    assert ChatAnswer.read(latin_1).text == "caf\ufffd"


def test_a_response_longer_than_asked_for_is_counted():
    counts = {}
    with serving(lambda request, before: completion("4", tokens=9 + before)) as (url, _):
        ask(url, counts, times=3)
    assert counts == {"requests": 3, "overlong": 2}


def test_a_response_that_the_server_cuts_before_the_limit_is_counted():
    counts = {}
    with serving(lambda request, before: completion("4", "length", tokens=8 + before)) as (url, _):
        ask(url, counts, times=2)
    assert counts == {"requests": 2, "cut_short": 1}


def test_a_response_without_a_token_count_is_not_taken_for_a_short_one():
    """Some servers count the prompt alone."""
    counts = {}
    answer = {"choices": [choice("4", "length")], "usage": {"prompt_tokens": 7}}
    with serving(lambda request, before: (200, answer)) as (url, _):
        ask(url, counts)
    assert counts == {"requests": 1, "uncounted": 1}
