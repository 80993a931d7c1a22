"""The HTML report: what it says, that it is one file, that no text of a run becomes markup, what a browser
shows."""

import html
import json
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import quote, unquote

import pytest
from report import explored
from report.runs import rewrite, write_run, write_three_seeds
from start_models import cell
from typer.testing import CliRunner

from r3l.cli import app
from r3l.core.errors import DataError
from r3l.evaluation.verification import sign
from r3l.report.full_table import full_table
from r3l.report.html import page as report
from r3l.report.labels import p_cell
from r3l.report.reading import read_runs
from r3l.report.trajectories import pack, unpack
from r3l.runs.run_paths import find_runs

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
NEEDS_CHROMIUM = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on PATH (apt-get install chromium)")
RUN = f"{cell('alfworld', 'r3l')}/seed0"
PIXEL = bytes.fromhex("89504e470d0a1a0a")


class Page(HTMLParser):
    """Elements, the addresses that they name, and the text of every script."""

    def __init__(self, path):
        super().__init__()
        self.tags, self.addresses, self.ids, self.scripts, self.current = [], [], set(), [], None
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.addresses += [value for key, value in attrs if key in ("src", "href", "srcset", "action")]
        self.ids.add(dict(attrs).get("id"))
        self.current = dict(attrs) if tag == "script" else None
        if self.current is not None:
            self.scripts.append([self.current, ""])

    def handle_endtag(self, tag):
        self.current = None

    def handle_data(self, data):
        if self.current is not None:
            self.scripts[-1][1] += data

    def script(self, name):
        """The text of the script with this id."""
        return next(text for attributes, text in self.scripts if attributes.get("id") == name)


@pytest.fixture
def report_path(three_seeds, tmp_path):
    """A report of nine runs, one with trajectories and a hostile manifest, and one figure."""
    explored.write(three_seeds / RUN, steps=3)
    manifest = {
        "run": {
            "profile": "released_code",
            "env_settings": {"options": {"invalid": explored.HOSTILE}},
            "method_settings": {"alpha": 5.0},
        },
        "versions": {"torch": "1"},
        "hardware": {"gpu": None},
        "commit": "abc",
    }
    path = three_seeds / RUN / "manifest.json"
    rewrite(path, json.dumps(json.loads(path.read_text()) | manifest))
    (tmp_path / "curves.png").write_bytes(PIXEL)
    runs = read_runs(find_runs(three_seeds))
    return report.write(runs, [tmp_path / "curves.png"], 3, tmp_path / "report.html")


def test_it_is_one_file_that_asks_for_nothing(report_path):
    page = Page(report_path)
    assert all(address.startswith(("#", "data:")) for address in page.addresses)
    text = report_path.read_text(encoding="utf-8")
    assert "@import" not in text and "url(" not in text and "fetch(" not in text
    assert "data:image/png;base64,iVBORw0KGgo=" in page.addresses


def test_a_row_leads_to_its_runs_and_a_run_to_its_trajectories(report_path):
    page = Page(report_path)
    places = [unquote(address[1:]) for address in page.addresses if address.startswith("#")]
    rows = {place for place in places if place.count("/") == 3 and "=" not in place}
    assert rows == {cell("alfworld", method) for method in ("zero_shot", "grpo", "r3l")}
    assert set(places) <= page.ids
    details = unpack(page.script("run-details"))
    runs = [run for cell_ in rows for run in details[cell_]]
    assert len(runs) == 9 and [run["id"] for run in runs if run["viewer"]] == [RUN]
    (run,) = [run for run in runs if run["viewer"]]
    assert run["manifest"]["versions"] == {"torch": "1"} and run["seed"] == 0


