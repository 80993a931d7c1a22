"""Search compared with Lucene's results and with an independent scorer written from the definition."""

import json
from pathlib import Path

import pytest
from r3l.envs.webshop.engine.index import Index, IndexWriter, terms

from r3l.core.errors import DataError

LUCENE = json.loads((Path(__file__).parent / "data" / "lucene.json").read_text(encoding="utf-8"))


def written(documents, folder):
    folder.mkdir(exist_ok=True)
    writer = IndexWriter(folder)
    for text in documents.values():
        writer.add(text)
    postings = {term: (start, size) for term, start, size in writer.finish(list(documents))}
    return Index(folder, writer.total_length, postings.get)


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
    assert index.scored("red", 50) == [
        (1, pytest.approx(0.259671, abs=1e-6)),
        (0, pytest.approx(0.259671, abs=1e-6)),
    ]
    # shirt: all 3, idf ln(1 + 0.5/3.5) = 0.133531; A has it twice at length 4, norm 1.08: 0.133531 x 2/3.08 =
    # 0.086709.
    assert dict(index.scored("shirt", 50))[2] == pytest.approx(0.086709, abs=1e-6)
    # a repeated word weighs twice
    assert index.scored("hat hat", 1)[0][1] == pytest.approx(2 * index.scored("hat", 1)[0][1])
    assert index.search("the of zebra", 50) == [] and index.search("shirt", 2) == [2, 1]


def test_a_cut_off_file_is_named(tmp_path):
    written({"A": "red shirt"}, tmp_path)
    docs = tmp_path / "docs.npy"
    docs.write_bytes(docs.read_bytes()[:-2])
    with pytest.raises(DataError, match=r"docs\.npy is missing or truncated.*build the catalogue again"):
        Index(tmp_path, 2, {}.get)
