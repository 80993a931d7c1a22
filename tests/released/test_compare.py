"""A made-up release: differences are found, those with a reason have its id, and the process gets no environment."""

from itertools import islice

import pytest

from r3l.core.errors import DataError
from r3l.files.paths import ROOT
from r3l.released import compare, report
from r3l.released.check import agree
from r3l.released.checks import SUBJECTS
from tests.released import made_up


@pytest.fixture
def clone(tmp_path, monkeypatch):
    monkeypatch.setitem(SUBJECTS, "made up", "tests.released.made_up")
    monkeypatch.setenv("SECRET", "never handed on")
    (tmp_path / "school").mkdir()
    (tmp_path / "school" / "grades.py").write_text(made_up.SOURCE)
    return tmp_path


def test_differences_are_found_and_those_with_a_reason_have_its_id(clone):
    (outcome,) = compare.run(["made up"], {"made up": clone})
    found = [(m.case["mark"], m.theirs, m.audit) for m in outcome.mismatches]
    assert found == [(-1, {"raised": "ValueError"}, ""), (9.6, {"grade": "best", "secret": None}, "A-1")]
    (row,) = report.rows([outcome])
    assert (row["cases"], row["equal"], row["explained"], row["unexplained"]) == (4, 2, {"A-1": 1}, 1)
    (example,) = report.examples([outcome])
    assert example.splitlines()[0] == "made up: grades: {'mark': -1}"


def test_a_file_that_is_not_there_does_not_run_and_is_named(clone):
    (clone / "school" / "grades.py").unlink()
    (outcome,) = compare.run(["made up"], {"made up": clone})
    assert (outcome.cases, list(outcome.missing)) == (0, ["school/grades.py"])
    notes = " ".join(report.table(report.rows([outcome]), "ran on nothing").notes)
    assert "ran on nothing" in notes and "did not run: school/grades.py" in notes


def test_a_file_without_the_definition_is_an_error(clone):
    (clone / "school" / "grades.py").write_text("BEST = 10")
    with pytest.raises(DataError, match=r"grades \(school/grades.py\) could not run: .*defines no grade"):
        compare.run(["made up"], {"made up": clone})


def test_a_release_without_a_clone_is_left_out(clone):
    assert compare.run(["made up"], {}) == []


@pytest.mark.parametrize(
    ("ours", "theirs", "equal"),
    [
        (1.0, 1.0 + 1e-7, True),
        (1.0, 1.1, False),
        (True, 1, False),
        ([1, [2.0]], [1, [2.0 + 1e-9]], True),
        ([1], [1, 2], False),
        ({"a": float("nan")}, {"a": float("nan")}, True),
        ({"a": 1}, {"b": 1}, False),
        ("1", 1, False),
        (None, None, True),
    ],
)
def test_answers_agree(ours, theirs, equal):
    assert agree(ours, theirs, 1e-6) is equal


def test_every_subject_has_checks_with_names_of_their_own():
    for subject in SUBJECTS:
        checks = compare.checks_of(subject)
        assert {check.subject for check in checks} == {subject}
        assert len({check.name for check in checks}) == len(checks)


def test_cases_are_the_same_every_time():
    for subject in SUBJECTS:
        for check in compare.checks_of(subject):
            if isinstance(check, compare.Check):
                assert list(islice(check.cases(), 5)) == list(islice(check.cases(), 5)), check.name


def test_the_project_holds_no_released_file():
    assert not list(ROOT.glob("r3l/released/**/*.yaml"))
