"""The scripts that measure how the code reads, on a package small enough to count by hand."""

import importlib
import subprocess
import sys
from pathlib import Path

import pytest
from reading.walks import Trace

SCRIPTS = Path(__file__).parent

ONE = '''"""A module."""

# A comment on its own line.
from tiny.two import double


class Pair:
    """Those that go together."""

    def total(self, xs):
        """Of all numbers twice their sum."""
        # Why: the second comment.
        return _sum([double(x) for x in xs])  # a comment at the end of a line


def _sum(xs):
    """Whether the sum or nothing."""
    total = 0
    for x in xs:
        total += x

    return total
'''
# The comment before double has 111 characters.
TWO = f'''class Pair:
    """A pair of the other kind."""


# {"x" * 109}
@staticmethod
def double(x):
    """Twice ``x``."""
    return _sum(x, x)


def _sum(a, b):
    return a + b


def _unused():
    pass
'''


@pytest.fixture
def tiny(tmp_path):
    """A repository with the package ``tiny``: ONE and TWO are committed, and a file that is not tracked."""
    package = tmp_path / "tiny"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "one.py").write_text(ONE)
    (package / "two.py").write_text(TWO)
    who = ["-c", "user.name=test", "-c", "user.email=test@example.org"]
    for command in (["init", "-q"], ["add", "."], ["commit", "-qm", "Tiny package"]):
        subprocess.run(["git", *who, *command], cwd=tmp_path, check=True)
    (package / "untracked.py").write_text("def untracked():\n    pass\n")
    return tmp_path


@pytest.fixture
def measures(monkeypatch):
    monkeypatch.syspath_prepend(str(SCRIPTS))
    return importlib.import_module("measures")


@pytest.mark.parametrize("revision", ["HEAD", "WORKTREE"])
def test_counts_of_a_small_package(tiny, measures, revision):
    """Bodies: total 1 (the comment before it does not count), _sum 5, double 1, _sum 1, _unused 1."""
    found = measures.measure(measures.sources(tiny, revision, ("tiny",)))
    assert (found.files, found.lines) == (3, 22 + 17)
    assert sorted(found.bodies) == [1, 1, 1, 1, 5]
    assert sorted(found.wholes) == [2, 2, 3, 4, 7]
    assert found.longest[0] == (5, "tiny/one.py:_sum")
    assert found.comments == 3 and found.long_lines == 1
    # _sum is used once in each file, so twice by name; _unused never.
    assert (found.private, found.named_once, found.named_once_at_home) == (3, 0, 2)
    assert found.docstrings == 6
    assert found.openings == {"Those": 1, "Of": 1, "Whether ... or": 1}
    assert found.classes == {"Pair": ["tiny/one.py", "tiny/two.py"]}


def test_the_table_has_a_column_for_each_revision(tiny, measures):
    before = measures.rows(measures.measure(measures.sources(tiny, "HEAD", ("tiny",))))
    (tiny / "tiny" / "two.py").write_text(TWO.replace("# x", "# y\n# x"))
    after = measures.rows(measures.measure(measures.sources(tiny, "WORKTREE", ("tiny",))))
    lines = measures.table({"HEAD": before, "WORKTREE": after}).splitlines()
    assert lines[0] == "| | HEAD | WORKTREE |"
    assert "| lines of a body without its docstring: median | 1 | 1 |" in lines
    assert "| ... share of bodies of at most 4 | 80% | 80% |" in lines
    assert "| comments on a line of their own | 3 | 4 |" in lines


def test_an_opening_is_a_word_not_a_beginning(measures):
    opening = measures.forbidden_opening
    assert opening("What, if anything, is left.") == "What"
    assert opening("Often called.") == opening("The one that is left. Whether or not.") == ""
    assert opening("Whether it is left. Two or three.") == ""


def test_docstrings_are_drawn_by_the_seed(tiny, monkeypatch, measures):
    docstrings = importlib.import_module("docstrings")
    files = measures.sources(tiny, "HEAD", ("tiny",))
    drawn = docstrings.draw(files, seed=0, count=100)
    names = sorted(found.name for found in drawn)
    assert names == ["Pair", "Pair", "Pair.total", "double"]  # nothing private
    assert drawn == docstrings.draw(files, seed=0, count=100)
    assert docstrings.draw(files, seed=0, count=2) == drawn[:2]
    double = next(found for found in drawn if found.name == "double")
    assert double.markdown(7, answer=False) == (
        "### 7. `tiny.two`: `double`\n\n```python\n@staticmethod\ndef double(x)\n```\n\n> Twice ``x``.\n"
    )
    assert "(tiny/two.py:7)" in double.markdown(7, answer=True)


def test_a_walk_counts_files_functions_and_switches(tiny, monkeypatch):
    """Pair.total calls double and two._sum for each number, then one._sum: one switch to two.py, one back."""
    monkeypatch.syspath_prepend(str(tiny))
    with Trace(tiny, ("tiny",)) as trace:
        from tiny.one import Pair

        assert Pair().total([1, 2]) == 6
    walk = trace.walk("all")
    assert (walk.files, walk.functions, walk.switches, walk.calls) == (2, 4, 2, 6)
    assert walk.per_file == {"tiny/one.py": (2, 2, 2), "tiny/two.py": (2, 1, 1)}

    with Trace(tiny, ("tiny",), first="double", last="double") as trace:
        Pair().total([1, 2])
    walk = trace.walk("double alone")
    assert (walk.files, walk.functions, walk.switches, walk.calls) == (1, 2, 0, 4)

    with Trace(tiny, ("tiny",), first="nothing", last="nothing") as trace:
        Pair().total([1])
    with pytest.raises(ValueError, match="'nothing'"):
        trace.walk("none")
    for name in ("tiny", "tiny.one", "tiny.two"):
        del sys.modules[name]


def test_the_walk_of_an_environment_runs():
    command = [sys.executable, str(SCRIPTS / "walks.py"), "observation"]
    printed = subprocess.run(command, check=True, capture_output=True, encoding="utf-8").stdout
    assert "| environment `math` to its first observation |" in printed


def test_a_class_name_has_one_meaning(measures):
    assert measures.measure(measures.sources(measures.ROOT)).classes == {}
