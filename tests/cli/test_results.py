"""The runs of tables, figures, comparisons and reports: named ones, several folders, a user's."""

import json
import logging
import re

import pytest
from program import run
from report.runs import rewrite, write_run
from start_models import cell

from r3l.evaluation.verification import sign
from r3l.files.paths import ROOT, STORED


@pytest.fixture
def r3l(monkeypatch, capsys, tmp_path):
    """A verb in an empty directory; returns what it prints as JSON."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments):
        code, out, err = run(monkeypatch, capsys, *arguments, "--json")
        assert code == 0, err
        return json.loads(out)

    return call


@pytest.fixture
def refused(monkeypatch, capsys, tmp_path):
    """A verb that must end with 2; returns its one paragraph."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments):
        code, _, err = run(monkeypatch, capsys, *arguments)
        assert code == 2
        return " ".join(err.split())

    return call


def done(rows):
    """(environment, method, seeds) of the rows over all tasks that have a run."""
    return {(r["env"], r["method"], r["seeds_done"]) for r in rows if r["group"] == "all" and r["seeds_done"]}


def test_runs_are_named_by_their_directories(tmp_path, r3l):
    paths = [write_run(tmp_path / "x", "grpo", seed, [1, seed], [0, 0]) for seed in range(2)]
    write_run(tmp_path / "x", "grpo", 2, [1, 1], [1, 1])  # not named
    rows = r3l("table", "table1", paths[0].parent, paths[1])["rows"]
    assert done(rows) == {("alfworld", "grpo", 2)}
    (row,) = [r for r in rows if r["seeds_done"] and r["group"] == "all"]
    assert row["mean"] == 0.375  # 1 and 2 of 4
    assert r3l("figure", "table1", paths[0].parent, "--out", tmp_path / "f.png")["files"] == [
        str(tmp_path / "f.png")
    ]
    assert r3l("report", paths[0].parent, "--out", tmp_path / "r.html")["runs"] == 1


def test_a_table_is_in_the_papers_layout_or_in_full(monkeypatch, capsys, tmp_path, refused):
    """The mean of four tasks, two easy, is printed once; in full each group of tasks has a row."""
    write_run(tmp_path / "x", "grpo", 0, [1, 1], [1, 0])
    printed = []
    for options in ([], ["--full"]):
        code, out, err = run(monkeypatch, capsys, "table", "table1", "--results", tmp_path / "x", *options)
        assert code == 0, err
        printed.append([line.split() for line in out.splitlines() if "GRPO" in line.split()])
    assert printed[0][0] == ["GRPO", "0.750"]  # next come published numbers
    assert [line[:4] for line in printed[1]] == [
        ["easy", "GRPO", "1.000", "1/1"],
        ["hard", "GRPO", "0.500", "1/1"],
        ["all", "GRPO", "0.750", "1/1"],
    ]
    said = refused("table", "cost", "--results", tmp_path / "x", "--full")
    assert "--full: cost is a table of measures, not of scores; leave the option out" in said


def test_a_directory_that_is_no_evaluated_run_is_refused(tmp_path, refused):
    path = write_run(tmp_path / "x", "grpo", 0, [1], [0])
    assert f"{tmp_path}/x is not the directory of a run" in refused("table", "table1", tmp_path / "x")
    path.unlink()
    assert f"that is not evaluated: r3l evaluate {path.parent}" in refused("figure", "table1", path.parent)
    assert "is missing" in refused("report", tmp_path / "nowhere")


def test_runs_of_several_folders_are_shown_together(tmp_path, r3l):
    for seed in range(2):
        write_run(tmp_path / "a", "grpo", seed, [1, 0], [0, 0])
        write_run(tmp_path / "b", "r3l", seed, [1, 1], [0, 0])
    folders = ("--results", tmp_path / "a", "--results", tmp_path / "b")
    both = {("alfworld", "grpo", 2), ("alfworld", "r3l", 2)}
    assert done(r3l("table", "table1", *folders)["rows"]) == both
    assert done(
        r3l("table", "table1", tmp_path / "a" / cell("alfworld", "grpo") / "seed0", *folders[2:])["rows"]
    ) == {
        ("alfworld", "grpo", 1),
        ("alfworld", "r3l", 2),
    }
    assert r3l("report", *folders, "--out", tmp_path / "r.html")["runs"] == 4
    assert len(r3l("figure", "table1", *folders, "--out", tmp_path)["files"]) == 2


