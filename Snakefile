"""Task set, training, evaluation, table, figure: every rule is one call of the `r3l` command line.

    snakemake --cores all results/table1.csv
    snakemake --cores all results/table2.csv results/budget.csv --config grid=full seeds=[0,1,2]

`r3l run` starts the same and shows one line per run. The rules are in workflow/rules: runs.smk (task sets, base
checkpoints, training, evaluation, tuning) and results.smk (tables, figures, the report).

A run's state is in its directory: checkpoints, metrics and episodes are not declared as outputs, because Snakemake
deletes declared outputs before and after a failed job. Only the final files, written atomically, are declared. A
job that was killed resumes when the command is repeated. Runs are repeated when their fingerprint (method,
environment, model and its weights, seed, budget) or their task set changes, never for a path, a date or a commit.
"""

import shlex
import sys
from pathlib import Path

from snakemake.exceptions import WorkflowError
from snakemake.utils import min_version

min_version("9.27")

try:
    from r3l.workflow import execution
    from r3l.workflow import jobs
    from r3l.workflow import plan
    from r3l.core.errors import R3LError
except ModuleNotFoundError as error:
    raise WorkflowError(
        f"this snakemake's Python ({sys.executable}) has no module {error.name}: run make setup, then "
        "source .venv/bin/activate; or install r3l into that Python: pip install '.[all]'"
    )


configfile: str(plan.WORKFLOW)


report: "workflow/report/workflow.rst"


try:
    from r3l.report.figures import FIGURES
    from r3l.report.gpu_hours import training_hours

    defaults = workflow.resource_settings.default_resources or {}
    JOBS = jobs.Jobs(config, defaults, training_hours)
except R3LError as error:
    raise WorkflowError(str(error)) from None

workflow.execute = execution.one_at_a_time(workflow, JOBS)

# exec: stop signals reach r3l, not a shell. R3L_PARENT: a job ends with this process, even if it is killed.
# PATH: the r3l installed with this snakemake, even if PATH has neither.
own = shlex.quote(str(Path(sys.executable).parent))
shell.prefix(f"export R3L_PARENT=$PPID PATH={own}:$PATH; exec ")


localrules:  # seconds each; on a cluster they run on snakemake's own machine
    all,
    task_set,
    tune,
    tunings,
    table,
    budget,
    figure,
    figures,
    html_report,


wildcard_constraints:
    tier="[^/]+",
    env="[^/]+",
    model="[^/]+",
    method="[^/]+",
    seed=r"\d+",
    set="[^/]+",
    split="[^/]+",
    table="|".join(JOBS.tables),
    figure="|".join(FIGURES),


rule all:
    default_target: True
    input:
        jobs.DEFAULT_TARGETS,


include: "workflow/rules/runs.smk"
include: "workflow/rules/results.smk"