def test_what_runs_say_stays_text(report_path):
    """The hostile hint, suggestion and option neither end a script nor open an element."""
    page = Page(report_path)
    # One run of the viewer, what is shown of opened runs, and our own script.
    assert [a.get("data-id", a.get("id")) for a, _ in page.scripts] == [RUN, "run-details", None]
    data = unpack(page.scripts[0][1])
    guided = data["tasks"][0]["members"][0][2]
    assert guided["turns"][1]["prompt"] == explored.HOSTILE
    assert page.tags.count("img") == 1  # the figure
    assert html.escape(explored.HOSTILE, quote=False).replace("'", "&#39;") in report_path.read_text(
        encoding="utf-8"
    )


def test_methods_stand_beside_zero_shot_and_grpo(three_seeds):
    (rows, to_grpo), *_ = report.score_tables(read_runs(find_runs(three_seeds)), 3)
    of = {
        row["method"].text: row
        for row in full_table(rows, to_grpo).sections[0].rows
        if row["tasks"].text == "all"
    }
    assert of["GRPO"]["minus GRPO"].text == "" and of["zero_shot"]["difference"].text == ""
    less = of["R3L"]["difference"].value - of["GRPO"]["difference"].value
    assert of["R3L"]["minus GRPO"].value == pytest.approx(less)
    assert of["R3L"]["p (GRPO)"].text


def test_a_p_value_is_never_printed_as_zero():
    assert [p_cell(p).text for p in (0.0, 0.0004, 0.02, 1.0)] == ["< 0.001", "< 0.001", "0.020", "1.000"]
    assert p_cell(None) is None


def test_the_same_runs_give_the_same_bytes(three_seeds, tmp_path):
    runs = read_runs(find_runs(three_seeds))
    first = report.write(runs, [], 3, tmp_path / "a.html").read_bytes()
    assert report.write(runs, [], 3, tmp_path / "b.html").read_bytes() == first


def test_trajectories_are_cut_to_size_by_whole_tasks(tmp_path):
    explored.write(tmp_path, steps=3)
    packed = pack(tmp_path, 10**6)
    whole = unpack(packed)
    assert [task["step"] for task in whole["tasks"]] == [1, 2, 3] and whole["left_out"] == 0
    two = pack(tmp_path, len(packed) - 1)  # from the last step on
    assert [task["step"] for task in unpack(two)["tasks"]] == [2, 3] and unpack(two)["left_out"] == 1
    assert len(two) < len(packed)
    one = unpack(pack(tmp_path, 1))  # never none
    assert [task["step"] for task in one["tasks"]] == [3] and one["left_out"] == 2
    assert pack(tmp_path / "nothing", 1) is None


def test_the_page_grows_little_with_seeds(tmp_path, monkeypatch):
    """Fifty more seeds of a cell, all with trajectories: the first seed's are shown, the others counted."""
    monkeypatch.setattr(report, "EMBEDDED", 1)
    for seed in range(60):
        path = write_run(tmp_path / "results", "r3l", seed, [1, 0], [0, 0])
        explored.write(path.parent)
        sign(path.parent)
    paths = find_runs(tmp_path / "results")
    few = report.write(read_runs(paths[:10]), [], 60, tmp_path / "few.html")
    many = report.write(read_runs(paths), [], 60, tmp_path / "many.html")
    assert many.stat().st_size - few.stat().st_size < 50 * 250  # bytes a run; a manifest has some thousand
    page, text = Page(many), many.read_text(encoding="utf-8")
    assert [a["data-id"] for a, _ in page.scripts if "data-id" in a] == [RUN]
    assert "59 more runs kept trajectories" in text
    (runs,) = unpack(page.script("run-details")).values()
    assert [run["seed"] for run in runs] == list(range(60))


def test_the_verb_writes_it_and_says_what_is_in_it(three_seeds, tmp_path):
    out = tmp_path / "out" / "report.html"
    done = CliRunner().invoke(app, ["report", "--results", str(three_seeds), "--out", str(out), "--json"])
    assert json.loads(done.output) == {"file": str(out), "runs": 9, "figures": 0, "bytes": out.stat().st_size}
    done = CliRunner().invoke(
        app, ["report", "--results", str(three_seeds), "--figures", str(tmp_path / "no")]
    )
    assert isinstance(done.exception, DataError) and "--figures" in str(done.exception)


