"""Text to index terms as Lucene's EnglishAnalyzer makes them (Anserini 0.14.3, the original's search engine).

Word breaks after Unicode Standard Annex 29, possessive ``'s`` off, lower case, 33 stop words, Porter's stemmer with
Martin Porter's later changes. The word breaks and the stemmer are libraries; what is ours is the glue, and the
one rule in which the annex has changed since (the colon). Checked word for word in tests/envs/webshop/test_index.py.
"""

from __future__ import annotations

import os
from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import regex

from r3l.core.errors import DataError

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


K1, B = np.float32(0.9), np.float32(0.4)  # Anserini's defaults, which the original keeps
_FREE = 24  # lengths below this are exact (SmallFloat: 255 - longToInt4(2^31 - 1))
_CHUNK = 1 << 22  # tokens sorted at a time while building: about 100 MB
_FILES = {"docs": np.uint32, "counts": np.uint16, "lengths": np.uint8, "ranks": np.uint32}
Term = tuple[int, int]  # where the postings of a term start, and how many documents have it


def length_byte(length: int) -> int:
    """Lucene's one-byte code of a document length (SmallFloat.intToByte4): four significant bits."""
    if length < _FREE:
        return length
    rest = length - _FREE
    if rest < 8:
        return length
    shift = rest.bit_length() - 4
    return _FREE + ((rest >> shift & 7) | (shift + 1) << 3)


def length_of(code: int) -> int:
    """The length that a code stands for: the smallest one that has it."""
    if code < _FREE + 8:
        return code
    rest = code - _FREE
    return _FREE + ((rest & 7 | 8) << (rest >> 3) - 1)


class IndexWriter:
    """Collects documents in the order of their numbers, then writes the postings sorted by term.

    Memory: the vocabulary and one chunk; finished chunks wait on disk in ``folder``.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._terms: dict[str, int] = {}
        self._known: dict[str, int] = {}  # piece of text -> term number, -1 for none; spares the analyser
        self._tokens, self._owners = array("I"), array("I")
        self._lengths = bytearray()
        self._total = 0
        self._chunks: list[Path] = []

    def add(self, text: str) -> None:
        known, before = self._known, len(self._tokens)
        numbers = [known[piece] if piece in known else self._number(piece) for piece in pieces(text)]
        self._tokens.extend([number for number in numbers if number >= 0])
        length = len(self._tokens) - before
        self._owners.extend([len(self._lengths)] * length)
        self._lengths.append(length_byte(length))
        self._total += length
        if len(self._tokens) >= _CHUNK:
            self._flush()

    def finish(self, names: Sequence[str]) -> Iterator[tuple[str, int, int]]:
        """Write the files; yields (term, start, documents) for every term. ``names`` (asins) break ties."""
        self._flush()
        sizes = np.zeros(len(self._terms) + 1, dtype=np.int64)
        for path in self._chunks:
            sizes[1:] += np.bincount(np.load(path)["terms"], minlength=len(self._terms))
        starts = np.cumsum(sizes)
        self._merge(starts)
        np.save(self._folder / "lengths.npy", np.frombuffer(bytes(self._lengths), dtype=np.uint8))
        ranks = np.empty(len(names), dtype=np.uint32)
        ranks[np.argsort(np.asarray(names, dtype=np.str_), kind="stable")] = np.arange(len(names), dtype=np.uint32)
        np.save(self._folder / "ranks.npy", ranks)
        for term, number in self._terms.items():
            yield term, int(starts[number]), int(starts[number + 1] - starts[number])

    @property
    def total_length(self) -> int:
        return self._total

    def _number(self, piece: str) -> int:
        term = term_of(piece)
        number = -1 if term is None else self._terms.setdefault(term, len(self._terms))
        self._known[piece] = number
        return number

    def _flush(self) -> None:
        """Put the chunk on disk as (term, document, count), sorted."""
        keys = np.frombuffer(self._tokens, dtype=np.uint32).astype(np.uint64) << np.uint64(32)
        keys |= np.frombuffer(self._owners, dtype=np.uint32).astype(np.uint64)
        pairs, counts = np.unique(keys, return_counts=True)
        path = self._folder / f"chunk{len(self._chunks)}.npz"
        np.savez(
            path,
            terms=(pairs >> np.uint64(32)).astype(np.uint32),
            docs=pairs.astype(np.uint32),
            counts=np.minimum(counts, np.iinfo(np.uint16).max).astype(np.uint16),
        )
        self._chunks.append(path)
        self._tokens, self._owners = array("I"), array("I")

    def _merge(self, starts: np.ndarray) -> None:
        """Every chunk's postings of a term go behind those of the chunks before it: documents stay in order."""
        files = {
            name: _new_map(self._folder / f"{name}.npy", _FILES[name], int(starts[-1])) for name in ("docs", "counts")
        }
        cursor = starts[:-1].copy()
        for path in self._chunks:
            chunk = np.load(path)
            of, first, sizes = np.unique(chunk["terms"], return_index=True, return_counts=True)
            where = np.repeat(cursor[of] - first, sizes) + np.arange(len(chunk["terms"]))
            for name, file in files.items():
                file[where] = chunk[name]
            cursor[of] += sizes
            path.unlink()
        for file in files.values():
            file.flush()


