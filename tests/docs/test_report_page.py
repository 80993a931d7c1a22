"""The page of the report describes the trajectories' file as its module does."""

import inspect
import textwrap

from docs.pages import DOCS, blocks

from r3l.runs import trajectory_log


def test_the_lines_of_trajectories_are_those_of_the_module():
    (described,) = [block for block in blocks(DOCS / "report.md") if block.startswith("step, ")]
    assert textwrap.indent(described, "    ") in inspect.getdoc(trajectory_log)
