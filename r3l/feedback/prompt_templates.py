"""Prompt templates of methods; environments have theirs in their own folders."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from string import Template

from r3l.files.digests import file_sha256

PROMPTS = Path(__file__).parent / "prompts"
# Digests of the texts with which the stored runs were made. Their fingerprints have none of these, so only a
# text with another digest enters a fingerprint.
STORED_RUNS_SHA256 = {
    "critique": "4957073cae6bb33e2c70793b12d4a69192875eb8882748c2d8f3bacb8ca2ab10",
    "guidance_compact": "71edd758c55818017ece3dc9b7d3edb7e460038d2ea74d98409671f02abbf1e1",
    "guidance_critique": "cd218381d7b1e87bdf142929509a9d256959540292b4ce2a96d5a4daf83637c7",
    "guidance_full": "1f738b12e8154bf849495fa982ec1b2b1f59e7bce6d9f5b61606c57cf273a279",
    "guidance_solution": "34302b44874cc34e59c9c555e5427963d6ddca9e8c352a58b7a03b3e4c28179e",
    "reflection_compact": "9466c75e0c36ec8234c696e9207bc4d68b32435704246bf8113b29236978de49",
    "reflection_lines": "d111e54d3fdc8f74084267f4e78facb947b003e26f45245bba2c3fbe20853148",
    "reflection_request": "cbb6a536ad339efdea9af73e25699d9ed5e884045f82ad268000c82b89b9a42a",
    "reflection_system": "e8bc07a6a0932c403bdd143341a6582ea03f4097c7c7ecefa56853bd826dfcd3",
}


@cache
def template(name: str) -> Template:
    """The text of ``r3l/feedback/prompts/<name>.txt`` as a Template with ``$name`` placeholders; cached.

    Blanks at both ends are removed. Raises FileNotFoundError for an unknown name.
    """
    return Template((PROMPTS / f"{name}.txt").read_text(encoding="utf-8").strip())


def edited_texts() -> dict[str, str]:
    """Digests (sha256), by name, of the texts that differ from those of the stored runs; {} if none does."""
    digests = {name: file_sha256(PROMPTS / f"{name}.txt") for name in STORED_RUNS_SHA256}
    return {name: digest for name, digest in digests.items() if digest != STORED_RUNS_SHA256[name]}
