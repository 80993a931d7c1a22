"""A new method is one file and one config, outside the package, and gets a row."""

import json

from program import run
from start_models import cell

from r3l.files.paths import ROOT

EXAMPLES = ROOT / "examples"


def test_a_method_from_outside_gets_a_row(tmp_path, monkeypatch, capsys):
    assert sum(bool(line) for line in (EXAMPLES / "shortest.py").read_text().splitlines()) <= 30
    monkeypatch.setenv("R3L_METHODS", str(EXAMPLES))
    monkeypatch.chdir(tmp_path)

    def r3l(*arguments):
        code, out, err = run(monkeypatch, capsys, *arguments, "--json")
        assert code == 0, err
        return json.loads(out)

    overrides = ["train.tasks_per_step=2", "train.steps=1"]
    options = [part for override in overrides for part in ("--set", override)]
    r3l("train", "--env", "math", "--method", "shortest", *options)
    r3l("evaluate", f"results/{cell('math', 'shortest')}/seed0")
    rows = r3l("table", "mathematics", "--method", "zero_shot,shortest", "--seeds-planned", 1)["rows"]
    (row,) = [row for row in rows if (row["method"], row["group"]) == ("shortest", "all")]
    assert (row["label"], row["episodes"], row["rollouts"]) == ("Shortest success", 200, 8)
    assert row["seeds_done"] == 1 and row["mean"] is not None
    missing = [row for row in rows if row["method"] == "zero_shot"]
    assert {(row["seeds_done"], row["verdict"], row["mean"]) for row in missing} == {(0, "incomplete", None)}
    assert "shortest" in {row["method"] for row in r3l("list", "methods")["methods"]}
    options = ("--offline", "--stored", "results", "--env", "math", "--seed", 0, "--against", "grpo")
    (compared,) = r3l("compare", "shortest", *options)["rows"]
    assert (compared["against"], compared["verdict"]) == ("grpo", "incomplete (0 common seeds)")
