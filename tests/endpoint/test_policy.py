"""Dialogs at a server: what is sent, lines of one response, room, templates; tokens as they were sampled."""

from chat_models import chat_tokenizer
from chat_server import completion
from endpoint.dialogs import SAMPLING, at, roles

from r3l.chat.renderer import ChatRenderer
from r3l.core.policy import FinishReason, Sampling, Usage
from r3l.core.text import Message
from r3l.endpoint.policy import TokenPolicy

LINES = Sampling(0.0, 9, stop="line")


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
