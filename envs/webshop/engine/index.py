"""Search index with the results of Anserini 0.14.3 (Lucene), the original's search engine.

Index terms are made as by Lucene's EnglishAnalyzer: word breaks after Unicode Standard Annex 29, possessive
``'s`` removed, lower case, 33 stop words, Porter's stemmer with Martin Porter's later changes. Word breaks
and stemmer come from libraries; our code connects them and keeps the one rule of the annex that has changed
since (the colon). Scores are BM25 with Lucene's rounding. tests/envs/webshop/test_index.py compares both.
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
a an and are as at be but by for if in into is it no not of on or such that the their then there these they
this to was will with
"""
STOP_WORDS = frozenset(_STOP_WORDS.split())
_BREAK = regex.compile(r"(?w)\b")
# A word begins with a connector (``_``), letter, digit or pictogram; marks and apostrophes before it are
# dropped. The lookbehind lets a match start only at the beginning of a run of connectors: else ``_____``
# takes quadratic time.
_WORD = regex.compile(
    r"(?<!\p{Pc})\p{Pc}*+[\p{Alphabetic}\p{Nd}\p{Extended_Pictographic}--\p{M}].*", regex.V1 | regex.DOTALL
)
_POSSESSIVE = ("'s", "’s", "＇s", "'S", "’S", "＇S")


def terms(text: str) -> list[str]:
    """The search terms of ``text`` in order, with repetitions: stemmed words in lower case, no stop words."""
    found = [term_of(piece) for piece in pieces(text)]
    return [term for term in found if term is not None]


def pieces(text: str) -> list[str]:
    """Split ``text`` at its word breaks into words and the parts between them."""
    return list(_BREAK.split(text))


@lru_cache(maxsize=1 << 16)
def term_of(piece: str) -> str | None:
    """The search term of ``piece``; None for a stop word or a part that is not a word."""
    match = _WORD.search(piece)
    if match is None:
        return None
    word: str = match[0]
    if word.endswith(_POSSESSIVE):
        word = word[:-2]
    word = word.lower()
    if word in STOP_WORDS:
        return None
    if len(word) <= 2:
        return word
    return str(_stemmer().stem(word, to_lowercase=False))


@lru_cache(maxsize=1)
def _stemmer() -> Any:
    # The import takes over a second, since it imports scipy, scikit-learn and pandas.
    from nltk.stem.porter import PorterStemmer

    return PorterStemmer(mode=PorterStemmer.MARTIN_EXTENSIONS)


# Anserini's BM25 parameters, which the original keeps
K1 = np.float32(0.9)
B = np.float32(0.4)
_FREE = 24  # lengths below this are stored exactly (SmallFloat: 255 - longToInt4(2^31 - 1))
_CHUNK = 1 << 22  # tokens sorted at a time while building: about 100 MB
_FILES = {"docs": np.uint32, "counts": np.uint16, "lengths": np.uint8, "ranks": np.uint32}
Term = tuple[int, int]  # (start of the term's postings, number of documents that have it)


def length_byte(length: int) -> int:
    """Lucene's one-byte code of a document length (SmallFloat.intToByte4): four significant bits."""
    if length < _FREE:
        return length
    rest = length - _FREE
    if rest < 8:
        return length
    # Like a floating-point number: three bits after the leading one, which is not stored, and above them the
    # shift plus one.
    shift = rest.bit_length() - 4
    return _FREE + ((rest >> shift & 7) | (shift + 1) << 3)


def length_of(code: int) -> int:
    """Inverse of ``length_byte``: the smallest length with this code."""
    if code < _FREE + 8:
        return code
    rest = code - _FREE
    leading_bits = rest & 7 | 8
    shift = (rest >> 3) - 1
    return _FREE + (leading_bits << shift)


