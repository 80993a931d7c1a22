"""Dialogs at a server: what is sent, lines of one response, room, templates; tokens as they were sampled."""

import asyncio

import pytest
from chat_models import chat_tokenizer
from chat_server import completion, serving

from r3l.chat.renderer import ChatRenderer
from r3l.core.policy import FinishReason, Sampling, Usage
from r3l.core.text import Message
from r3l.endpoint.client import Endpoint
from r3l.endpoint.options import EndpointOptions, ServerError
from r3l.endpoint.policy import MessagePolicy, TokenPolicy

SAMPLING = Sampling(0.0, 9)
LINES = Sampling(0.0, 9, stop="line")


def at(answer, talk, policy=MessagePolicy, **options):
    """(what ``talk`` of a conversation returns, requests, policy)."""

    async def run(url):
        async with Endpoint(EndpointOptions(url, "tiny")) as endpoint:
            opened = policy(endpoint, **options)
            return await talk(opened.open()), opened

    with serving(answer) as (url, seen):
        result, opened = asyncio.run(run(url))
        return result, seen, opened


def roles(request):
    return [(message["role"], message["content"]) for message in request["messages"]]


def test_a_dialog_goes_on_with_what_was_said():
    async def talk(dialog):
        dialog.add(Message("user", "a"))
        first = await dialog.respond(SAMPLING, (0,))
        fork = dialog.fork(1)
        dialog.add(Message("user", "b"))
        await dialog.respond(SAMPLING, (1,))
        fork.add(Message("user", "c"))
        await fork.respond(SAMPLING, (2,))
        return first

    first, seen, _ = at(lambda request, before: completion(f"r{before}"), talk)
    assert (first.text, first.finish_reason, first.response_ids) == ("r0", FinishReason.END, ())
    assert first.tokens == Usage(0, 5)
    assert roles(seen[1]) == [("user", "a"), ("assistant", "r0"), ("user", "b")]
    assert roles(seen[2]) == [("user", "a"), ("assistant", "r0"), ("user", "c")]


def test_lines_of_one_response_are_read_one_by_one():
    async def talk(dialog):
        dialog.add(Message("user", "a"))
        lines = [await dialog.respond(LINES, (k,)) for k in range(3)]
        other = dialog.fork(2)
        other.add(Message("user", "no"))  # the rest of the response is forgotten
        await other.respond(LINES, (3,))
        return lines

    lines, seen, _ = at(lambda request, before: completion("1\n\n2\n"), talk, lines=4)
    assert [line.text for line in lines] == ["1\n\n", "2\n", ""]
    assert [line.finish_reason for line in lines] == [FinishReason.LINE, FinishReason.LINE, FinishReason.END]
    assert sum(line.tokens.response for line in lines) == 5
    assert len(seen) == 2 and seen[0]["max_tokens"] == 4 * 9
    assert roles(seen[1]) == [("user", "a"), ("assistant", "1\n\n2\n"), ("user", "no")]


def test_a_line_that_was_cut_off():
    async def talk(dialog):
        dialog.add(Message("user", "a"))
        return [await dialog.respond(LINES, (k,)) for k in range(2)]

    lines, _, _ = at(lambda request, before: completion("1\n2", "length"), talk)
    assert [(line.text, line.finish_reason) for line in lines] == [
        ("1\n", FinishReason.LINE),
        ("2", FinishReason.LENGTH),
    ]


def test_a_dialog_ends_where_the_local_one_would_have_no_room():
    async def talk(dialog):
        dialog.add(Message("user", "a"))
        return await dialog.respond(SAMPLING, (0,))

    def read(tokens):
        status, body = completion("r")
        return lambda request, before: (
            status,
            body | {"usage": {"prompt_tokens": tokens, "completion_tokens": 1}},
        )

    assert at(read(91), talk, max_context=100)[0].text == "r"
    full, _, _ = at(read(92), talk, max_context=100)  # 92 + 9 > 100
    assert (full.text, full.finish_reason) == ("", FinishReason.CONTEXT)
    refused, _, _ = at(lambda request, before: (400, "maximum context length"), talk)
    assert refused.finish_reason is FinishReason.CONTEXT


def test_another_template_is_noticed(nano, caplog):
    renderer = ChatRenderer(nano[1])
    own = len(renderer.opening([Message("user", "see a mug 1")]))

    async def talk(dialog):
        dialog.add(Message("user", "see a mug 1"))
        await dialog.respond(SAMPLING, (0,))

    def read(tokens):
        status, body = completion("r")
        return lambda request, before: (
            status,
            body | {"usage": {"prompt_tokens": tokens, "completion_tokens": 1}},
        )

    assert at(read(own), talk, renderer=renderer)[2].same_template is True and not caplog.text
    assert at(read(own + 3), talk, renderer=renderer)[2].same_template is False
    assert (
        f"reads the first prompt as {own + 3} tokens, the model's own tokenizer and chat template as {own}"
        in (caplog.text)
    )


