"""The notebook runs from first to last cell in its own kernel and folder, and gives its stored outputs."""

from start_models import cell

from r3l.files.paths import ROOT

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
