"""Thoughts of a model, in fields, blocks or marks: read as one text, and not sent back; empty messages."""

import pytest
from chat_server import completion
from endpoint.dialogs import SAMPLING, asks_twice, at, roles

from r3l.core.text import Message
from r3l.endpoint.options import ServerError


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
