"""Which tokens end a turn of a model: in sampling, by whatever engine, and as the last target of SFT."""

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
    """``written``: the token that the template writes after a response, and that a response given as text ends with;
    ``ids``: every token that ends a sampled one."""

    written: int
    ids: frozenset[int]


def turn_ends(tokenizer: Any, last: str, followed: str) -> TurnEnds:
    """The ends of the model whose tokenizer this is: its ``eos_token``, those that ``generation_config.json`` (or
    else ``config.json``) declares, and the one of its chat template.

    ``last`` is what the template writes after the last response of a dialog, ``followed`` what it writes between one
    and the next user's message. Raises ConfigError where that is no token, or none that the model can sample.
    """
    eos = tokenizer.eos_token_id
    declared = _declared(tokenizer) | ({eos} if eos is not None else set())
    written = _first(tokenizer, last, declared | set(tokenizer.all_special_ids))
    if written is None and not last.strip():
        # Nothing after a last response: then the model ends with what begins the next message, if it says so (GLM).
        written = _first(tokenizer, followed, declared, marks=False)
    if written is None:
        raise ConfigError(_endless(tokenizer, last.strip() or followed.strip()))
    size = _config(tokenizer, "config.json").get("vocab_size")
    if isinstance(size, int) and written >= size:
        raise ConfigError(
            f"the chat template of {name_of(tokenizer)} ends an assistant's message with the token {written} "
            f"({tokenizer.decode([written])!r}), but vocab_size in its config.json is {size}: the model can never "
            "sample it. Resize its embeddings (resize_token_embeddings), or let chat_template write eos_token there"
        )
    return TurnEnds(written, frozenset(declared | {written}))


def _first(tokenizer: Any, text: str, ends: set[int], marks: bool = True) -> int | None:
    """The token that ``text`` begins with, if it can end a turn: one of ``ends`` or, with ``marks``, one that is
    spelled like a control token though the tokenizer does not call it special."""
    text = text.lstrip()
    ids = tokenizer.encode(text, add_special_tokens=False)
    if ids and ids[0] in ends:
        return int(ids[0])
    mark = _MARK.match(text) if marks else None
    if ids and mark and ids[0] != tokenizer.unk_token_id and tokenizer.decode(ids[:1]).strip() == mark[0]:
        return int(ids[0])
    return None


def _endless(tokenizer: Any, after: str) -> str:
    mark = _MARK.match(after)
    shown = f"writes {(mark[0] if mark else after[:30])!r}" if after else "writes nothing"
    spelled = mark is not None and len(tokenizer.encode(mark[0], add_special_tokens=False)) != 1
    why = "which is no token of its tokenizer" if spelled else "which is no end token"
    add = f"add {mark[0]!r} to its tokenizer and resize its embeddings, or " if spelled and mark else ""
    return (
        f"the chat template of {name_of(tokenizer)} {shown} after an assistant's message{', ' + why if after else ''}: "
        f"no response would ever end. To use this model, {add}let chat_template write eos_token "
        f"({tokenizer.eos_token!r}) after the content of an assistant's message; teach it that by `r3l sft` unless it "
        "was trained so"
    )


def _declared(tokenizer: Any) -> set[int]:
    name = "generation_config.json"
    config = _config(tokenizer, name)
    if not config:
        name = "config.json"
        config = _config(tokenizer, name)
    ends = config.get("eos_token_id")
    ids = ends if isinstance(ends, list) else [] if ends is None else [ends]
    for end in ids:
        if not isinstance(end, int) or isinstance(end, bool) or not 0 <= end < len(tokenizer):
            raise ConfigError(
                f"{name_of(tokenizer)}/{name}: eos_token_id is {str(ends)[:80]}; expected one or a list of the ids of "
                f"its tokenizer, 0 to {len(tokenizer) - 1}"
            )
    return set(ids)


def _config(tokenizer: Any, name: str) -> Mapping[str, Any]:
    """A JSON file of the model that the tokenizer was loaded with; empty where there is none."""
    where = tokenizer.name_or_path
    if not where:  # made in memory
        return {}
    if Path(where).is_dir():
        found = Path(where) / name
    else:
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
