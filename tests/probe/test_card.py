"""Cards of the stored start model of ALFWorld, by the command; their page and picture; bad input."""

from __future__ import annotations

import json

import pytest
from docs.pages import DOCS, text
from program import run
from start_models import START_FOLDER, START_MODEL

from r3l.core.task import Task
from r3l.probe import page, picture
from r3l.probe.card import CARDS, SECTIONS, Target, paper, reasons, targets
from r3l.probe.measure import chosen

COMMAND = ("probe", "alfworld", "--tasks", "4", "--attempts", "2")


@pytest.fixture(scope="module")
def card(tmp_path_factory):
    """Four tasks, two attempts each."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        out = tmp_path_factory.mktemp("regime") / "alfworld.json"
        code, _, _ = run(monkeypatch, Captured(), *COMMAND, "--out", out)
    assert code == 0
    return json.loads(out.read_text())


class Captured:
    """In place of pytest's capsys, which a fixture of a module cannot have."""

    out = err = ""

    def readouterr(self):
        return self


def test_a_card_says_what_was_measured(card):
    weights = json.loads((START_FOLDER / "sft.json").read_text())["weights_sha256"]
    assert card["model"]["weights_sha256"] == weights and card["model"]["recipe"] == START_MODEL
    assert (card["env"], card["tasks"], card["attempts"], card["halves"]) == ("alfworld", 4, 8, ["easy", "hard"])
    assert card["task_set"]["name"] == "small/validation" and len(card["task_set"]["sha256"]) == 64
    assert card["temperature"] == 0.7 and card["prompts"] == "compact"


def test_its_measures_are_consistent(card):
    found = card["measures"]
    assert sum(m["value"] for key, m in found.items() if key.startswith("stop_")) == pytest.approx(1)
    assert found["success"]["value"] == found["stop_success"]["value"]
    unusable = [found[f"stop_{stop}"]["value"] for stop in ("format", "inadmissible", "truncated")]
    assert found["unusable"]["value"] == pytest.approx(sum(unusable))
    failures = round(8 * (1 - found["success"]["value"]))
    assert found["reflections_valid"]["n"] == found["critic_names"]["n"] == failures
    paired = ("retry_success", "unguided_success", "guided_minus_unguided", "from_start_success", "fresh_success")
    assert len({found[key]["n"] for key in paired}) == 1
    difference = found["retry_success"]["value"] - found["unguided_success"]["value"]
    assert found["guided_minus_unguided"]["value"] == pytest.approx(difference)
    assert found["expert_success"]["n"] == 4
    for key, measure in found.items():
        assert measure["target"] == (str(targets()[key]) if key in targets() else None)
        if measure["value"] is not None and None not in (measure["low"], measure["high"]):
            assert measure["low"] - 1e-9 <= measure["value"] <= measure["high"] + 1e-9, key


def test_a_card_repeats_and_the_command_prints_it(card, monkeypatch, capsys, tmp_path):
    out = tmp_path / "again.json"
    code, printed, _ = run(monkeypatch, capsys, *COMMAND, "--out", out, "--json")
    again = json.loads(printed)
    assert code == 0 and again == json.loads(out.read_text())
    assert again["measures"] == card["measures"] and again["causes"] == card["causes"]


def test_every_measure_has_a_line_and_every_card_a_column(card):
    shown = {key for labels in SECTIONS.values() for key in labels}
    assert {key for key in card["measures"] if not key.startswith("stop_")} == shown
    table = page._tables([card, card])
    assert table.count("*Attempts*") == 1 and "| measure | target | ALFWorld | ALFWorld |" in table
    assert len([line for line in table.splitlines() if line.startswith("- ALFWorld:")]) == 2


def test_the_picture_is_drawn_with_and_without_cards_from_before(card, tmp_path):
    for name, now, before in (("both", [card], [card]), ("before", [], [card]), ("now", [card], [])):
        picture.draw(now, before, tmp_path / f"{name}.png")
        assert (tmp_path / f"{name}.png").stat().st_size > 5000