def test_tokens_are_kept_as_they_were_sampled(nano):
    renderer = ChatRenderer(nano[1])
    word = renderer.response("mug 1")[:-1]
    split = [token for letter in "mug 1" for token in renderer.response(letter)[:-1]]
    assert split != word and renderer.text(split) == "mug 1"  # which the template would never tokenise so

    def answer(request, before):
        return 200, {"choices": [{"token_ids": [*split, renderer.end_id], "finish_reason": "stop"}]}

    async def talk(dialog):
        dialog.add(Message("user", "see"))
        first = await dialog.respond(SAMPLING, (0,))
        dialog.add(Message("user", "pen"))
        return first, await dialog.respond(SAMPLING, (1,))

    (first, second), seen, _ = at(
        answer, talk, policy=TokenPolicy, renderer=renderer, max_context=100, samples="trajectory"
    )
    assert (first.text, first.finish_reason) == ("mug 1", FinishReason.END)
    assert seen[0]["path"] == "/v1/completions" and seen[0]["prompt"] == list(first.prompt_ids)
    assert seen[0]["stop_token_ids"] == [renderer.end_id] and seen[0]["return_token_ids"]
    assert seen[1]["prompt"] == [*first.prompt_ids, *split, renderer.end_id, *second.prompt_ids]


def test_tokens_without_room(nano):
    async def talk(dialog):
        dialog.add(Message("user", "see"))
        return await dialog.respond(SAMPLING, (0,))

    options = {"policy": TokenPolicy, "renderer": ChatRenderer(nano[1]), "samples": "trajectory"}
    refused, seen, _ = at(
        lambda request, before: (400, "maximum context length"), talk, **options, max_context=100
    )
    assert refused.finish_reason is FinishReason.CONTEXT and seen[-1]["max_tokens"] == 1
    full, seen, _ = at(lambda request, before: completion(""), talk, **options, max_context=10)
    assert full.finish_reason is FinishReason.CONTEXT and not seen


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


@pytest.mark.parametrize(
    "thought",
    [
        {"reasoning_content": "two and two"},
        {"reasoning": {"summary": [{"type": "summary_text", "text": "two and two"}]}},  # as in OpenAI's items
        {"reasoning": [{"type": "reasoning.text", "text": "two and two"}]},  # as in OpenRouter's details
    ],
)
def test_earlier_thoughts_that_the_server_separates_are_not_sent_back(thought):
    """A template may write the text as it is, so they would stay in the prompt."""

    def answer(request, before):
        message = {"content": "4", **thought}
        return 200, {"choices": [{"message": message, "finish_reason": "stop"}]}

    async def talk(dialog):
        dialog.add(Message("user", "2+2?"))
        first = await dialog.respond(SAMPLING, (0,))
        other = dialog.fork(0)
        other.add(Message("user", "2+2?"))
        other.append_completion(first)
        for one in (dialog, other):
            one.add(Message("user", "sure?"))
            await one.respond(SAMPLING, (1,))
        return first

    first, seen, _ = at(answer, talk)
    assert first.text == "<think>two and two</think>4"
    assert roles(seen[1]) == roles(seen[2]) == [("user", "2+2?"), ("assistant", "4"), ("user", "sure?")]


async def asks_twice(dialog):
    """A question, its answer (returned), and a second question."""
    dialog.add(Message("user", "2+2?"))
    first = await dialog.respond(SAMPLING, (0,))
    dialog.add(Message("user", "sure?"))
    await dialog.respond(SAMPLING, (1,))
    return first


GPT_OSS = "<|channel|>analysis<|message|>2, 2<|end|><|start|>assistant<|channel|>final<|message|>4<|return|>"


@pytest.mark.parametrize(
    ("text", "read", "back"),
    [
        ("[THINK]2, 2[/THINK]4", "<think>2, 2</think>4", "4"),
        (GPT_OSS, "<think>2, 2</think>4", "4"),
        ("<thought>\n2, 2\n</thought>4", "<think>\n2, 2\n</think>4", "4"),  # Gemini's
        ("[THINK]a[/THINK]4 or [THINK]b[/THINK]5", "<think>a</think>4 or <think>b</think>5", "4 or 5"),
        ("a[/THINK]b[/THINK]4 [THINK]c", "a</think>b</think>4 <think>c", "4 "),
    ],
)
def test_thoughts_in_the_marks_of_the_model_are_read_and_not_sent_back(text, read, back):
    """gpt-oss's template refuses a message with channels; others have the thought in a field."""

    first, seen, _ = at(lambda request, before: completion(text), asks_twice)
    assert first.text == read
    assert roles(seen[1]) == [("user", "2+2?"), ("assistant", back), ("user", "sure?")]


