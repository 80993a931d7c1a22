"""Tables in Markdown with cells as they are; numbers of results are laid out by r3l.report.render."""

from __future__ import annotations

from collections.abc import Collection, Sequence


def pipe_table(head: Sequence[str], rows: Sequence[Sequence[str]], right: Collection[str] = ()) -> str:
    """A pipe table, without a line end; ``right``: the columns of ``head`` that stand at the right."""
    ruler = ["--:" if name in right else "---" for name in head]
    return "\n".join(f"| {' | '.join(line)} |" for line in (head, ruler, *rows))