def test_every_target_that_a_start_model_misses_has_its_reason_and_no_other():
    for card in page.cards(CARDS):
        missed = {key for key, measure in card["measures"].items() if measure["met"] is False}
        assert missed == set(reasons(card["env"])), card["env"]


def test_a_missed_target_without_a_reason_is_still_on_the_page(card):
    """r3l probe writes the page after minutes of work, before anybody could give a reason."""
    measures = {**card["measures"], "hint_followed": {**card["measures"]["hint_followed"], "met": False}}
    lines = page._missed({**card, "env": "no_reasons_yet", "measures": measures}, explained=True)
    assert "  - the critic's hint is the first action: configs/probe_targets.yaml does not say why" in lines


def test_the_page_is_that_of_the_stored_cards():
    assert text(DOCS / "regime.md") == page.page(), "python -m r3l.probe.page"


def test_the_papers_numbers_stand_beside_ours():
    numbers = paper("WebShop")
    assert [row["value"] for row in numbers["retry_right"]] == [0.39, 0.51]
    assert [row["value"] for row in numbers["right_over_wrong"]] == [3.0, 3.64]  # 0.39 / 0.13, 0.51 / 0.14
    assert sorted(row["value"] for row in numbers["retry_improved"]) == [0.237, 0.316, 0.365]
    assert paper("Mathematics") == {}


@pytest.mark.parametrize(
    ("target", "value", "low", "met"),
    [
        (Target(at_least=0.1, at_most=0.35), 0.35, None, True),
        (Target(at_least=0.1, at_most=0.35), 0.36, None, False),
        (Target(at_least=1.5, interval_above=1), 1.6, 1.01, True),
        (Target(at_least=1.5, interval_above=1), 1.6, 1.0, False),
        (Target(at_least=1.5, interval_above=1), 1.4, 1.1, False),
        (Target(interval_above=0), 0.2, None, None),
        (Target(at_most=0.05), None, None, None),
    ],
)
def test_a_target_is_met_by_value_and_interval(target, value, low, met):
    assert target.met({"value": value, "low": low}) is met


def test_some_tasks_are_of_both_halves_and_the_same_every_time():
    tasks = [Task(f"t{k}", "toy", "validation", "easy" if k % 3 else "hard") for k in range(30)]
    some = chosen(tasks, 6)
    assert [task.group for task in some].count("hard") == 3 and chosen(tasks[::-1], 6) == some
    assert all(task in chosen(tasks, 10) for task in some) and chosen(tasks, None) == tasks


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("chess",), "there is no env 'chess'"),
        (("alfworld", "--model", "nowhere"), "nowhere"),
        (("alfworld", "--model", "no/such/folder"), "there is no model 'no/such/folder'"),
        (("alfworld", "--task-set", "small/test"), "small/test is a test task set"),
        (("alfworld", "--task-set", "nano/dev"), "has no split 'dev'"),
        (("alfworld", "--tasks", "999"), "--tasks is 999, but the task set has 128 tasks"),
        (("gsm8k",), "gsm8k has no validation task set in tier nano; give --task-set"),
        (
            ("gsm8k", "--task-set", "gsm8k_nano_train/train", "--tasks", "2", "--attempts", "2"),
            "the environment has no critic for tasks such as",
        ),
    ],
)
def test_bad_input_is_one_paragraph_and_exit_code_2(monkeypatch, capsys, tmp_path, arguments, message):
    monkeypatch.chdir(tmp_path)
    code, out, err = run(monkeypatch, capsys, "probe", *arguments, "--out", "card.json")
    said = err[err.index("error: ") :]
    assert code == 2 and message in said and "Traceback" not in err and len(said.strip().splitlines()) == 1
    assert out == "" and not (tmp_path / "card.json").exists()
