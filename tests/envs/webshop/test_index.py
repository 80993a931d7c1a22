"""Search: Lucene's own answers, and an independent scorer written from the definition."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from r3l.envs.webshop.index import Index, IndexWriter, length_of, terms

from r3l.core.errors import DataError

LUCENE = json.loads((Path(__file__).parent / "data" / "lucene.json").read_text(encoding="utf-8"))


def written(documents, folder):
    folder.mkdir(exist_ok=True)
    writer = IndexWriter(folder)
    for text in documents.values():
        writer.add(text)
    postings = {term: (start, size) for term, start, size in writer.finish(list(documents))}
    return Index(folder, writer.total_length, postings.get)


def oracle(documents, query, limit=50):
    """BM25 with quantised lengths, one document and one term at a time, in double precision."""
    codes = [length_of(code) for code in range(256)]
    texts = {name: terms(text) for name, text in documents.items()}
    filled = [words for words in texts.values() if words]
    mean = sum(map(len, filled)) / max(len(filled), 1)
    scores = {}
    for name, words in texts.items():
        length = max(value for value in codes if value <= len(words))
        for term in terms(query):
            count = words.count(term)
            having = sum(term in other for other in filled)
            if count:
                idf = math.log(1 + (len(filled) - having + 0.5) / (having + 0.5))
                norm = 0.9 * (1 - 0.4 + 0.4 * length / mean)
                scores[name] = scores.get(name, 0.0) + idf * count / (count + norm)
    return sorted(scores.items(), key=lambda item: (-item[1], item[0]))[:limit]


def test_terms_are_lucenes():
    for text, expected in LUCENE["analysed"]:
        assert terms(text) == expected, text


def test_the_order_is_lucenes(tmp_path):
    index = written(LUCENE["documents"], tmp_path)
    assert sum(len(hits) == 50 for _, hits in LUCENE["queries"]) == 29  # long lists, not only easy ones
    for query, expected in LUCENE["queries"]:
        assert index.search(query, 50) == expected, query


def test_scores_by_hand(tmp_path):
    index = written({"B2": "red shirt", "B1": "red shirt", "A": "blue shirt shirt hat"}, tmp_path)
    # 3 documents, mean length 8/3. red: 2 of 3 have it, idf ln(1 + 1.5/2.5) = 0.470004; length 2 gives the
    # norm 0.9 (0.6 + 0.4 x 2 / 2.666667) = 0.81, so 0.470004 / 1.81 = 0.259671. Equal scores: by name.
    assert index.scored("red", 50) == [(1, pytest.approx(0.259671, abs=1e-6)), (0, pytest.approx(0.259671, abs=1e-6))]
    # shirt: all 3, idf ln(1 + 0.5/3.5) = 0.133531; A has it twice at length 4, norm 1.08: 0.133531 x 2/3.08 = 0.086709.
    assert dict(index.scored("shirt", 50))[2] == pytest.approx(0.086709, abs=1e-6)
    # a repeated word weighs twice
    assert index.scored("hat hat", 1)[0][1] == pytest.approx(2 * index.scored("hat", 1)[0][1])
    assert index.search("the of zebra", 50) == [] and index.search("shirt", 2) == [2, 1]


word = st.sampled_from(["red", "shirt", "cotton", "blue", "the", "pack", "of", "6", "women's", "hat", "1.5", "soft"])
text = st.lists(word, max_size=60).map(" ".join)


@settings(max_examples=60)
@given(st.lists(text, min_size=1, max_size=25), text)
def test_the_order_is_the_oracles(tmp_path_factory, texts, query):
    documents = {f"B{(k * 7) % 100:03d}": value for k, value in enumerate(texts)}
    names = list(documents)
    ranking = written(documents, tmp_path_factory.mktemp("index")).scored(query, 10)
    expected = oracle(documents, query)
    assert len(ranking) == min(10, len(expected))
    # Scores that differ by less than single precision may change places; no others.
    for (number, score), (name, wanted) in zip(ranking, expected, strict=False):
        assert score == pytest.approx(wanted, rel=2e-6, abs=2e-6)
        if all(abs(wanted - other) > 1e-5 for other_name, other in expected if other_name != name):
            assert names[number] == name
    ties = [(-np.float32(score), names[number]) for number, score in ranking]
    assert ties == sorted(ties)


def test_a_cut_off_file_is_named(tmp_path):
    written({"A": "red shirt"}, tmp_path)
    docs = tmp_path / "docs.npy"
    docs.write_bytes(docs.read_bytes()[:-2])
    with pytest.raises(DataError, match=r"docs\.npy is missing or cut off.*build the catalogue again"):
        Index(tmp_path, 2, {}.get)