def test_the_same_run_in_two_places_counts_once_and_another_one_is_refused(tmp_path, r3l, refused, caplog):
    for folder in "ab":
        write_run(tmp_path / folder, "grpo", 0, [1, 0], [0, 0])
    folders = ("--results", tmp_path / "a", "--results", tmp_path / "b")
    with caplog.at_level(logging.WARNING):
        assert done(r3l("table", "table1", *folders)["rows"]) == {("alfworld", "grpo", 1)}
    assert "1 runs are in two places with the same episodes and count once" in caplog.text
    for seed in (1, 2):
        write_run(tmp_path / "a", "grpo", seed, [1, 0], [0, 0])
        write_run(tmp_path / "b", "grpo", seed, [1, 1], [0, 0])
    said = refused("table", "table1", *folders)
    assert f"{tmp_path}/a/{cell('alfworld', 'grpo')}/seed1 and {tmp_path}/b" in said
    assert "(and 1 more such pairs)" in said and "name the runs" in said


def test_a_comparison_takes_runs_of_several_folders_and_users_runs_if_none_are_stored(tmp_path, r3l):
    for seed in range(2):
        write_run(tmp_path / f"mine{seed}", "raft", seed, [1, 1], [0, 0])
        write_run(tmp_path / "mine0", "opmd", seed, [0, 0], [0, 0])
        write_run(tmp_path / "mine0", "grpo", seed, [1, 1], [1, 1])  # the stored ones count
        write_run(tmp_path / "kept", "grpo", seed, [1, 0], [0, 0])
    folders = (
        "--results",
        tmp_path / "mine0",
        "--results",
        tmp_path / "mine1",
        "--stored",
        tmp_path / "kept",
    )
    page = tmp_path / "compared.html"
    words = ("--env", "alfworld", "--offline", "--against", "grpo,opmd", "--html", page)
    rows = r3l("compare", "raft", *words, *folders)["rows"]
    assert [(r["against"], r["pairs"], r["theirs_mean"], r["difference_mean"]) for r in rows] == [
        ("grpo", 2, 0.25, 0.25),
        ("opmd", 2, 0.0, 0.5),
    ]
    (row,) = r3l(
        "compare",
        "grpo",
        "--env",
        "alfworld",
        "--offline",
        "--against",
        "opmd",
        "--stored",
        tmp_path / "mine0",
    )["rows"]
    assert (row["pairs"], row["difference_mean"]) == (2, 1.0)  # no run of mine: both are stored
    text = page.read_text(encoding="utf-8")
    assert text.index("raft against stored runs") < text.index('<section id="figures">')
    assert cell("alfworld", "opmd") in text


def test_power_plans_with_the_runs_that_were_compared(monkeypatch, capsys, tmp_path, r3l):
    """The command after a comparison did not know the user's own runs, to which it was given."""
    for seed in range(3):
        for method in ("raft", "opmd"):
            write_run(tmp_path / "mine", method, seed, [1, 1], [seed % 2, 0])
        write_run(tmp_path / "kept", "grpo", seed, [1, 0], [0, 0])
    words = ["compare", "raft", "--against", "grpo,opmd", "--env", "alfworld", "--offline"]
    words += ["--group", "easy", "--results", "mine", "--stored", "kept"]
    code, out, err = run(monkeypatch, capsys, *words)
    assert code == 0, err
    (line,) = (line for line in out.splitlines() if line.startswith("next: "))
    command = line.removeprefix("next: r3l ").partition(" says ")[0]
    words = "--against grpo,opmd --env alfworld --group easy --results mine --stored kept"
    assert command == f"compare power raft {words}"
    rows = r3l(*command.split())["rows"]
    assert [(row["against"], row["pairs"]) for row in rows] == [("grpo", 3), ("opmd", 3)]
    (tmp_path / "mine").rename(tmp_path / "results")  # by default
    assert r3l("compare", "power", "raft", "--against", "opmd", "--stored", "kept")["rows"][0]["pairs"] == 3


def test_a_variant_with_brackets_is_compared(r3l, tmp_path):
    """Its directory's name would be a pattern."""
    scored = "grpo@evaluation.curve=[10]"
    write_run(tmp_path / "mine", scored, 0, [1, 1], [0, 0])
    write_run(tmp_path / "kept", "grpo", 0, [1, 0], [0, 0])
    words = ("compare", scored, "--against", "grpo", "--offline", "--stored", tmp_path / "kept")
    (row,) = r3l(*words, "--results", tmp_path / "mine")["rows"]
    assert (row["method"], row["pairs"], row["difference_mean"]) == (scored, 1, 0.25)


