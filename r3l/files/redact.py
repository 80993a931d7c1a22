"""Keys and passwords in what is shown or written: a server may repeat what was sent to it."""

from __future__ import annotations

import base64
import json
import os
import re
from collections.abc import Iterator
from urllib.parse import quote

KEY = "OPENAI_API_KEY"  # environment variable with the key of model servers
MASK = "***"
_HEADER = re.compile(r"\b(Bearer|Basic)(\\?[\"']?:?\s+)[^\s\"'\\,;]+", re.IGNORECASE)


def masked(text: str, *secrets: str) -> str:
    """``text`` without the key in the environment, ``secrets``, or what stands where an Authorization header has one.

    Also as JSON, an address or base64 would spell them.
    """
    known = [secret for secret in (os.environ.get(KEY, ""), *secrets) if secret]
    spelt = {form for secret in known for form in _spellings(secret)}
    for form in sorted(spelt, key=len, reverse=True):  # one may be part of another
        text = text.replace(form, MASK)
    return _HEADER.sub(rf"\1\2{MASK}", text)


def _spellings(secret: str) -> Iterator[str]:
    yield secret
    yield json.dumps(secret)[1:-1]
    yield quote(secret, safe="")
    yield base64.b64encode(secret.encode(errors="replace")).decode()
