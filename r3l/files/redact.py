"""Masking of keys and passwords in all that is shown or written: a server may repeat what was sent to it."""

from __future__ import annotations

import base64
import json
import os
import re
from urllib.parse import quote

KEY = "OPENAI_API_KEY"  # environment variable
MASK = "***"
_HEADER = re.compile(r"\b(Bearer|Basic)(\\?[\"']?:?\s+)[^\s\"'\\,;]+", re.IGNORECASE)


def masked(text: str, *secrets: str) -> str:
    """``text`` with MASK for ``secrets``, the key in the environment, and Authorization headers.

    Secrets are also found as they are written in JSON, in an address, and in base64.
    """
    forms: set[str] = set()
    for secret in (os.environ.get(KEY, ""), *secrets):
        if secret:
            forms |= {secret, json.dumps(secret)[1:-1], quote(secret, safe="")}
            forms.add(base64.b64encode(secret.encode(errors="replace")).decode())
    for form in sorted(forms, key=len, reverse=True):  # a short form may be part of a longer one
        text = text.replace(form, MASK)
    return _HEADER.sub(rf"\1\2{MASK}", text)
