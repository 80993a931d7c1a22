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
    attempt, group, published, trained, cost, drawn, compared = [
        one for one in notebook.cells if one.cell_type == "code"
    ]
    assert "(the pivot)" in shown(attempt) and "(the pivot)" not in shown(group)
    assert "What trains" in shown(published) and "click[black]" in shown(published)
    for method in ("grpo", "r3l"):
        assert f"{method}: success 0." in shown(trained)
        assert (tmp_path / f"results/{cell('math', method)}/seed0/evaluation.json").is_file()
    assert any("image/png" in output.get("data", {}) for output in drawn.outputs)
    of_stored_runs = [shown(one) for one in (attempt, group, published, cost, compared)]
    assert of_stored_runs == [*stored[:3], stored[4], stored[6]], "its outputs are of other stored runs"


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


def words(number):
    """The text of a cell, on one line."""
    return " ".join("".join(json.loads(NOTEBOOK.read_text())["cells"][number]["source"]).split())


def test_the_notebooks_text_on_the_group_says_what_the_group_shows():
    """The first group of the stored run with a retry that solved what its attempt did not."""
    run = STORED / cell("math", "r3l") / "seed0"
    task, attempt = next((t, m) for t in r3l.trajectories(run) for m in t.members if m.rescued and m.pivot)
    base, reflection, guided, distilled = attempt.trajectories
    kept = [turn["action"] for turn in base["turns"][: attempt.pivot]]

    text = words(2)
    assert "left out a step, so its answer is wrong" in text and base["reward"] == 0
    assert reflection["parsed"]["root_cause_analysis"].startswith("left out")
    assert "where to start again" in text and reflection["parsed"]["retry_from_step"] == attempt.pivot
    assert "keeps the turns before the pivot and reads the hint. It solves the task" in text
    assert [turn["action"] for turn in guided["turns"][: attempt.pivot]] == kept and guided["success"]
    assert "Hint" in guided["turns"][attempt.pivot]["prompt"]
    assert "reflection and retry are imitated" in text
    assert [one["objective"] for one in (reflection, guided)] == ["sft", "sft"]
    assert "**without** its hint, by its advantage" in text
    assert "Hint" not in str(distilled["turns"]) and distilled["objective"] == "policy"
    assert distilled["turns"][-1]["response"] == guided["turns"][-1]["response"]
    assert "The attempt has a negative advantage" in text and base["advantage"] < 0
    assert "Both train from the pivot on" in text
    assert [one["trainable"][0] for one in (base, distilled)] == [attempt.pivot, attempt.pivot]

    assert "one baseline, the mean reward" in words(
        2
    ) and "The best reward gets the advantage *alpha*" in words(2)
    trained = [one for m in task.members for one in m.trajectories if one["objective"] == "policy"]
    rewards = [one["reward"] for one in trained]
    mean = sum(rewards) / len(rewards)
    for one in trained:
        best = one["reward"] == max(rewards)
        assert abs(one["advantage"] - (3 if best else one["reward"] - mean)) < 1e-9


def test_the_notebooks_text_on_costs_says_what_its_table_says():
    results = r3l.load_results(STORED)
    results = results[(results.tier == "nano") & (results.group == "all")]
    means = (
        results[results.method.isin(["grpo", "r3l"])]
        .groupby(["method", "env"])[["rollouts", "env_steps", "tokens/generated", "tokens/reflection"]]
        .mean()
    )
    ours, theirs = means.loc["r3l"], means.loc["grpo"].fillna(0)
    text = words(8)
    assert "R3L gets no more rollouts than GRPO" in text and (ours.rollouts <= theirs.rollouts).all()
    assert "so it takes fewer turns" in text
    assert (ours.env_steps / ours.rollouts < theirs.env_steps / theirs.rollouts).all()
    assert "Reflections cost tokens (`tokens/reflection`, part of `tokens/generated`)" in text
    assert (theirs["tokens/reflection"] == 0).all()
    assert (ours["tokens/reflection"].between(1, ours["tokens/generated"])).all()
