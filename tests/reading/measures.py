"""Print, as a Markdown table, how long functions are, how many comments there are, and how docstrings begin.

    python tests/reading/measures.py                  the working tree
    python tests/reading/measures.py c4258e00         a commit
    python tests/reading/measures.py c4258e00 HEAD    one column a commit; WORKTREE is the working tree

Only tracked files count. No figure is a target: what counts is how well the code reads.
"""

from __future__ import annotations

import argparse
import ast
import io
import statistics
import subprocess
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("r3l", "envs", "baselines")
WORKTREE = "WORKTREE"
LINE = 110  # longest line that is not counted
SHORT = 4  # lines of a short function
NO_OPENINGS = ("Of", "That", "Those", "What", "Whoever", "Where")  # "Whether ... or" is the seventh

Function = ast.FunctionDef | ast.AsyncFunctionDef
FUNCTION = (ast.FunctionDef, ast.AsyncFunctionDef)
DOCUMENTED = (ast.Module, ast.ClassDef, *FUNCTION)


def git(root: Path, *arguments: str) -> str:
    done = subprocess.run(["git", "-C", root, *arguments], check=True, capture_output=True, encoding="utf-8")
    return done.stdout


def sources(root: Path, revision: str = WORKTREE, packages: tuple[str, ...] = PACKAGES) -> dict[str, str]:
    """The text of every tracked .py file of ``packages`` by its path; ``revision``: a commit, or WORKTREE."""
    if revision == WORKTREE:
        paths = git(root, "ls-files", "-z", "--", *packages).split("\0")
        present = [path for path in paths if path.endswith(".py") and (root / path).is_file()]
        return {path: (root / path).read_text(encoding="utf-8") for path in present}
    paths = git(root, "ls-tree", "-r", "-z", "--name-only", revision, "--", *packages).split("\0")
    return {path: git(root, "show", f"{revision}:{path}") for path in paths if path.endswith(".py")}


def body_lines(function: Function) -> int:
    """Lines from the first statement after the docstring to the last, blank lines and comments included."""
    statements = function.body[1:] if ast.get_docstring(function, clean=False) is not None else function.body
    if not statements:
        return 0
    return (statements[-1].end_lineno or 0) - statements[0].lineno + 1


def all_lines(function: Function) -> int:
    """Lines from ``def`` to the end, signature and docstring included; no decorators."""
    return (function.end_lineno or 0) - function.lineno + 1


def named_functions(node: ast.AST, scope: str = "") -> Iterator[tuple[str, Function]]:
    """Every function below ``node``, nested ones included, with its dotted name."""
    for child in ast.iter_child_nodes(node):
        inner = scope
        if isinstance(child, (ast.ClassDef, *FUNCTION)):
            inner = f"{scope}.{child.name}" if scope else child.name
            if isinstance(child, FUNCTION):
                yield inner, child
        yield from named_functions(child, inner)


def own_line_comments(source: str) -> int:
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    comments = [token for token in tokens if token.type == tokenize.COMMENT]
    return sum(not token.line[: token.start[1]].strip() for token in comments)


def forbidden_opening(docstring: str) -> str:
    """The word of NO_OPENINGS that a docstring begins with, "Whether ... or" or ""."""
    words = docstring.split()
    first = words[0].strip(",.:;") if words else ""
    if first in NO_OPENINGS:
        return first
    first_sentence = " ".join(words).split(". ")[0]
    return "Whether ... or" if first == "Whether" and " or " in first_sentence else ""


@dataclass
class Measures:
    """What was counted in one revision."""

    files: int = 0
    lines: int = 0
    long_lines: int = 0
    comments: int = 0
    bodies: list[int] = field(default_factory=list)  # lines of each function
    wholes: list[int] = field(default_factory=list)
    longest: list[tuple[int, str]] = field(default_factory=list)  # (lines, path:name), longest first
    private: int = 0
    named_once: int = 0
    named_once_at_home: int = 0
    docstrings: int = 0
    openings: Counter[str] = field(default_factory=Counter)
    classes: dict[str, list[str]] = field(default_factory=dict)  # repeated class names: the files of each