class IndexWriter:
    """Writes a search index: collects documents in the order of their numbers, then sorts them by term.

    In memory are the vocabulary and one chunk; sorted chunks are kept on disk in ``folder``.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._terms: dict[str, int] = {}
        self._known: dict[str, int] = {}  # piece of text -> term number or -1, so that each is analysed once
        self._tokens = array("I")  # term numbers of the chunk
        self._owners = array("I")  # and the documents that have them
        self._lengths = bytearray()
        self._total = 0
        self._chunks: list[Path] = []

    def add(self, text: str) -> None:
        """Add the text of the next document; they are numbered from 0."""
        before = len(self._tokens)
        for piece in pieces(text):
            number = self._known.get(piece)
            if number is None:
                term = term_of(piece)
                number = -1 if term is None else self._terms.setdefault(term, len(self._terms))
                self._known[piece] = number
            if number >= 0:
                self._tokens.append(number)
        length = len(self._tokens) - before
        self._owners.extend([len(self._lengths)] * length)
        self._lengths.append(length_byte(length))
        self._total += length
        if len(self._tokens) >= _CHUNK:
            self._flush()

    def finish(self, names: Sequence[str]) -> Iterator[tuple[str, int, int]]:
        """Write the index files, then yield (term, start, number of its documents) for each term.

        ``start``: index of the term's first posting in docs.npy and counts.npy. This is a generator: nothing
        is written before its first result is requested. ``names``: asin of each document, in the order of
        their numbers; documents with equal scores are ordered by it.
        """
        self._flush()

        # Start of each term's postings, from the number of its documents in all chunks
        sizes = np.zeros(len(self._terms) + 1, dtype=np.int64)
        for path in self._chunks:
            sizes[1:] += np.bincount(np.load(path)["terms"], minlength=len(self._terms))
        starts = np.cumsum(sizes)
        self._merge(starts)

        # Lengths, and the alphabetical rank of each document's name
        np.save(self._folder / "lengths.npy", np.frombuffer(bytes(self._lengths), dtype=np.uint8))
        ranks = np.empty(len(names), dtype=np.uint32)
        alphabetical = np.argsort(np.asarray(names, dtype=np.str_), kind="stable")
        ranks[alphabetical] = np.arange(len(names), dtype=np.uint32)
        np.save(self._folder / "ranks.npy", ranks)
        for term, number in self._terms.items():
            yield term, int(starts[number]), int(starts[number + 1] - starts[number])

    @property
    def total_length(self) -> int:
        return self._total

    def _flush(self) -> None:
        """Write the chunk to disk, sorted by (term, document), and begin the next one."""
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
        self._tokens = array("I")
        self._owners = array("I")

    def _merge(self, starts: np.ndarray) -> None:
        """Merge the chunks: postings of a term are appended chunk by chunk, so documents stay in order."""
        files: dict[str, np.memmap] = {}
        for name in ("docs", "counts"):
            path = self._folder / f"{name}.npy"
            mapped = np.lib.format.open_memmap(path, mode="w+", dtype=_FILES[name], shape=(int(starts[-1]),))
            # Allocate the space now: a full disk is an OSError here, but a fatal signal on writing to the
            # map.
            with path.open("r+b") as file:
                os.posix_fallocate(file.fileno(), 0, path.stat().st_size)
            files[name] = mapped

        cursor = starts[:-1].copy()  # next free posting of each term
        for path in self._chunks:
            chunk = np.load(path)
            term_numbers, first, sizes = np.unique(chunk["terms"], return_index=True, return_counts=True)
            positions = np.repeat(cursor[term_numbers] - first, sizes) + np.arange(len(chunk["terms"]))
            for name, mapped in files.items():
                mapped[positions] = chunk[name]
            cursor[term_numbers] += sizes
            path.unlink()
        for mapped in files.values():
            mapped.flush()


class Index:
    """A search index opened for reading: ``search(query, limit)`` gives numbers of documents.

    Its arrays are memory maps, which the processes of a machine share.
    """

    def __init__(self, folder: Path, total_length: int, find: Callable[[str], Term | None]) -> None:
        """Open the index in ``folder``, whose documents have ``total_length`` terms together.

        ``find`` returns a term's (index of its first posting, number of documents that have it), or None for
        an unknown term. Raises DataError if a file is missing, truncated or of another dtype.
        """
        # Map the arrays.
        arrays: dict[str, np.ndarray] = {}
        for name, dtype in _FILES.items():
            path = folder / f"{name}.npy"
            fix = "build the catalogue again"
            try:
                arrays[name] = np.load(path, mmap_mode="r")
            except (OSError, ValueError) as error:
                raise DataError(f"{path} is missing or truncated ({error}); {fix}") from error
            if arrays[name].dtype != dtype:
                raise DataError(f"{path} holds {arrays[name].dtype}, expected {np.dtype(dtype)}; {fix}")
        self._docs = arrays["docs"]
        self._counts = arrays["counts"]
        self._lengths = np.asarray(arrays["lengths"])
        self._ranks = np.asarray(arrays["ranks"])
        self._find = find

        # The part of BM25 that depends only on a document's length, by its code: the inverse of
        # k1 (1 - b + b length / mean length). Like in Lucene, documents without a term do not count.
        self._filled = int(np.count_nonzero(self._lengths))
        mean = np.float32(total_length / self._filled if self._filled else 1)
        decoded = np.array([length_of(code) for code in range(256)], dtype=np.float32)
        self._inverse = np.float32(1) / (K1 * ((np.float32(1) - B) + B * decoded / mean))

    def search(self, query: str, limit: int) -> list[int]:
        """Numbers of the at most ``limit`` best documents, best first; equal scores are ordered by name.

        Only documents with a term of the query are results.
        """
        return [number for number, _ in self.scored(query, limit)]

    def scored(self, query: str, limit: int) -> list[tuple[int, float]]:
        """(number, score) of the ``limit`` best documents, in the order of ``search``.

        Documents without any term of the query are left out. Scores are Lucene's BM25, as in the original.
        """
        # Add up the terms' scores in each document, in Lucene's order of operations. As Lucene does, sum in
        # double precision and then round.
        sums = np.zeros(len(self._lengths), dtype=np.float64)
        for term, repeats in Counter(terms(query)).items():
            entry = self._find(term)
            if entry is None:
                continue
            start, size = entry
            documents = np.asarray(self._docs[start : start + size])
            counts = self._counts[start : start + size].astype(np.float32)
            idf = np.float32(np.log(1 + (self._filled - size + 0.5) / (size + 0.5)))
            weight = np.float32(repeats) * idf
            saturation = np.float32(1) + counts * self._inverse[self._lengths[documents]]
            sums[documents] += weight - weight / saturation
        hits = np.flatnonzero(sums)
        scores = sums[hits].astype(np.float32)

        # Drop all below the limit before the sort, which would take most of the time.
        if len(hits) > limit:
            least = np.partition(scores, len(scores) - limit)[len(scores) - limit]
            hits = hits[scores >= least]
            scores = scores[scores >= least]
        best = np.lexsort((self._ranks[hits], -scores))[:limit]
        return [(int(hits[k]), float(scores[k])) for k in best]
