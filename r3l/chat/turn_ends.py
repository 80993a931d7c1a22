"""The tokens that end a turn of a model, for every sampler and as the last target of SFT."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from transformers.utils.hub import cached_file

from r3l.chat.chat_template import name_of
from r3l.core.errors import ConfigError

_MARK = re.compile(r"<[^<>\s]+>|\[[^\[\]\s]+\]")  # how control tokens are spelled: <|im_end|>, </s>, [EOT]


class TurnEnds(NamedTuple):
    """Ids of the tokens that end a turn.

    ``written``: written by the template after a response, and appended to a response given as text. ``ids``:
    every token that ends a sampled response.
    """

    written: int
    ids: frozenset[int]


def turn_ends(tokenizer: Any, last: str, followed: str) -> TurnEnds:
    """Find the tokens that end a turn of the model to which this tokenizer belongs.

    They are its ``eos_token``, those declared in ``generation_config.json`` (or else ``config.json``), and
    the one that its chat template writes. ``last``: the template's text after the last response of a dialog.
    ``followed``: its text between a response and the next user's message. Reads the model's files from its
    folder or the hub. Raises ConfigError if the template writes no end token or one that the model cannot
    sample, or if a file is damaged.
    """
    eos = tokenizer.eos_token_id
    declared = _declared(tokenizer) | ({eos} if eos is not None else set())

    # The end token of the template. One that writes nothing after a last response (GLM's) ends a turn with
    # the token that begins the next message, if the model declares it.
    written = _first(tokenizer, last, declared | set(tokenizer.all_special_ids))
    if written is None and not last.strip():
        written = _first(tokenizer, followed, declared, marks=False)

    # Without an end token no response would end: say what the template writes instead, and how to correct it.
    if written is None:
        after = last.strip() or followed.strip()
        mark = _MARK.match(after)
        shown = mark[0] if mark else after[:30]
        written_text = f"writes {shown!r}" if after else "writes nothing"
        add = ""  # a way to correct it
        why = ""
        if mark is not None and len(tokenizer.encode(mark[0], add_special_tokens=False)) != 1:
            why = ", which is no token of its tokenizer"
            add = f"add {mark[0]!r} to its tokenizer and resize its embeddings, or "
        elif after:
            why = ", which is no end token"
        raise ConfigError(
            f"the chat template of {name_of(tokenizer)} {written_text} after an assistant's message{why}: "
            f"no response would ever end. To use this model, {add}let chat_template write eos_token "
            f"({tokenizer.eos_token!r}) after the content of an assistant's message; train it to do so with "
            "`r3l sft` unless it already does"
        )

    size = _config(tokenizer, "config.json").get("vocab_size")
    if isinstance(size, int) and written >= size:
        raise ConfigError(
            f"the chat template of {name_of(tokenizer)} ends an assistant's message with the token {written} "
            f"({tokenizer.decode([written])!r}), but vocab_size in its config.json is {size}: the model can "
            "never sample it. Resize its embeddings (resize_token_embeddings), or let chat_template write "
            "eos_token there"
        )
    return TurnEnds(written, frozenset(declared | {written}))


def _first(tokenizer: Any, text: str, ends: set[int], marks: bool = True) -> int | None:
    """The first token of ``text`` if it can end a turn, else None.

    It can if it is in ``ends`` or, with ``marks``, if it is spelled like a control token.
    """
    text = text.lstrip()
    ids = tokenizer.encode(text, add_special_tokens=False)
    if ids and ids[0] in ends:
        return int(ids[0])
    mark = _MARK.match(text) if marks else None
    if ids and mark and ids[0] != tokenizer.unk_token_id and tokenizer.decode(ids[:1]).strip() == mark[0]:
        return int(ids[0])
    return None


def _declared(tokenizer: Any) -> set[int]:
    """``eos_token_id`` of generation_config.json, or of config.json if there is none. Raises ConfigError."""
    name = "generation_config.json"
    config = _config(tokenizer, name)
    if not config:
        name = "config.json"
        config = _config(tokenizer, name)
    ends = config.get("eos_token_id")
    if ends is None:
        return set()
    ids = ends if isinstance(ends, list) else [ends]
    for end in ids:
        if not isinstance(end, int) or isinstance(end, bool) or not 0 <= end < len(tokenizer):
            raise ConfigError(
                f"{name_of(tokenizer)}/{name}: eos_token_id is {str(ends)[:80]}; expected one or a list of "
                f"the ids of its tokenizer, 0 to {len(tokenizer) - 1}"
            )
    return set(ids)


def _config(tokenizer: Any, name: str) -> Mapping[str, Any]:
    """A JSON file of the model to which the tokenizer belongs; empty if there is none. Raises ConfigError."""
    where = tokenizer.name_or_path
    if not where:  # made in memory
        return {}
    if Path(where).is_dir():
        found = Path(where) / name
    else:
        # A file that the hub does not have or does not give counts as missing.
        missing = ("entries", "gated_repo", "connection_errors")
        options = {f"_raise_exceptions_for_{kind}": False for kind in missing}
        found = Path(cached_file(where, name, **options) or name)
    if not found.is_file():
        return {}
    try:
        config = json.loads(found.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ConfigError(f"{found} is not JSON ({error}); fetch the model again") from error
    if not isinstance(config, dict):
        raise ConfigError(f"{found} is not a JSON object; fetch the model again")
    return config
