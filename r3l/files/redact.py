"""Masking of keys and passwords: a server may repeat them in answers, lists and errors.

Data is masked when it comes from a server (r3l.endpoint.responses) and again when a file is written
(r3l.files.writing, json_files); messages are masked when they are printed (r3l.cli).
"""

from __future__ import annotations

import base64
import json
import os
import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any
from urllib.parse import quote, unquote

KEY = "OPENAI_API_KEY"  # environment variable
HEADERS = "OPENAI_CUSTOM_HEADERS"  # environment variable of the openai package: lines of NAME: VALUE
VARIABLES = (
    *(KEY, "OPENAI_ADMIN_KEY", "OPENAI_WEBHOOK_SECRET", "HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"),
    *("WANDB_API_KEY", "AZURE_OPENAI_API_KEY", "ANTHROPIC_API_KEY"),
    *("OPENAI_ORG_ID", "OPENAI_ORGANIZATION", "OPENAI_PROJECT_ID"),  # no keys, but they name the account
)
# Environment variables with addresses, whose password a server or a proxy may repeat.
ADDRESSES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "OPENAI_BASE_URL", "WANDB_BASE_URL", "HF_ENDPOINT")
MASK = "***"
# Secrets of at least so many characters are masked. Shorter keys are placeholders (EMPTY, none, ollama),
# which may be words of a response; in a message a short password is masked too.
IN_DATA = 8
IN_MESSAGE = 4
_SECRET_NAME = re.compile(
    r"(?:api|access|auth|admin|secret)[_-]?(?:key|token)|authorization|password|secret"
    r"|\b(?:private|subscription|user|session|bearer|x)[_-](?:key|token)\b|passwd|credential|cookie|^token$"
    r"|^(?:pwd|jwt|auth)$|-signature$",
    re.IGNORECASE,
)
_SECRET_PARAMETER = re.compile(r"^(?:key|code|sig|signature)$", re.IGNORECASE)  # in an address, besides
# A part of an address's path that is a key: by its prefix, a UUID, or a long run of letters and digits.
_PATH_KEY = re.compile(
    r"(?:(?:sk|pk|rk|key|api|gsk|hf|xai|pplx|nvapi|ghp|tok|token)[-_]|AIza)\S{9,}"
    r"|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
    r"|(?=\S*(?<![A-Z\d])(?=(?:[A-Z]*\d){3})(?=\d*[A-Z])[A-Z\d]{16,})\S+",
    re.IGNORECASE,
)
_HEADER = re.compile(r"\b(Bearer|Basic)(\\?[\"']?:?\s+)[^\s\"'\\,;]+", re.IGNORECASE)
_USER = re.compile(r"(?<=//)[^/\s@\"']+@")  # user and password of an address

_hidden: set[str] = set()  # secrets of this process that are in no environment variable


def hide(*secrets: str) -> None:
    """Mask these texts from now on in this process, in all that is masked; empty ones are ignored.

    Texts of 1 to 3 characters (below IN_MESSAGE) are never masked. Texts of 4 to 7 (below IN_DATA) are masked
    in messages, but not in data.
    """
    _hidden.update(filter(None, secrets))


def hide_address(url: str) -> None:
    """Mask from now on the password of an address (a URL), or its user if it has no password, and its keys.

    Keys are values in its query whose names say so (``?api-key=``, ``&code=``) and parts of its path that
    look like keys: ``/v1/sk-.../``, a UUID, or 16 or more letters and digits in a run, three of them digits.
    """
    hide(*_secrets_of_address(url))


def _secrets_of_address(url: str) -> Iterator[str]:
    """Secrets in an address, valid or not: password, or user without one; keys of path, query, fragment."""
    for pair in re.split("[?&#]", url)[1:]:
        name, _, value = pair.partition("=")
        if _SECRET_NAME.search(name) or _SECRET_PARAMETER.match(name):
            yield from (value, unquote(value))
    authority, *path = re.split("/", re.split("[?#]", url.partition("//")[2] or url)[0])
    yield from filter(_PATH_KEY.fullmatch, path)
    user, colon, password = authority.rpartition("@")[0].partition(":")
    yield unquote(password) if colon else unquote(user)
    if colon:
        yield unquote(f"{user}:{password}")


def hide_fields(fields: Any, secret: bool = False) -> None:
    """Remember the secret texts of a request's ``fields``, so that :func:`masked` hides them from now on.

    Secret is every text below a name that contains api_key, Authorization, password or the like, at any
    depth of lists and mappings; of ``Bearer KEY`` also the last word alone. ``secret``: whether ``fields``
    is itself below such a name. ``fields`` is not changed.
    """
    if isinstance(fields, Mapping):
        for name, value in fields.items():
            hide_fields(value, secret or bool(_SECRET_NAME.search(str(name))))
    elif isinstance(fields, list | tuple):
        for value in fields:
            hide_fields(value, secret)
    elif secret and isinstance(fields, str):
        hide(fields, fields.split()[-1] if fields.split() else "")  # Bearer KEY, and KEY


def masked(text: str, shortest: int = IN_DATA) -> str:
    """``text`` with MASK for each secret, also as it is written in JSON, in an address, and in base64.

    Secrets are those given to :func:`hide`, the values of VARIABLES and of the headers in HEADERS, and
    passwords in ADDRESSES. ``shortest``: secrets with fewer characters are not masked.
    """
    pattern = _pattern(frozenset(secret for secret in _secrets() if len(secret) >= shortest))
    return pattern.sub(MASK, text) if pattern else text


def masked_json(value: Any) -> Any:
    """A copy of a JSON value in which all strings and keys are :func:`masked`."""
    if isinstance(value, str):
        return masked(value)
    if isinstance(value, list):
        return [masked_json(item) for item in value]
    if isinstance(value, dict):
        return {masked(key): masked_json(item) for key, item in value.items()}
    return value


def masked_message(text: str) -> str:
    """``text`` of a message with its secrets masked, more strictly than :func:`masked` does in data.

    It also masks secrets of only IN_MESSAGE (4) or more characters, what follows Bearer or Basic, and user
    and password in any address.
    """
    text = _HEADER.sub(rf"\1\2{MASK}", masked(text, IN_MESSAGE))
    return _USER.sub(f"{MASK}@", text)


def _secrets() -> Iterator[str]:
    yield from _hidden
    yield from filter(None, (os.environ.get(name) for name in VARIABLES))
    for name in ADDRESSES:
        for address in (os.environ.get(name), os.environ.get(name.lower())):  # proxies have both names
            if address:
                yield from _secrets_of_address(address)
    for line in os.environ.get(HEADERS, "").splitlines():
        value = line.partition(":")[2].strip()
        yield value
        yield value.rpartition(" ")[2]  # the key after "Bearer"


@cache
def _pattern(secrets: frozenset[str]) -> re.Pattern[str] | None:
    """Matches every secret in every form, long ones first, since a short form may be part of a longer one."""
    forms = set(secrets)
    for secret in secrets:
        forms |= {json.dumps(secret)[1:-1], quote(secret, safe="")}
        forms.add(base64.b64encode(secret.encode(errors="replace")).decode().rstrip("="))
    longest_first = sorted(forms, key=lambda form: (-len(form), form))
    # In any case: a gateway may write a header's value in small letters.
    return re.compile("|".join(map(re.escape, longest_first)), re.IGNORECASE) if forms else None