BLOCKS = {
    "Mistral's": [{"type": "thinking", "thinking": [{"type": "text", "text": "2, 2"}]}],
    "Claude's": [{"type": "thinking", "thinking": "2, 2", "signature": "Er0B"}],
    "Databricks's": [{"type": "reasoning", "summary": [{"type": "summary_text", "text": "2, 2"}]}],
    "hidden in part": [
        {"type": "redacted_thinking", "data": "Er0B"},
        {"type": "thinking", "thinking": "2, 2"},
    ],
    "none": [],
}


@pytest.mark.parametrize("blocks", BLOCKS)
def test_a_message_in_blocks_is_text_and_thought(blocks):
    content = [*BLOCKS[blocks], {"type": "text", "text": "It is "}, {"type": "text", "text": "4"}]

    first, seen, _ = at(lambda request, before: completion(content), asks_twice)
    assert first.text == ("<think>2, 2</think>" if BLOCKS[blocks] else "") + "It is 4"
    assert roles(seen[1])[1] == ("assistant", "It is 4")


def test_a_thought_tag_inside_a_text_is_text():
    """Only at the beginning of a response is <thought> Gemini's mark."""
    text = "<answer>4</answer> in <thought>tags</thought>"
    first, seen, _ = at(lambda request, before: completion(text), asks_twice)
    assert first.text == text and roles(seen[1])[1] == ("assistant", text)


def no_empty_content(request, before):
    """Refuses as Anthropic does; the model thinks, and then says nothing."""
    if not all(message["content"].strip() for message in request["messages"]):
        return 400, {"error": {"message": "messages: text content blocks must be non-empty"}}
    return completion("[THINK]2, 2[/THINK]")


def test_an_empty_message_is_sent_as_it_is_unless_the_server_refuses_it(caplog):
    async def talk(dialog):
        await asks_twice(dialog)
        dialog.add(Message("user", "well?"))
        await dialog.respond(SAMPLING, (2,))
        return dialog._policy.endpoint.counts["filled"]

    filled, seen, _ = at(no_empty_content, talk)
    empty = [("user", "2+2?"), ("assistant", ""), ("user", "sure?")]
    full = [("user", "2+2?"), ("assistant", "(empty)"), ("user", "sure?")]
    assert [roles(request) for request in seen[:3]] == [empty[:1], empty, full]
    assert roles(seen[3])[:3] == full and len(seen) == 4  # it is known by then
    assert filled == 2 and caplog.text.count("refuses empty messages") == 1

    _, seen, _ = at(lambda request, before: completion("[THINK]2, 2[/THINK]"), talk)
    assert [roles(request)[:3] for request in seen] == [empty[:1], empty, empty]


def test_another_refusal_is_not_answered_by_a_filled_message():
    def answer(request, before):
        return completion("[THINK]2[/THINK]") if before == 0 else (400, "no such parameter: seed")

    with pytest.raises(ServerError, match="no such parameter"):
        at(answer, asks_twice)


def test_thoughts_that_are_part_of_the_text_are_sent_back():
    async def talk(dialog):
        for turn in range(2):
            dialog.add(Message("user", "2+2?"))
            await dialog.respond(SAMPLING, (turn,))

    _, seen, _ = at(lambda request, before: completion("<think>hm</think>4"), talk)
    assert roles(seen[1])[1] == ("assistant", "<think>hm</think>4")


def test_the_end_of_turn_of_a_known_model_is_removed_however_it_is_spelled():
    """An unusual mark (~over~) has the form of no control token: only the tokenizer tells that it is one."""
    template = "{% for m in messages %}{{ m.role }}:{{ m.content }}~over~{% endfor %}"
    renderer = ChatRenderer(chat_tokenizer(template, "~over~"))

    async def talk(dialog):
        dialog.add(Message("user", "2+2?"))
        return await dialog.respond(SAMPLING, (0,))

    for known, text in ((renderer, "4"), (None, "4~over~\n")):
        response, _, opened = at(lambda request, before: completion("4~over~\n"), talk, renderer=known)
        assert response.text == text and opened.endpoint.counts["end_marks"] == (known is not None)
