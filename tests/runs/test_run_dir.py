"""A run's directory: what is in the way of another configuration is renamed."""

import json

from r3l.runs.run_dir import move_aside


def test_a_directory_of_another_configuration_is_renamed_never_deleted(tmp_path):
    for expected in ("seed0.old", "seed0.old.2"):
        run_dir = tmp_path / "seed0"
        run_dir.mkdir()
        (run_dir / "manifest.json").write_text(json.dumps({"fingerprint": "old"}))
        assert move_aside(run_dir, "old") is None
        assert move_aside(run_dir, "new") == tmp_path / expected
        assert not run_dir.exists() and (tmp_path / expected / "manifest.json").is_file()


def test_nothing_is_renamed_where_nothing_is(tmp_path):
    assert move_aside(tmp_path / "seed0", "new") is None
