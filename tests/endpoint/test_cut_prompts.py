"""Prompts that a server cuts without a word: its count of tokens tells."""

import pytest
from chat_server import completion
from endpoint.dialogs import SAMPLING, at

from r3l.chat.renderer import ChatRenderer
from r3l.core.text import Message
from r3l.endpoint.policy import TokenPolicy


def tokens_of(messages):
    """Four tokens for three words, and four of the template for each message."""
    return sum(4 * len(message["content"].split()) // 3 + 4 for message in messages)


def last_messages(messages):
    """Ollama's: the system message and as many of the last ones as fit."""
    system, rest = messages[:1], messages[1:]
    while len(rest) > 1 and tokens_of(system + rest) > 400:
        rest = rest[1:]
    return min(tokens_of(system + rest), 400)


def without_the_middle(messages):
    """LM Studio's: about as many as fit, sometimes a few more than one turn earlier."""
    tokens = tokens_of(messages)
    return tokens if tokens <= 400 else 360 + 7 * tokens % 37


def shifted(messages):
    """llama.cpp's: half of the context is removed as often as needed."""
    tokens = tokens_of(messages)
    return tokens if tokens < 400 else tokens - (tokens - 205) // 195 * 195


def without_thoughts(messages):
    """Nothing is cut, but the template drops the thoughts, marked by the model, of earlier turns."""
    return tokens_of([{"content": m["content"].rpartition("</think>")[2]} for m in messages])


@pytest.mark.parametrize("counted", [last_messages, without_the_middle, shifted, without_thoughts, tokens_of])
def test_every_prompt_that_the_server_cuts_is_counted(caplog, counted):
    """A dialog only grows, and each word is a token at least; only the first cut may be too small to tell."""
    cut = []
    thought = "<think>" + "so " * 200 + "</think>" if counted is without_thoughts else ""

    def answer(request, before):
        messages = request["messages"]
        read = counted(messages)
        cut.append(counted not in (without_thoughts, tokens_of) and read < tokens_of(messages))
        status, body = completion(thought + "go to it " * 10)
        return status, body | {"usage": {"prompt_tokens": read, "completion_tokens": 240}}

    async def talk(dialog):
        dialog.add(Message("system", "Act."))
        for turn in range(14):
            dialog.add(Message("user", "you see a mug 1 " * 10))
            await dialog.respond(SAMPLING, (turn,))
        return dialog._policy.endpoint.counts["cut_prompts"]

    counts, _, _ = at(answer, talk)
    assert sum(cut) - 1 <= counts <= sum(cut) and (counts > 8) == any(cut)
    assert caplog.text.count("it cuts long prompts, so the model does not see all of them") == any(cut)


def test_a_first_prompt_that_the_server_cuts_and_one_that_continues_another_dialog(caplog):
    """As few-shot prompts or fresh prompts of all turns are: there is no earlier one to compare with."""

    def answer(request, before):
        status, body = completion("r")
        return status, body | {"usage": {"prompt_tokens": 50, "completion_tokens": 1}}

    async def first(dialog):
        dialog.add(Message("user", "word " * 51))
        await dialog.respond(SAMPLING, (0,))
        return dialog._policy.endpoint.counts["cut_prompts"]

    async def fork(dialog):
        dialog.add(Message("user", "word " * 5))
        await dialog.respond(SAMPLING, (0,))  # 50 tokens
        other = dialog.fork(1)
        other.add(Message("user", "and another"))  # 53 at least
        await other.respond(SAMPLING, (1,))
        return dialog._policy.endpoint.counts["cut_prompts"]

    assert at(answer, first)[0] == 1 and "counts 50 prompt_tokens for a dialog of at least 51" in caplog.text
    assert at(answer, fork)[0] == 1


@pytest.mark.parametrize(
    "usage",
    [
        {"prompt_tokens": 60, "prompt_tokens_details": {"cached_tokens": 340}},
        {"prompt_tokens": 60, "cache_read_input_tokens": 300, "cache_creation_input_tokens": 40},
    ],
)
def test_a_prompt_whose_cached_tokens_are_counted_apart_is_not_cut(usage):
    """As in Anthropic's counts. OpenAI's cached tokens are part of prompt_tokens, so never more than they."""

    def answer(request, before):
        status, body = completion("r")
        return status, body | {"usage": {"completion_tokens": 1, **usage}}

    async def talk(dialog):
        dialog.add(Message("user", "word " * 390))
        read = await dialog.respond(SAMPLING, (0,))
        return dialog._policy.endpoint.counts["cut_prompts"], read.tokens.prompt

    assert at(answer, talk)[0] == (0, 400)


@pytest.mark.parametrize(
    "details", [{"cached_tokens": 50}, {"cached_tokens": None}, {"cached_tokens": "9"}, []]
)
def test_cached_tokens_that_are_part_of_the_prompt_are_not_added(details):
    def answer(request, before):
        status, body = completion("r")
        usage = {"prompt_tokens": 60, "completion_tokens": 1, "prompt_tokens_details": details}
        return status, body | {"usage": usage}

    async def talk(dialog):
        dialog.add(Message("user", "word " * 390))
        read = await dialog.respond(SAMPLING, (0,))
        return dialog._policy.endpoint.counts["cut_prompts"], read.tokens.prompt

    assert at(answer, talk)[0] == (1, 60)


def test_a_prompt_of_token_ids_that_the_server_cuts(nano, caplog):
    """As SGLang (--allow-auto-truncate) and vLLM (truncate_prompt_tokens) do."""

    def answer(request, before):
        usage = {"prompt_tokens": len(request["prompt"]) - 2 * before, "completion_tokens": 1}
        return 200, {"choices": [{"token_ids": [5], "finish_reason": "length"}], "usage": usage}

    async def talk(dialog):
        for turn in range(2):
            dialog.add(Message("user", "see"))
            await dialog.respond(SAMPLING, (turn,))
        return dialog._policy.endpoint.counts["cut_prompts"]

    options = {"renderer": ChatRenderer(nano[1]), "max_context": 100, "samples": "trajectory"}
    assert at(answer, talk, policy=TokenPolicy, **options)[0] == 1
    assert "it cuts long prompts" in caplog.text