class Index:
    """The written index. Its arrays are maps of the files: processes on one machine share them."""

    def __init__(self, folder: Path, total_length: int, find: Callable[[str], Term | None]) -> None:
        """``find`` looks a term up. Raises DataError when a file is missing or cut off."""
        arrays = {name: _map(folder / f"{name}.npy", dtype) for name, dtype in _FILES.items()}
        self._docs, self._counts = arrays["docs"], arrays["counts"]
        self._lengths, self._ranks = np.asarray(arrays["lengths"]), np.asarray(arrays["ranks"])
        self._find = find
        self._filled = int(np.count_nonzero(self._lengths))  # Lucene counts documents that have a term
        mean = np.float32(total_length / self._filled if self._filled else 1)
        decoded = np.array([length_of(code) for code in range(256)], dtype=np.float32)
        self._inverse = np.float32(1) / (K1 * ((np.float32(1) - B) + B * decoded / mean))

    def search(self, query: str, limit: int) -> list[int]:
        """The numbers of the ``limit`` best documents, best first; equal scores in the order of names."""
        return [number for number, _ in self.scored(query, limit)]

    def scored(self, query: str, limit: int) -> list[tuple[int, float]]:
        """As ``search``, with Lucene's scores."""
        sums = np.zeros(len(self._lengths), dtype=np.float64)
        for term, repeats in Counter(terms(query)).items():
            if (entry := self._find(term)) is not None:
                documents, scores = self._score(*entry, np.float32(repeats))
                sums[documents] += scores
        hits = np.flatnonzero(sums)
        scores = sums[hits].astype(np.float32)
        if len(hits) > limit:
            least = np.partition(scores, len(scores) - limit)[len(scores) - limit]
            hits, scores = hits[scores >= least], scores[scores >= least]
        best = np.lexsort((self._ranks[hits], -scores))[:limit]
        return [(int(hits[k]), float(scores[k])) for k in best]

    def _score(self, start: int, size: int, boost: np.float32) -> tuple[np.ndarray, np.ndarray]:
        documents = np.asarray(self._docs[start : start + size])
        counts = self._counts[start : start + size].astype(np.float32)
        idf = np.float32(np.log(1 + (self._filled - size + 0.5) / (size + 0.5)))
        weight = boost * idf
        return documents, weight - weight / (np.float32(1) + counts * self._inverse[self._lengths[documents]])


def _new_map(path: Path, dtype: type, length: int) -> np.memmap:
    """A map to write to. Its space is taken now: a full disk is an OSError here, but kills who writes to the map."""
    mapped = np.lib.format.open_memmap(path, mode="w+", dtype=dtype, shape=(length,))
    with path.open("r+b") as file:
        os.posix_fallocate(file.fileno(), 0, path.stat().st_size)
    return mapped


def _map(path: Path, dtype: type) -> np.ndarray:
    try:
        mapped: np.ndarray = np.load(path, mmap_mode="r")
    except (OSError, ValueError) as error:
        raise DataError(f"{path} is missing or cut off ({error}); build the catalogue again") from error
    if mapped.dtype != dtype:
        raise DataError(f"{path} holds {mapped.dtype}, expected {np.dtype(dtype)}; build the catalogue again")
    return mapped