def dom(path: Path, address: str, *options: str) -> str:
    """The document as headless Chromium has built it."""
    command = [
        str(CHROMIUM),
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        *options,
    ]
    command += [f"--user-data-dir={path.parent / 'browser'}", "--virtual-time-budget=5000", "--dump-dom"]
    done = subprocess.run(
        [*command, f"{path.as_uri()}#{address}"], capture_output=True, text=True, timeout=300, check=True
    )
    return done.stdout


@pytest.mark.slow
@NEEDS_CHROMIUM
def test_a_browser_shows_pivot_and_masked_tokens(tmp_path):
    """Two runs; the address chooses the second one, its step 2, its only attempt."""
    results = write_three_seeds(tmp_path / "results")
    for run, steps in ((f"{cell('alfworld', 'grpo')}/seed0", 1), (RUN, 3)):
        explored.write(results / run, steps=steps)
        sign(results / run)
    out = report.write(read_runs(find_runs(results)), [], 3, tmp_path / "report.html")
    shown = dom(out, f"run={quote(RUN, safe='')}&step=2&member=0")
    assert f'data-shown="{RUN} 2 1 0"' in shown and "data-broken" not in shown
    assert f'class="of-run" href="#{RUN}"' in shown and f'id="{RUN}" open=""' not in shown
    assert f'id="{RUN}" open=""' in dom(out, RUN)
    of_cell = RUN.rpartition("/")[0]
    assert f'id="{of_cell}" open=""' in dom(out, f"{of_cell}/seed99")  # a seed that it does not have
    for no_address in ("%", "%E0%A4%A", "run=%&step=%", "run=nothing&step=x&task=-1&member=99"):
        assert 'data-shown="' in dom(out, no_address), no_address
    viewer = shown[shown.index('<table class="compare">') : shown.index('<section id="budget">')]
    assert "pivot: retry starts at turn 1" in viewer
    assert viewer.index("pivot: retry") < viewer.index("<th>1</th>")  # above turn 1
    assert (
        len(re.findall(r'class="masked"', viewer)) == 2 + 3 + 1
    )  # base, distilled: turn 0; guided: all; reflection
    assert len(re.findall(r'class="trained negative"', viewer)) == 2  # the base's turns 1 and 2, A = -1
    assert len(re.findall(r'class="trained positive" style="--size: 1;"', viewer)) == 2  # the retry's, A = +3
    assert "A = -1.000, trains 4 of 6 tokens" in viewer and "A = +3.000" in viewer
    assert html.escape(explored.HOSTILE, quote=False) in viewer.replace("&nbsp;", " ")


def test_two_runs_of_ones_own_come_first_and_only_claims_that_they_test_follow(tmp_path):
    """Scores, then the runs' own curves and attempts; the paper's claims after them, none of them
    untested."""
    for method in ("grpo", "r3l"):
        path = write_run(tmp_path / "results", method, 0, [1, 0], [0, 0])
        explored.write(path.parent)
        sign(path.parent)
    out = report.write(read_runs(find_runs(tmp_path / "results")), [], 1, tmp_path / "report.html")
    text, page = out.read_text(encoding="utf-8"), Page(out)
    sections = re.findall(r'<section id="(\w+)">', text)
    assert sections[:5] == ["about", "tables", "figures", "trajectories", "claims"]
    assert page.tags.count("img") == 1 and "learning curves" in text  # drawn without being asked for
    assert ">not tested<" not in text and "No figure" not in text
    first = text[text.index('<section id="tables">') : text.index('<section id="figures">')]
    assert "R3L" in first and "Claims" not in first


def test_runs_without_training_have_no_curves_and_no_claims(tmp_path):
    write_run(tmp_path / "results", "zero_shot", 0, [1, 0], [0, 0])
    out = report.write(read_runs(find_runs(tmp_path / "results")), [], 1, tmp_path / "report.html")
    text = out.read_text(encoding="utf-8")
    assert "None of these runs was trained" in text and '<section id="claims">' not in text
