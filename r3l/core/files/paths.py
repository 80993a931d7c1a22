"""Where the package's data lies.

In a checkout ``r3l/baselines``, ``r3l/configs``, ``r3l/envs``, ``r3l/examples``, ``r3l/snakemake`` (workflow/) and
``r3l/stored`` (results/stored/) are links to the folders at its top; a wheel holds copies in their place. Of the stored
results it has no runs: those come as an archive of their own (r3l.runs.stored_archive).
"""

from __future__ import annotations

from pathlib import Path

from r3l.core.errors import ConfigError

PACKAGE = Path(__file__).resolve().parents[2]
ROOT = PACKAGE.parent  # the top of a checkout, or what a wheel was installed into

CONFIGS = (PACKAGE / "configs").resolve()
ENVS = (PACKAGE / "envs").resolve()
EXAMPLES = (PACKAGE / "examples").resolve()
WORKFLOW = (PACKAGE / "snakemake").resolve()
STORED = (PACKAGE / "stored").resolve()  # what this project has measured itself
STORED_MODELS = STORED / "models"
PUBLISHED = STORED / "published"


def is_checkout() -> bool:
    """Whether this is a checkout of the project, not an installed wheel."""
    return (ROOT / "workflow" / "Snakefile").is_file()


def checkout() -> Path:
    """The top of the checkout. Raises ConfigError in an installed wheel."""
    if not is_checkout():
        raise ConfigError(
            f"{ROOT} is no checkout of this project, and this needs one: clone it and run `make setup` there"
        )
    return ROOT


RESULTS = Path("results")  # where runs go by default
KEPT = STORED if is_checkout() else RESULTS / "stored"  # what is to be kept
