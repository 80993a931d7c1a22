"""Text to index terms as Lucene's EnglishAnalyzer makes them (Anserini 0.14.3, the original's search engine).

Word breaks after Unicode Standard Annex 29, possessive ``'s`` off, lower case, 33 stop words, Porter's stemmer with
Martin Porter's later changes. The word breaks and the stemmer are libraries; what is ours is the glue, and the
one rule in which the annex has changed since (the colon). Checked word for word in tests/envs/webshop/test_index.py.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import regex

# Lucene's EnglishAnalyzer.ENGLISH_STOP_WORDS_SET.
_STOP_WORDS = """
a an and are as at be but by for if in into is it no not of on or such that the their then there these they this to
was will with
"""
STOP_WORDS = frozenset(_STOP_WORDS.split())
_BREAK = regex.compile(r"(?w)\b")
# A word begins with a connector (``_``) or a letter, digit or pictogram: marks and apostrophes before it are dropped.
# Looked for where a run of connectors begins, not within it: a search for ``_____`` would take quadratic time.
_WORD = regex.compile(
    r"(?<!\p{Pc})\p{Pc}*+[\p{Alphabetic}\p{Nd}\p{Extended_Pictographic}--\p{M}].*", regex.V1 | regex.DOTALL
)
_POSSESSIVE = ("'s", "’s", "＇s", "'S", "’S", "＇S")


def terms(text: str) -> list[str]:
    """The index terms of ``text``, in order, repeats kept."""
    return [term for piece in pieces(text) if (term := term_of(piece)) is not None]


def pieces(text: str) -> list[str]:
    """``text`` cut at its word breaks: words, and what stands between them."""
    return list(_BREAK.split(text))


@lru_cache(maxsize=1 << 16)
def term_of(piece: str) -> str | None:
    """The term that ``piece`` is indexed under, or None for a stop word and for what is no word."""
    match = _WORD.search(piece)
    if match is None:
        return None
    word = (match[0][:-2] if match[0].endswith(_POSSESSIVE) else match[0]).lower()
    return None if word in STOP_WORDS else _stem(word)


def _stem(word: str) -> str:
    return str(_stemmer().stem(word, to_lowercase=False)) if len(word) > 2 else word


@lru_cache(maxsize=1)
def _stemmer() -> Any:
    from nltk.stem.porter import PorterStemmer  # over a second: with it come scipy, scikit-learn and pandas

    return PorterStemmer(mode=PorterStemmer.MARTIN_EXTENSIONS)
