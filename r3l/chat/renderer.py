"""Messages to tokens, append-only: text that has been encoded once is never rendered again."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from r3l.chat.chat_template import RESPONSE, drops_thoughts, render, try_template
from r3l.chat.turn_ends import turn_ends
from r3l.core.environment import Stop
from r3l.core.text import Message, well_formed

# Splits the spelling of a control token, so that it is encoded as text, in two parts. No well-formed text
# holds it.
_BREAK = "\udfff"

# Texts whose encoding a following text hardly changes: at least one of them merges with no given text.
_ORDINARY = ("\n", ".")

# The dialog before a later piece: its rendering after RESPONSE is what follows a response.
_BEFORE = ({"role": "user", "content": "."}, {"role": "assistant", "content": RESPONSE})


class ChatRenderer:
    """Encodes a dialog piece by piece with the tokenizer's own chat template.

    The first piece is the template's rendering of the opening messages. Every later piece is the template's
    text between the end of a response and the start of the next one. Only the template yields control tokens
    (those that the tokenizer calls special): the spelling of one in a message or response is encoded as
    ordinary text. Creating it raises ConfigError for a template that cannot be used (``try_template``,
    ``turn_ends``).
    """

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        # end_id: written by the template after a response, and taught by SFT. Each of end_ids ends a sampled
        # one.
        template = try_template(tokenizer)
        self._generation_prompt = template.before
        self.end_id, self.end_ids = turn_ends(tokenizer, template.last, template.followed)
        self._end_text: str = tokenizer.decode([self.end_id])
        added = tokenizer.added_tokens_decoder.values()
        control = {str(token) for token in added if token.special} | set(tokenizer.all_special_tokens)
        control |= set(self.end_texts)
        # Matches the first character of every control token, also of one inside another (lookahead).
        self._control = re.compile(f"(?={'|'.join(map(re.escape, sorted(control)))})(.)", re.DOTALL)

    @property
    def end_texts(self) -> list[str]:
        """The texts of the tokens that end a turn, in the order of their ids."""
        return [self.tokenizer.decode([end]) for end in sorted(self.end_ids)]

    @cached_property
    def drops_thoughts(self) -> bool:
        """True if the chat template leaves the thought out of every earlier response."""
        return drops_thoughts(self.tokenizer)

    def opening(self, messages: list[Message]) -> list[int]:
        """Token ids of the messages before the first response, ending in the generation prompt."""
        return self._encode(self._render(messages))

    def following(self, messages: list[Message], ended: bool) -> list[int]:
        """Token ids between a response and the next one; empty without messages (the response continues).

        ``ended``: the response already ends with ``end_id``, which the template writes too.
        """
        if not messages:
            return []
        # Render the messages after a placeholder response; the text after it is what follows any response.
        tail = self._render(messages, _BEFORE).split(RESPONSE, 1)[1]
        # The model has sampled the end token itself, so the template's copy of it goes.
        if ended and tail.lstrip().startswith(self._end_text):
            tail = tail.lstrip().removeprefix(self._end_text)
        return self._encode(tail, after=self._end_text if ended else _ORDINARY[0])

    def response(self, text: str, stop: Stop = "end") -> list[int]:
        """Token ids of a response given as text, as if the model had sampled it.

        They end with the end token, unless ``stop`` is ``line`` and the text ends with a line break.
        """
        ids = self._encode(self._plain(text), after=self._generation_prompt)
        another_line_follows = stop == "line" and text.endswith("\n")
        if not another_line_follows:
            ids.append(self.end_id)
        return ids

    def stops(self, stop: Stop) -> frozenset[int]:
        """The ids of the tokens at which sampling stops.

        They are the end tokens and, under ``stop: line``, all tokens with a line break.
        """
        return self.end_ids if stop == "end" else self._line_ends

    @cached_property
    def _line_ends(self) -> frozenset[int]:
        breaks = (i for i in range(len(self.tokenizer)) if "\n" in self.tokenizer.decode([i]))
        return frozenset({*self.end_ids, *breaks})

    def text(self, ids: list[int]) -> str:
        """The text of a sampled response, without its end token; other control tokens are spelled out."""
        text = str(self.tokenizer.decode(ids, skip_special_tokens=False))
        if ids and ids[-1] in self.end_ids:
            return text.removesuffix(self.tokenizer.decode(ids[-1:]))
        return text

    def _render(self, messages: list[Message], before: Sequence[Mapping[str, str]] = ()) -> str:
        """The template's text of ``messages`` after the dialog ``before``, up to the model's next message."""
        chat = list(before)
        for message in messages:
            chat.append({"role": message.role, "content": self._plain(message.content)})
        return render(self.tokenizer, chat)

    def _plain(self, text: str) -> str:
        """The text, well formed, with _BREAK after the first character of each spelled control token."""
        return self._control.sub(rf"\1{_BREAK}", well_formed(text)[0])

    def _encode(self, text: str, after: str = "") -> list[int]:
        """Token ids of a text that follows the text ``after``, or begins the dialog."""
        ids: list[int] = []
        for part in text.split(_BREAK):
            ids += self._continued(after, part)
            after = _ORDINARY[0]
        return ids

    def _continued(self, before: str, text: str) -> list[int]:
        """Token ids of ``text`` after ``before``.

        Most tokenizers encode a text by itself as they do inside another one. Those made with SentencePiece
        (Llama 2, Mistral, Phi-3) put a blank before the first word of every text.
        """
        alone: list[int] = self.tokenizer.encode(text, add_special_tokens=False)
        if not (before and self._marks_beginnings):
            return alone
        for anchor in (before, *_ORDINARY):
            head = self.tokenizer.encode(anchor, add_special_tokens=False)
            ids: list[int] = self.tokenizer.encode(anchor + text, add_special_tokens=False)
            # Otherwise the end of the anchor and the beginning of the text are one token.
            if ids[: len(head)] == head:
                return ids[len(head) :]
        return alone

    @cached_property
    def _marks_beginnings(self) -> bool:
        """True if the tokenizer encodes the beginning of a text otherwise than inside another text."""
        inside = self.tokenizer.encode("\na", add_special_tokens=False)
        head = self.tokenizer.encode("\n", add_special_tokens=False)
        alone = self.tokenizer.encode("a", add_special_tokens=False)
        return bool(inside[len(head) :] != alone)
