"""Messages to tokens, append-only: what has been encoded once is never rendered again."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from transformers import AutoTokenizer, PreTrainedTokenizerFast

from r3l.core.environment import Stop
from r3l.core.errors import ConfigError
from r3l.core.text import Message, well_formed

# Lone surrogates stand in no well-formed text, so neither a template nor a message holds these.
_RESPONSE = "\ud800"  # in the place of an earlier response
_BREAK = "\udfff"  # within the words of a control token, which are then encoded in two parts


def load_tokenizer(where: str) -> Any:
    """The tokenizer as its file has it.

    For some architectures (Qwen2 is one) AutoTokenizer of transformers 5 puts its own word splitting in place of the
    file's, which is right for models of the hub but not for one with a tokenizer of its own: numbers fell apart.
    """
    config = Path(where) / "tokenizer_config.json"
    declared = json.loads(config.read_text(encoding="utf-8")).get("tokenizer_class") if config.is_file() else None
    own = declared in ("TokenizersBackend", "PreTrainedTokenizerFast")
    return (PreTrainedTokenizerFast if own else AutoTokenizer).from_pretrained(where)


class ChatRenderer:
    """Encodes a dialog piece by piece with the tokenizer's own chat template.

    The first piece is the template's rendering of the opening messages. Every later piece is what the template
    puts between the end of a response and the start of the next one. Only the template yields control tokens (those
    that the tokenizer calls special): where a message or a response spells one, it is encoded as the words that it is.
    """

    def __init__(self, tokenizer: Any) -> None:
        if tokenizer.chat_template is None:
            raise ConfigError(
                f"the tokenizer of {tokenizer.name_or_path!r} has no chat template; use an instruct model "
                "or set `chat_template` in its tokenizer_config.json"
            )
        self.tokenizer = tokenizer
        self.end_id: int = tokenizer.eos_token_id
        # What the template writes after a response; the sampled end-of-turn token is already its beginning.
        self._end_text: str = tokenizer.decode([self.end_id])
        added = tokenizer.added_tokens_decoder.values()
        control = {str(token) for token in added if token.special} | set(tokenizer.all_special_tokens)
        # Each place where one begins, also within another, and its first character.
        self._control = re.compile(f"(?={'|'.join(map(re.escape, sorted(control)))})(.)", re.DOTALL)

    def opening(self, messages: list[Message]) -> list[int]:
        """Token ids of the messages before the first response, ending in the generation prompt."""
        return self._encode(self._render(messages))

    def following(self, messages: list[Message], ended: bool) -> list[int]:
        """Token ids between a response and the next; ``ended`` when the response sampled its end token.

        None without messages: the next response continues this one.
        """
        if not messages:
            return []
        before = [{"role": "user", "content": "."}, {"role": "assistant", "content": _RESPONSE}]
        tail = self._render(messages, before).split(_RESPONSE, 1)[1]
        if ended:
            tail = tail.removeprefix(self._end_text)
        return self._encode(tail)

    def response(self, text: str, stop: Stop = "end") -> list[int]:
        """Token ids of a response given as text, its end token included unless it is a line that another follows."""
        goes_on = stop == "line" and text.endswith("\n")
        return [*self._encode(self._plain(text)), *([] if goes_on else [self.end_id])]

    def stops(self, stop: Stop) -> frozenset[int]:
        """The tokens after which sampling pauses."""
        return frozenset({self.end_id}) if stop == "end" else self._line_ends

    @cached_property
    def _line_ends(self) -> frozenset[int]:
        breaks = (i for i in range(len(self.tokenizer)) if "\n" in self.tokenizer.decode([i]))
        return frozenset({self.end_id, *breaks})

    def text(self, ids: list[int]) -> str:
        text = str(self.tokenizer.decode(ids, skip_special_tokens=False))
        return text.removesuffix(self._end_text) if ids and ids[-1] == self.end_id else text

    def _render(self, messages: list[Message], before: Sequence[Mapping[str, str]] = ()) -> str:
        chat = [*before, *({"role": m.role, "content": self._plain(m.content)} for m in messages)]
        return str(self.tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True))

    def _plain(self, text: str) -> str:
        """``text``, well formed, with a break after the first character of every control token in it."""
        return self._control.sub(rf"\1{_BREAK}", well_formed(text)[0])

    def _encode(self, text: str) -> list[int]:
        parts = text.split(_BREAK)
        return [token for part in parts for token in self.tokenizer.encode(part, add_special_tokens=False)]