def test_runs_that_are_stored_with_their_curve_alone_are_compared_too(r3l, tmp_path):
    for seed in range(3):
        write_run(tmp_path / "curves", "r3l_adaptive", seed, [1, 1], [1, 0])
        write_run(
            tmp_path / "curves", "grpo", seed, [0, 0], [0, 0]
        )  # stored without a curve too: that one counts
        write_run(tmp_path / "curves", "raft", seed, [0, 0], [0, 0])
        write_run(tmp_path, "grpo", seed, [1, 0], [0, 0])
    words = ("--offline", "--against", "grpo,raft", "--stored", tmp_path)
    rows = r3l("compare", "r3l_adaptive", *words)["rows"]
    assert [(row["env"], row["against"], row["pairs"], row["difference_mean"]) for row in rows] == [
        ("alfworld", "grpo", 3, 0.5),
        ("alfworld", "raft", 3, 0.75),
    ]


def test_compare_can_start_from_another_base_checkpoint(r3l, tmp_path):
    """Of grpo only the run from that checkpoint counts, though another folder comes first."""
    hints = "alfworld-1.5m-hints"
    write_run(tmp_path / "hint_gap", "raft", 0, [1, 1], [1, 0], model=hints)
    write_run(tmp_path / "hint_gap", "grpo", 0, [1, 0], [0, 0], model=hints)
    write_run(tmp_path, "grpo", 0, [1, 1], [1, 1])
    words = ("compare", "raft", "--against", "grpo", "--offline", "--stored", tmp_path, "--env", "alfworld")
    (row,) = r3l(*words, "--model", hints)["rows"]
    assert (row["model"], row["pairs"], row["difference_mean"]) == (hints, 1, 0.5)


def test_runs_from_another_base_checkpoint_are_named(tmp_path, monkeypatch, capsys):
    """Without --model they do not count; the error said only that there is no run."""
    for method in ("raft", "grpo"):
        write_run(tmp_path / "mine", method, 0, [1, 1], [1, 0], tier="smol", model="smollm2-135m")
    words = ["compare", "raft", "--against", "grpo", "--env", "alfworld", "--tier", "smol", "--offline"]
    code, _, error = run(monkeypatch, capsys, *words, "--results", str(tmp_path / "mine"))
    assert code == 2 and "start from smollm2-135m: add --model smollm2-135m" in " ".join(error.split())


def test_offline_compares_every_environment_that_has_runs_of_the_method(r3l, tmp_path):
    """Also those that the workflow leaves out, such as mathematics."""
    for env in ("webshop", "math", "alfworld"):
        for method in ("raft", "grpo"):
            write_run(tmp_path / "kept", method, 0, [1, 1], [0, 0], env=env)
    write_run(tmp_path / "kept", "grpo", 0, [1, 1], [0, 0], env="scienceworld")  # not of raft
    words = ("compare", "raft", "--against", "grpo", "--offline", "--stored", tmp_path / "kept")
    assert [row["env"] for row in r3l(*words)["rows"]] == ["alfworld", "math", "webshop"]
    assert [row["env"] for row in r3l(*words, "--env", "webshop")["rows"]] == ["webshop"]


def test_offline_names_variants_that_are_stored_where_the_method_is_not(tmp_path, monkeypatch, capsys):
    for env, method in (
        ("math", "raft"),
        ("math", "grpo"),
        ("webshop", "raft@train.lr=0.001"),
        ("math", "raft@a=1"),
    ):
        write_run(tmp_path / "kept", method, 0, [1, 1], [0, 0], env=env)
    words = ["compare", "raft", "--against", "grpo", "--offline", "--stored", str(tmp_path / "kept")]
    code, out, _ = run(monkeypatch, capsys, *words)
    assert code == 0 and "stored on webshop: raft@train.lr=0.001; compare it by that name" in out
    assert "raft@a=1" not in out


