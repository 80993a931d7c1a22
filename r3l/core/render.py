"""Messages to tokens, append-only: what has been encoded once is never rendered again."""

from __future__ import annotations

import json
from functools import cached_property
from pathlib import Path
from typing import Any

from transformers import AutoTokenizer, PreTrainedTokenizerFast

from r3l.core.environment import Message, Stop
from r3l.core.errors import ConfigError

_MARK = "\u241e"  # stands for an earlier response; any text that no template produces


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
    puts between the end of a response and the start of the next one.
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

    def opening(self, messages: list[Message]) -> list[int]:
        """Token ids of the messages before the first response, ending in the generation prompt."""
        return self._encode(self._render(messages))

    def following(self, messages: list[Message], ended: bool) -> list[int]:
        """Token ids between a response and the next; ``ended`` when the response sampled its end token.

        None without messages: the next response continues this one.
        """
        if not messages:
            return []
        dialog = [Message("user", "."), Message("assistant", _MARK), *messages]
        tail = self._render(dialog).split(_MARK, 1)[1]
        if ended:
            tail = tail.removeprefix(self._end_text)
        return self._encode(tail)

    def response(self, text: str, stop: Stop = "end") -> list[int]:
        """Token ids of a response given as text, its end token included unless it is a line that goes on."""
        goes_on = stop == "line" and text.endswith("\n")
        return [*self._encode(text), *([] if goes_on else [self.end_id])]

    def stops(self, stop: Stop) -> frozenset[int]:
        """The tokens after which sampling pauses."""
        return frozenset({self.end_id}) if stop == "end" else self._line_ends

    @cached_property
    def _line_ends(self) -> frozenset[int]:
        breaks = (i for i in range(len(self.tokenizer)) if "\n" in self.tokenizer.decode([i]))
        return frozenset({self.end_id, *breaks})

    def text(self, ids: list[int]) -> str:
        """A response's text without its end token."""
        return str(self.tokenizer.decode(ids, skip_special_tokens=False)).removesuffix(self._end_text)

    def _render(self, messages: list[Message]) -> str:
        chat = [{"role": m.role, "content": m.content} for m in messages]
        return str(self.tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True))

    def _encode(self, text: str) -> list[int]:
        return list(self.tokenizer.encode(text, add_special_tokens=False))