def measure(files: Mapping[str, str]) -> Measures:
    """Counts over ``files``, texts by path."""
    found = Measures(files=len(files), lines=sum(len(text.splitlines()) for text in files.values()))
    private: list[tuple[str, str]] = []  # (path, name)
    uses: dict[str, Counter[str]] = defaultdict(Counter)  # of a name or attribute, how often in each file
    classes: dict[str, list[str]] = defaultdict(list)
    for path, text in files.items():
        tree = ast.parse(text)
        found.long_lines += sum(len(line) > LINE for line in text.splitlines())
        found.comments += own_line_comments(text)
        for name, function in named_functions(tree):
            found.bodies.append(body_lines(function))
            found.wholes.append(all_lines(function))
            found.longest.append((body_lines(function), f"{path}:{name}"))
            if function.name.startswith("_") and not function.name.startswith("__"):
                private.append((path, function.name))
        for node in ast.walk(tree):
            if isinstance(node, DOCUMENTED) and (docstring := ast.get_docstring(node)):
                found.docstrings += 1
                if opening := forbidden_opening(docstring):
                    found.openings[opening] += 1
            if isinstance(node, ast.ClassDef):
                classes[node.name].append(path)
            if isinstance(node, ast.Name):
                uses[node.id][path] += 1
            elif isinstance(node, ast.Attribute):
                uses[node.attr][path] += 1
    found.longest.sort(key=lambda entry: (-entry[0], entry[1]))
    found.private = len(private)
    # The simple count is by name over all files: two helpers of one name hide each other. The other one
    # counts uses in the helper's own file and in files that define no helper of this name.
    homes = defaultdict(set)
    for path, name in private:
        homes[name].add(path)
    for path, name in private:
        found.named_once += uses[name].total() == 1
        elsewhere = sum(count for other, count in uses[name].items() if other not in homes[name])
        found.named_once_at_home += uses[name][path] + elsewhere == 1
    found.classes = {name: paths for name, paths in sorted(classes.items()) if len(paths) > 1}
    return found


def rows(found: Measures) -> dict[str, str]:
    """The lines of the table."""
    functions = len(found.bodies)

    def share(lengths: list[int]) -> str:
        return f"{sum(length <= SHORT for length in lengths) / max(functions, 1):.0%}"

    rows = {
        "files": f"{found.files:,}",
        "lines": f"{found.lines:,}",
        "functions": f"{functions:,}",
        "lines of a body without its docstring: median": f"{statistics.median(found.bodies or [0]):g}",
        f"... share of bodies of at most {SHORT}": share(found.bodies),
        "lines from `def` to the end: median": f"{statistics.median(found.wholes or [0]):g}",
        f"... share of at most {SHORT}": share(found.wholes),
        "bodies over 60 lines": f"{sum(length > 60 for length in found.bodies)}",
        "longest body": f"{max(found.bodies, default=0)}",
        "comments on a line of their own": f"{found.comments:,}",
        f"lines over {LINE} characters": f"{found.long_lines:,}",
        "private functions": f"{found.private:,}",
        "... whose name is used once in all packages": f"{found.named_once:,}",
        "... used once, namesakes in other files told apart": f"{found.named_once_at_home:,}",
        "docstrings": f"{found.docstrings:,}",
        "... that begin Of, That, Those, What, Whoever, Where, Whether ... or": f"{found.openings.total():,}",
    }
    for opening in (*NO_OPENINGS, "Whether ... or"):
        rows[f"... {opening}"] = f"{found.openings[opening]:,}"
    rows["names that several classes have"] = f"{len(found.classes)}"
    rows["... classes with such a name"] = f"{sum(map(len, found.classes.values()))}"
    return rows


def table(columns: Mapping[str, Mapping[str, str]]) -> str:
    """A Markdown table of one column a revision."""
    lines = [f"| | {' | '.join(columns)} |", f"|---|{'---:|' * len(columns)}"]
    for name in next(iter(columns.values())):
        lines.append(f"| {name} | {' | '.join(column[name] for column in columns.values())} |")
    return "\n".join(lines)


def main() -> None:
    layout = argparse.RawDescriptionHelpFormatter  # keeps the lines of the docstring
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=layout)
    parser.add_argument("revisions", nargs="*", default=[WORKTREE], help="commits, or WORKTREE (default)")
    parser.add_argument("--root", type=Path, default=ROOT, help="checkout to read")
    parser.add_argument("--longest", type=int, default=10, metavar="N", help="list the N longest functions")
    arguments = parser.parse_args()
    measured = {revision: measure(sources(arguments.root, revision)) for revision in arguments.revisions}
    print(table({revision: rows(found) for revision, found in measured.items()}))
    for revision, found in measured.items():
        print(f"\nLongest bodies, {revision}:\n")
        for lines, name in found.longest[: arguments.longest]:
            print(f"- {lines} `{name}`")
        repeated = sorted(found.classes.items(), key=lambda entry: (-len(entry[1]), entry[0]))
        names = ", ".join(f"{name} {len(paths)}" for name, paths in repeated)
        print(f"\nNames of several classes, {revision}: {names}")


if __name__ == "__main__":
    main()