def test_users_environments_and_methods_have_tables_figures_and_a_report(tmp_path, monkeypatch, r3l):
    """Those of examples/, at first without R3L_ENVS; and a packaged environment that the table lacks, with
    --env."""
    for seed in range(2):
        for env in ("alfworld", "guess", "countdown"):
            write_run(tmp_path / "results", "grpo", seed, [1, 0], [0, 0], env=env)
            write_run(tmp_path / "results", "shortest", seed, [1, 1], [0, seed], env=env)
    own = {(env, method, 2) for env in ("alfworld", "guess") for method in ("grpo", "shortest")}
    assert done(r3l("table", "table1")["rows"]) == own
    monkeypatch.setenv("R3L_ENVS", str(ROOT / "examples"))
    monkeypatch.setenv("R3L_METHODS", str(ROOT / "examples"))
    assert done(r3l("table", "table1", "--out", "t.csv")["rows"]) == own
    printed = (tmp_path / "t.tex").read_text()
    header = printed.split("\\midrule")[0]
    assert (
        "ALFWorld" in header and "Guess" in header and "WebShop" not in header and "0.500, 0.750" in printed
    )
    only = r3l("table", "table1", "--env", "countdown", "--method", "shortest")["rows"]
    assert done(only) == {("countdown", "shortest", 2)} and {row["method"] for row in only} == {"shortest"}
    assert {r["env"] for r in r3l("table", "learning")["rows"]} == {"alfworld", "guess"}
    assert {(r["env"], r["method"]) for r in r3l("table", "budget", "--env", "guess")["rows"]} == {
        ("guess", "grpo"),
        ("guess", "shortest"),
    }
    for name in ("learning_curves", "table1"):
        r3l("figure", name, "--env", "guess", "--method", "shortest")
    r3l("report")
    page = (tmp_path / "results/report.html").read_text()
    titles = re.findall(
        r"<figcaption><h3>(.*?)</h3>", page[page.index('id="tables"') : page.index('id="figures"')]
    )
    assert (
        any(title.startswith("Other runs") for title in titles)
        and page.count("<td>Guess a number</td>") > 6
        and "<td>Countdown</td>" in page
    )


DAMAGE = {
    "manifest.json": b"[",
    "result.json": b"",
    "evaluation.json": b'{"schema": NaN}',
    "episodes.jsonl": b"[]",
}
COMMANDS = [
    ["table", "table1"],
    ["table", "claims"],
    ["compare", "grpo", "--against", "zero_shot", "--env", "alfworld", "--offline", "--stored", "x"],
    ["report", "--out", "r.html"],
]


@pytest.mark.parametrize("name", DAMAGE)
def test_a_damaged_run_is_left_out_with_a_warning_unless_it_is_named(tmp_path, r3l, refused, caplog, name):
    runs = [
        write_run(tmp_path / "x", method, s, [1, s], [0, 0])
        for method in ("zero_shot", "grpo")
        for s in (0, 1)
    ]
    bad, probes = runs[-1].parent, tmp_path / "x/probe"
    (bad / name).write_bytes(DAMAGE[name])
    sign(bad)
    probes.mkdir()
    (probes / "notes.json").write_text("{}")
    for words in COMMANDS:
        caplog.clear()
        shown = r3l(*words, "--results", "x")
        assert f"a run is left out: {bad.relative_to(tmp_path)}" in caplog.text, words
        if words[1] == "table1":
            assert {("alfworld", "grpo", 1), ("alfworld", "zero_shot", 2)} <= done(shown["rows"])
        if words[0] == "report":
            assert shown["runs"] == 3
        if words[1] == "claims" or words[0] == "report":
            assert "a probe is left out: x/probe/notes.json" in caplog.text
    assert str(bad) in refused("table", "table1", bad, runs[0].parent)


def test_a_copy_of_a_stored_run_with_another_result_is_refused(tmp_path, refused):
    stored = next(STORED.glob("nano/webshop/*/grpo/seed0/evaluation.json"))
    mine = write_run(tmp_path / "results", "grpo", 0, [1], [0], env="webshop", model=stored.parts[-4])
    task_set = json.loads(stored.read_text())["task_set"]
    rewrite(mine, json.dumps(json.loads(mine.read_text()) | {"task_set": task_set}))
    said = refused("table", "table1", mine.parent, stored.parent)
    assert "are the same method and seed, but their episodes differ" in said


def test_a_table_of_a_tier_without_runs_has_the_planned_rows(r3l, tmp_path):
    write_run(tmp_path / "results", "grpo", 0, [1, 0], [0, 0])
    rows = r3l("table", "table1", "--tier", "paper")["rows"]
    assert {row["tier"] for row in rows} == {"paper"} and not any(row["seeds_done"] for row in rows)
    assert "r3l" in {row["method"] for row in rows}


@pytest.mark.parametrize("tier", ["nano", "smol"])
def test_a_table_of_an_environment_without_runs_at_a_tier_says_so(refused, tmp_path, tier):
    """It printed the published numbers alone, of other environments."""
    write_run(tmp_path / "results", "grpo", 0, [1, 0], [0, 0])
    said = refused("table", "table1", "--tier", tier, "--env", "math")
    assert f"no run under results belongs to table1 (math) at tier {tier}: name other --env" in said
