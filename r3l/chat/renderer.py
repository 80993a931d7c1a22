"""Messages to tokens, append-only: what has been encoded once is never rendered again."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from r3l.chat.chat_template import RESPONSE, render, try_template
from r3l.chat.turn_ends import turn_ends
from r3l.core.environment import Stop
from r3l.core.text import Message, well_formed

# Within the words of a control token, which are then encoded in two parts; no well-formed text holds it.
_BREAK = "\udfff"


_BEFORE = ({"role": "user", "content": "."}, {"role": "assistant", "content": RESPONSE})


class ChatRenderer:
    """Encodes a dialog piece by piece with the tokenizer's own chat template.

    The first piece is the template's rendering of the opening messages. Every later piece is what the template
    puts between the end of a response and the start of the next one. Only the template yields control tokens (those
    that the tokenizer calls special): where a message or a response spells one, it is encoded as the words that it is.
    """

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        # The first is what the template writes after a response and SFT teaches; any of the others ends one too.
        self.end_id, self.end_ids = turn_ends(tokenizer, *try_template(tokenizer))
        self._end_text: str = tokenizer.decode([self.end_id])
        added = tokenizer.added_tokens_decoder.values()
        control = {str(token) for token in added if token.special} | set(tokenizer.all_special_tokens)
        control |= {tokenizer.decode([end]) for end in self.end_ids}
        # Each place where one begins, also within another, and its first character.
        self._control = re.compile(f"(?={'|'.join(map(re.escape, sorted(control)))})(.)", re.DOTALL)

    def opening(self, messages: list[Message]) -> list[int]:
        """Token ids of the messages before the first response, ending in the generation prompt."""
        return self._encode(self._render(messages))

    def following(self, messages: list[Message], ended: bool) -> list[int]:
        """Token ids between a response and the next; ``ended`` when ``end_id`` is the last token of the response, so
        that what the template writes after one has begun.

        None without messages: the next response continues this one.
        """
        if not messages:
            return []
        tail = self._render(messages, _BEFORE).split(RESPONSE, 1)[1]
        if ended and tail.lstrip().startswith(self._end_text):
            tail = tail.lstrip().removeprefix(self._end_text)
        return self._encode(tail)

    def response(self, text: str, stop: Stop = "end") -> list[int]:
        """Token ids of a response given as text, its end token included unless it is a line that another follows."""
        goes_on = stop == "line" and text.endswith("\n")
        return [*self._encode(self._plain(text)), *([] if goes_on else [self.end_id])]

    def stops(self, stop: Stop) -> frozenset[int]:
        """The tokens after which sampling pauses."""
        return self.end_ids if stop == "end" else self._line_ends

    @cached_property
    def _line_ends(self) -> frozenset[int]:
        breaks = (i for i in range(len(self.tokenizer)) if "\n" in self.tokenizer.decode([i]))
        return frozenset({*self.end_ids, *breaks})

    def text(self, ids: list[int]) -> str:
        text = str(self.tokenizer.decode(ids, skip_special_tokens=False))
        return text.removesuffix(self.tokenizer.decode(ids[-1:])) if ids and ids[-1] in self.end_ids else text

    def _render(self, messages: list[Message], before: Sequence[Mapping[str, str]] = ()) -> str:
        chat = [*before, *({"role": m.role, "content": self._plain(m.content)} for m in messages)]
        return render(self.tokenizer, chat)

    def _plain(self, text: str) -> str:
        """``text``, well formed, with a break after the first character of every control token in it."""
        return self._control.sub(rf"\1{_BREAK}", well_formed(text)[0])

    def _encode(self, text: str) -> list[int]:
        parts = text.split(_BREAK)
        return [token for part in parts for token in self.tokenizer.encode(part, add_special_tokens=False)]
