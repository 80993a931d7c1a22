"""Text to index terms as Lucene's EnglishAnalyzer makes them (Anserini 0.14.3, the original's search engine).

Word breaks after Unicode Standard Annex 29, possessive ``'s`` off, lower case, 33 stop words, Porter's stemmer with
Martin Porter's later changes. The word breaks and the stemmer are libraries; what is ours is the glue, and the
one rule in which the annex has changed since (the colon). Proved word for word in tests/envs/webshop/test_index.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

import regex
from nltk.stem.porter import PorterStemmer

# Lucene's EnglishAnalyzer.ENGLISH_STOP_WORDS_SET.
STOP_WORDS = frozenset(
    "a an and are as at be but by for if in into is it no not of on or such that the their then there these they "
    "this to was will with".split()
)
_BREAK = regex.compile(r"(?w)\b")
# A word begins with a connector (``_``) or a letter, digit or pictogram: marks and apostrophes before it are dropped.
_WORD = regex.compile(r"\p{Pc}*[\p{Alphabetic}\p{Nd}\p{Extended_Pictographic}--\p{M}].*", regex.V1 | regex.DOTALL)
_POSSESSIVE = ("'s", "’s", "＇s", "'S", "’S", "＇S")
_STEMMER = PorterStemmer(mode=PorterStemmer.MARTIN_EXTENSIONS)


def terms(text: str) -> list[str]:
    """The index terms of ``text``, in order, repeats kept."""
    return [term for word in words(text) if (term := term_of(word)) is not None]


def words(text: str) -> Iterator[str]:
    """The words of ``text`` before any of them is changed or dropped."""
    for piece in _BREAK.split(text):
        if found := _WORD.search(piece):
            yield found[0]


@lru_cache(maxsize=1 << 20)
def term_of(word: str) -> str | None:
    """The term that ``word`` is indexed under, or None for a stop word."""
    if word.endswith(_POSSESSIVE):
        word = word[:-2]
    word = word.lower()
    return None if word in STOP_WORDS else _stem(word)


def _stem(word: str) -> str:
    return str(_STEMMER.stem(word, to_lowercase=False)) if len(word) > 2 else word
