"""The plan of a grid of runs: configs/workflow.yaml, the tables of configs/tables, and their runs."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from r3l.config import (
    EnvConfig,
    MethodConfig,
    Run,
    Strict,
    TierConfig,
    names,
    resolve,
    trains,
    tuning,
    validate,
    variant,
)
from r3l.config import load as load_config
from r3l.config.files import Label
from r3l.core.errors import ConfigError, check_known
from r3l.feedback.feedback import FeedbackSource
from r3l.files.paths import CONFIGS
from r3l.files.yaml_files import read_yaml
from r3l.runs.loggers import LOGGERS
from r3l.runs.run_dir import EVALUATION
from r3l.runs.run_paths import evaluation_folder

WORKFLOW = CONFIGS / "workflow.yaml"
LOGS = Path("results", "logs")  # logs of each job, and of snakemake
NEEDED = {  # required keys by the kind of a table
    "scores": ("baseline", "methods"),
    "measures": ("measures", "methods"),
    "published": ("published", "reason", "methods", "models"),
}


class WorkflowConfig(Strict):
    """configs/workflow.yaml or workflow_TIER.yaml: the grid of runs, envs x models x methods x seeds.

    A table may choose its own environments, models and methods (its rows); seeds are the workflow's.
    ``sources``: by key, where the values come from.
    """

    tier: str
    envs: list[str] = Field(min_length=1)
    grid: Literal["core", "full"] = Field(
        "core", description="only the core rows of tables that name some, or all rows"
    )
    methods: list[str] | None = Field(None, description="rows instead of the table's")
    model: str | None = Field(None, description="base checkpoint of all runs, instead of the tier's")
    models: list[str] = Field([], description="several base checkpoints; tables may choose some")
    seeds: list[Annotated[int, Field(ge=0, lt=2**63)]] = Field(min_length=1)
    set: list[str] = Field([], description="overrides of every run, as `r3l train --set`")
    loggers: list[str] = Field([], description="loggers of the metrics, as `r3l train --logger`")
    clean: bool = Field(False, description="refuse to start with uncommitted changes: for runs to be stored")
    sources: dict[str, str]

    def columns(self, table: TableConfig) -> list[str]:
        """The environments that ``table`` shows, in order: the ones it names, else the workflow's.

        Environments without settings for the workflow's tier (a scale, such as nano) are left out, unless the
        workflow names them itself.
        """
        envs = table.envs or self.envs
        return [env for env in envs if env in self.envs or has_tier(env, self.tier)]

    def models_of(self, table: TableConfig) -> list[str | None]:
        """The base checkpoints that ``table`` compares; [None]: the default of tier or environment.

        They are the workflow's ``model`` if it is set, otherwise its ``models``, without models that the
        table does not name (if it names any). A table of published numbers has only models that it names, of
        ``model`` and ``models``; there may be none.
        """
        if table.kind == "published":
            return [model for model in [self.model, *self.models] if model in table.models]
        if self.model or not self.models:
            return [self.model]
        return [model for model in self.models if not table.models or model in table.models]

    def question_sets(self, table: TableConfig, env: str) -> dict[str, str]:
        """Further task sets on which runs of ``table`` in ``env`` are scored: task set -> its printed name.

        {} unless the table asks for them and the environment has some in this tier.
        """
        if env not in table.question_sets:
            return {}
        return load_config("envs", env, EnvConfig).question_sets.get(self.tier, {})

    def rows(self, table: TableConfig) -> list[str]:
        """The methods (or variants) that are rows of ``table``, in order.

        If the workflow names methods and the table has rows, all of the workflow's methods. Otherwise the
        table's methods (its core rows, if it names some and grid is ``core``), without the methods that
        :meth:`has_row` refuses in every environment of :meth:`columns`.
        """
        if self.methods is not None and table.methods:
            return self.methods
        methods = table.core if self.grid == "core" and table.core else table.methods
        envs = self.columns(table)
        return [method for method in methods if any(self.has_row(env, method) for env in envs)]

    def has_row(self, env: str, method: str) -> bool:
        """True if a table of this workflow shows ``method`` in ``env``.

        It does not if the method needs a judge or an SFT stage, which the tier lacks for ``env``. A method
        that the workflow's configuration names is always shown.
        """
        row = variant(method)
        if method in (self.methods or []):
            return True
        # A row under a judge needs a judge in the tier; the row "SFT alone" needs an SFT stage of the
        # environment.
        if f"feedback={FeedbackSource.JUDGE}" in row.changes:
            return bool(load_config("tiers", self.tier, TierConfig).judge.model)
        if not load_config("methods", row.method, MethodConfig).needs_stage:
            return True
        settings = load_config("envs", env, EnvConfig).tiers.get(self.tier)
        return settings is not None and settings.sft is not None

    def benches(self, table: TableConfig) -> list[tuple[str, str, str]]:
        """The columns of ``table``, also those without runs: (tier, environment, name of the model) each.

        A further task set on which runs are scored (:meth:`question_sets`) is a column too, under its printed
        name. [] for a table without rows.
        """
        found = []
        for env in self.columns(table):
            for model in self.models_of(table):
                for method in self.rows(table)[:1]:  # all methods start from the same model
                    run = resolve(self.tier, env, method, 0, model, list(self.set))
                    for column in (run.env, *self.question_sets(table, run.env).values()):
                        found.append((run.tier, column, run.model_name()))
        return found


class TableConfig(Strict):
    """configs/tables/<name>.yaml: a table of methods (or variants, r3l.config.method) on the same tasks.

    A table of kind ``scores`` needs the keys baseline and methods; ``measures`` needs measures and methods;
    ``published`` needs published, reason, methods and models. A missing, unknown or invalid key is a
    ValidationError. ``sources``: where each value comes from, by key.
    """

    table: str
    title: Label
    kind: Literal["scores", "measures", "published"] = Field(
        "scores",
        description="scores: success on the test task set; measures: metrics of training; "
        "published: published numbers, and our runs with the models in `models`",
    )
    baseline: str = Field("", description="scores: the method that all others are compared with")
    methods: list[str] = Field([], description="the rows")
    core: list[str] = Field([], description="the rows of grid=core")
    own: bool = Field(False, description="the user's own methods that have run are rows too")
    envs: list[str] = Field([], description="environments of this table, instead of the workflow's")
    benchmarks: dict[str, Label] = Field(
        {}, description="environment -> its name in `published`, unless that is its label"
    )
    question_sets: list[str] = Field([], description="environments with their question sets too")
    models: list[str] = Field([], description="which of the workflow's `models` it has; default: all")
    measures: list[str] = Field([], description="measures: which ones")
    published: list[str] = Field([], description="tables of results/stored/published to compare with")
    published_as: dict[str, str] = Field(
        {}, description="method or variant -> its name in `published`, unless that is its label"
    )
    reason: str = Field("", description="published: why we have no run for a number")
    sources: dict[str, str]


def workflow_content(tier: str | None = None) -> dict[str, Any]:
    """The content of configs/workflow.yaml, or for a ``tier`` of workflow_TIER.yaml if it exists, unchecked.

    ``tier`` replaces the tier that the file names. Raises ConfigError if the file is not valid YAML.
    """
    of_tiers = {path.stem: path for path in WORKFLOW.parent.glob(f"{WORKFLOW.stem}_*.yaml")}
    content = read_yaml(of_tiers.get(f"{WORKFLOW.stem}_{tier}", WORKFLOW))
    if tier:
        content["tier"] = tier
    return content


def has_tier(env: str, tier: str) -> bool:
    """Whether the configuration of environment ``env`` has settings for ``tier`` (a scale, such as nano).

    Raises ConfigError for an unknown environment.
    """
    return tier in load_config("envs", env, EnvConfig).tiers


def load(content: Mapping[str, Any] | None = None) -> WorkflowConfig:
    """Validate ``content``, a file's keys and values merged with --config, by default configs/workflow.yaml.

    Raises ConfigError for an unknown key, tier or logger, a wrong value, and for an environment, method,
    model or seed that is listed twice.
    """
    config = validate(
        WorkflowConfig,
        dict(workflow_content() if content is None else content),
        "configs/workflow.yaml (with --config)",
    )
    load_config("tiers", config.tier, TierConfig)  # an unknown tier is an error now
    for name in config.loggers:
        check_known("logger", name, LOGGERS)
    for key in ("envs", "methods", "models", "seeds"):
        values = getattr(config, key) or []
        if len(set(values)) < len(values):
            raise ConfigError(f"configs/workflow.yaml (with --config): {key} names something twice: {values}")
    return config


def table_config(name: str) -> TableConfig:
    """Read configs/tables/<name>.yaml.

    Raises ConfigError if there is no such file, if it is malformed, or if it lacks a key that its kind needs.
    """
    table = load_config("tables", name, TableConfig)
    for key in NEEDED[table.kind]:
        if not getattr(table, key):
            needs = f"a table of kind {table.kind!r} needs it"
            raise ConfigError(f"configs/tables/{name}.yaml: key {key!r} is missing: {needs}")
    return table


def tables() -> dict[str, TableConfig]:
    """Read every table of configs/tables, by its name.

    Raises ConfigError if one is malformed or lacks a key that its kind needs.
    """
    return {name: table_config(name) for name in names("tables")}


def runs(config: WorkflowConfig, table: TableConfig) -> dict[str, Run]:
    """Plan a table's runs: directory under results/ -> run, ordered by environment, model, method, seed.

    Nothing is started. Raises ConfigError for an unknown name or wrong value, if snakemake cannot name a
    directory, or if two models have the same weights.
    """
    return grid(config, config.columns(table), config.rows(table), config.models_of(table))


def further_evaluations(config: WorkflowConfig, table: TableConfig) -> list[str]:
    """Paths, below results/, of the evaluation.json files of ``table``'s runs on question sets.

    A question set is a further task set on which a finished run is scored, such as math500 for a run of dapo;
    configs/envs lists an environment's question sets (key ``question_sets``). [] if the table shows none.
    """
    files = []
    for path, run in runs(config, table).items():
        for task_set in config.question_sets(table, run.env):
            folder = evaluation_folder(Path(path), task_set, run.env_settings.test_task_set)
            files.append(str(folder / EVALUATION))
    return files


def grid(
    config: WorkflowConfig,
    envs: Sequence[str],
    methods: Sequence[str],
    models: Sequence[str | None] | None = None,
) -> dict[str, Run]:
    """Plan the runs of ``methods`` in ``envs`` with ``models``, at the seeds of ``config``: directory -> run.

    ``models`` None: the model of ``config``. Methods that a table would not show in an environment are left
    out there (WorkflowConfig.has_row). Directories are below results/. Raises ConfigError for an unknown name
    or wrong value, if snakemake cannot name a directory, or if two models have the same weights.
    """
    cells = []
    for env in envs:
        for model in [config.model] if models is None else models:
            for method in methods:
                if config.has_row(env, method):
                    first_seed = config.seeds[0]
                    cells.append(resolve(config.tier, env, method, first_seed, model, list(config.set)))
    for cell in cells:
        if {"{", "}"} & set(cell.directory):  # snakemake would read a wildcard
            raise ConfigError(
                f"the workflow cannot make {cell.directory} because of its braces; rename the model's folder"
            )

    # One directory, one run: two models of equal weights would share it.
    planned: dict[str, Run] = {}
    for cell in cells:
        for seed in config.seeds:
            run = cell.model_copy(update={"seed": seed})
            same = planned.setdefault(run.directory, run)
            if same.model != run.model:
                raise ConfigError(
                    f"models {same.model} and {run.model} have the same weights: name one of them"
                )
    return planned


def tuning_runs(tier: str, env: str, method: str, model: str | None = None) -> dict[str, dict[str, Run]]:
    """Plan the runs that tune a method: learning rate, as a text -> (directory under results/ -> run).

    Three rates, lowest first, each at the tier's seeds for tuning. Raises ConfigError for a tier without
    tuning, and for a method that trains nothing.
    """
    config = load_config("tiers", tier, TierConfig).tuning
    row = variant(method)
    usual = resolve(tier, env, row, 0, model, tuned=False)
    if config is None or not trains(usual):
        lacks = f"tier {tier} has no tuning settings" if config is None else f"{method} trains nothing"
        raise ConfigError(f"{lacks}: there is no learning rate to choose")
    tried = {}
    for rate in tuning.rates(usual.train.lr, config):
        of_rate = [resolve(tier, env, tuning.at_rate(row, rate), seed, model) for seed in config.seeds]
        tried[rate] = {run.directory: run for run in of_rate}
    return tried


def options(config: WorkflowConfig) -> str:
    """The options of `r3l train` that all runs share (--set, --logger), quoted for a shell; '' if none."""
    words = []
    for change in config.set:
        words += ["--set", change]
    for name in config.loggers:
        words += ["--logger", name]
    return shlex.join(words)
