"""Draw public functions and classes with their docstrings, for readers who then say what each of them does.

    python tests/reading/docstrings.py --seed 0 --count 100 > questions.md
    python tests/reading/docstrings.py --seed 0 --count 100 --answers    with file and line

A reader sees the module, the signature and the docstring, and nothing else. The draw depends only on the seed
and on the files of the revision.
"""

from __future__ import annotations

import argparse
import ast
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from measures import FUNCTION, ROOT, WORKTREE, Function, sources


@dataclass(frozen=True)
class Documented:
    """A public function, method or class: ``name`` with its class, ``signature`` as a reader is shown it."""

    path: str
    line: int
    name: str
    signature: str
    docstring: str

    def markdown(self, number: int, answer: bool) -> str:
        module = self.path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        where = f" ({self.path}:{self.line})" if answer else ""
        quoted = "\n".join(f"> {line}".rstrip() for line in self.docstring.splitlines())
        heading = f"### {number}. `{module}`: `{self.name}`{where}"
        return f"{heading}\n\n```python\n{self.signature}\n```\n\n{quoted}\n"


def signature_of(node: Function | ast.ClassDef) -> str:
    """Decorators and the ``def`` or ``class`` line without the body; of a class also its annotated fields."""
    decorators = [f"@{ast.unparse(decorator)}" for decorator in node.decorator_list]
    if isinstance(node, ast.ClassDef):
        bases = ", ".join(map(ast.unparse, node.bases))
        fields = [f"    {ast.unparse(part)}" for part in node.body if isinstance(part, ast.AnnAssign)]
        head = f"class {node.name}({bases}):" if bases else f"class {node.name}:"
        return "\n".join([*decorators, head, *(fields or ["    ..."])])
    returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    keyword = "async def" if isinstance(node, ast.AsyncFunctionDef) else "def"
    return "\n".join([*decorators, f"{keyword} {node.name}({ast.unparse(node.args)}){returns}"])


def documented(path: str, node: ast.AST, scope: str = "") -> Iterator[Documented]:
    """The public definitions of a module or class that have a docstring; none inside functions."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, (ast.ClassDef, *FUNCTION)) or child.name.startswith("_"):
            continue
        name = f"{scope}.{child.name}" if scope else child.name
        if docstring := ast.get_docstring(child):
            yield Documented(path, child.lineno, name, signature_of(child), docstring)
        if isinstance(child, ast.ClassDef):
            yield from documented(path, child, name)


def draw(files: Mapping[str, str], seed: int, count: int) -> list[Documented]:
    """``count`` of them without repetition, in the order of the draw."""
    everything = [found for path in sorted(files) for found in documented(path, ast.parse(files[path]))]
    return random.Random(seed).sample(everything, min(count, len(everything)))


def main() -> None:
    layout = argparse.RawDescriptionHelpFormatter  # keeps the lines of the docstring
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=layout)
    parser.add_argument("revision", nargs="?", default=WORKTREE, help="a commit; default: the working tree")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--answers", action="store_true", help="also print file and line")
    parser.add_argument("--root", type=Path, default=ROOT, help="checkout to read")
    arguments = parser.parse_args()
    drawn = draw(sources(arguments.root, arguments.revision), arguments.seed, arguments.count)
    for number, found in enumerate(drawn, start=1):
        print(found.markdown(number, arguments.answers))


if __name__ == "__main__":
    main()
