"""The notebook runs from first to last cell in its own kernel and folder, and gives its stored outputs."""

import json

from start_models import cell

import r3l
from r3l.files.paths import ROOT, STORED
from r3l.report.labels import env_label

NOTEBOOK = ROOT / "examples" / "what_r3l_does.ipynb"  # `jupyter execute --inplace` stores its outputs again


def shown(one):
    """Printed text of a cell, and its values as a notebook shows them."""
    shapes = [output.get("data", {"text/plain": output.get("text", "")}) for output in one.outputs]
    return "".join(data.get("text/html", data.get("text/plain", "")) for data in shapes)


def test_the_notebook_shows_what_r3l_does_and_costs(tmp_path, monkeypatch):
    import nbformat
    from nbclient import NotebookClient

    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    assert len(notebook.cells) <= 15
    stored = [shown(one) for one in notebook.cells if one.cell_type == "code"]
    NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(tmp_path)}}).execute()
    attempt, group, trained, cost, drawn, compared = [
        one for one in notebook.cells if one.cell_type == "code"
    ]
    assert "(the pivot)" in shown(attempt) and "(the pivot)" not in shown(group)
    for method in ("grpo", "r3l"):
        assert f"{method}: success 0." in shown(trained)
        assert (tmp_path / f"results/{cell('math', method)}/seed0/evaluation.json").is_file()
    assert any("image/png" in output.get("data", {}) for output in drawn.outputs)
    of_stored_runs = [shown(one) for one in (attempt, group, cost, compared)]
    assert of_stored_runs == [stored[0], stored[1], stored[3], stored[5]], (
        "its outputs are of other stored runs"
    )


def test_the_notebooks_last_text_says_what_its_tables_say():
    """Each sentence names exactly the environments of which it is true in the stored runs."""
    text = "".join(json.loads(NOTEBOOK.read_text())["cells"][-1]["source"])
    behind, rate, spent, _ = text.split(". ", 3)
    rows = r3l.compare("r3l", "grpo", STORED)
    rows = rows[rows.tier == "nano"]
    assert "ahead nowhere" in behind and not (rows.verdict == "ahead").any()
    results = r3l.load_results(STORED)
    results = results[(results.tier == "nano") & (results.group == "all")]
    trained = results[results.method.isin(["grpo", "r3l"])]
    means = trained.groupby(["method", "env"])[["rollouts", "env_steps", "tokens/generated"]].mean()
    ours, theirs = means.loc["r3l"], means.loc["grpo"]
    assert "fewer rollouts and turns everywhere" in spent
    assert (ours.rollouts < theirs.rollouts).all() and (ours.env_steps < theirs.env_steps).all()
    for env, verdict, warnings in zip(rows.env, rows.verdict, rows.warnings, strict=True):
        label = env_label(env).partition(" (")[0]
        assert (label in behind) == (verdict == "behind"), label
        assert (label in spent) == (ours["tokens/generated"][env] > theirs["tokens/generated"][env]), label
        another_rate = "train.lr is" in " ".join(warnings)
        assert (label in rate) == (verdict == "behind" and another_rate), label
