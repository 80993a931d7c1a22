"""What is stored is what was measured: every number follows from raw lines, and one changed line is found."""

import gzip
import json
import shutil

import pytest

from r3l.core.errors import DataError
from r3l.core.files import read_jsonl
from r3l.core.paths import STORED
from r3l.evaluation import stored
from r3l.runs.places import find_runs

PATHS = [*find_runs(STORED), *find_runs(STORED / "smol" / "cpu")]


@pytest.fixture
def copy(tmp_path):
    """A copy of a stored run with plain lines, as training leaves it."""
    source = PATHS[0].parent
    target = tmp_path / "results" / source.relative_to(STORED)
    shutil.copytree(source, target)
    for packed in target.glob("*.gz"):
        packed.with_suffix("").write_bytes(gzip.decompress(packed.read_bytes()))
        packed.unlink()
    return target


@pytest.mark.parametrize("path", PATHS, ids=["/".join(p.parts[-5:-1]) for p in PATHS])
def test_every_stored_number_follows_from_its_raw_lines(path):
    stored.verify(path.parent)


def test_one_changed_episode_is_found(copy):
    lines = (copy / "episodes.jsonl").read_text().splitlines()
    first = json.loads(lines[0])
    first["success"] = not first["success"]
    (copy / "episodes.jsonl").write_text("\n".join([json.dumps(first), *lines[1:]]) + "\n")
    with pytest.raises(DataError, match=r"evaluation\.json: 'groups' is .* but the run's raw lines give"):
        stored.verify(copy)


def test_storing_compresses_keeps_and_refuses_another_outcome(copy, tmp_path):
    results, out = tmp_path / "results", tmp_path / "stored"
    (written,) = stored.store([copy], results, out)
    assert {p.name for p in written.iterdir()} >= {
        "manifest.json",
        "result.json",
        "evaluation.json",
        "episodes.jsonl.gz",
    }
    assert read_jsonl(written / "episodes.jsonl") == read_jsonl(copy / "episodes.jsonl")
    before = (written / "episodes.jsonl.gz").read_bytes()
    assert stored.store([copy], results, out) == []
    shutil.rmtree(out)
    stored.store([copy], results, out)
    assert (written / "episodes.jsonl.gz").read_bytes() == before  # equal runs are equal bytes
    rows = read_jsonl(copy / "episodes.jsonl")
    rows[0]["reward"] = 1.0 - rows[0]["reward"]
    (copy / "episodes.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    evaluation = json.loads((copy / "evaluation.json").read_text())
    evaluation["groups"] = stored.scores(rows)
    (copy / "evaluation.json").write_text(json.dumps(evaluation))
    with pytest.raises(DataError, match="same fingerprint"):
        stored.store([copy], results, out)


def test_a_torn_archive_is_found(copy, tmp_path):
    (written,) = stored.store([copy], tmp_path / "results", tmp_path / "stored")
    packed = written / "episodes.jsonl.gz"
    packed.write_bytes(packed.read_bytes()[:50])
    with pytest.raises(DataError, match="'episodes' is .* but the run's raw lines give 0"):
        stored.verify(written)
