"""Task set, training, evaluation, table, figure: every rule is one call of the `r3l` command line.

    snakemake --cores all results/table1.csv
    snakemake --cores all results/table2.csv results/budget.csv --config grid=full seeds=[0,1,2]

A run's directory is its state: checkpoints, metrics and episodes live there undeclared, because Snakemake deletes
declared outputs before and after a failed job. Declared are only the files that appear last, and whole. A job that
was killed resumes when the command is repeated. Runs are repeated when their fingerprint (method, environment,
model and its weights, seed, budget) or their task set changes, never for a path, a date or a commit.
"""

import sys

from snakemake.exceptions import WorkflowError
from snakemake.utils import min_version

from r3l.workflow import jobs
from r3l.workflow import plan
from r3l.core.errors import R3LError

min_version("9.27")


configfile: str(plan.WORKFLOW)


report: "r3l/report/templates/workflow.rst"


try:
    from r3l.report.figures import FIGURES

    JOBS = jobs.Jobs(config, workflow.resource_settings.default_resources or {})
except R3LError as error:
    raise WorkflowError(str(error)) from None

# exec: stop signals reach it, not a shell. R3L_PARENT: it ends with this process, however that is killed.
R3L = f"R3L_PARENT=$PPID exec {sys.executable} -m r3l.cli"
STATE = jobs.STATE  # a run's directory


localrules:  # seconds each; on a cluster they run beside snakemake itself
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
        "results/table1.csv",
        "results/figures/learning_curves.png",
        "results/figures/table1.png",


rule task_set:
    # Regenerates the task lists, compares their hashes, checks that training and test tasks are apart.
    input:
        jobs.task_sets,
    output:
        "results/task_sets/{tier}/{env}.json",
    shell:
        "{R3L} task-set check --tier {wildcards.tier} --env {wildcards.env} --out {output}"


rule sft:
    # Builds a start model; on request only, results/stored/models holds the one in use.
    output:
        directory("results/models/{name}"),
    threads: 2
    shell:
        "{R3L} sft {wildcards.name} --out {output} --workers {threads}"


rule train:
    # Trains a run or resumes it. A directory of another configuration is renamed, never deleted.
    input:
        "results/task_sets/{tier}/{env}.json",
    output:
        f"{STATE}/result.json",
    priority: JOBS.priority
    threads: JOBS.threads("train")
    resources:
        **JOBS.requests("train"),
    params:
        fingerprint=JOBS.fingerprint,
        model=JOBS.model,
    shell:
        "{R3L} train --tier {wildcards.tier} --env {wildcards.env} --method {wildcards.method}"
        " --model {params.model:q} --seed {wildcards.seed} --set-aside {JOBS.options}"


rule evaluate:
    # The whole test task set with the last checkpoint.
    input:
        f"{STATE}/result.json",
    output:
        report(
            f"{STATE}/evaluation.json",
            category="Runs",
            subcategory="{env}",
            labels=jobs.RUN_LABELS,
        ),
    threads: JOBS.threads("evaluate")
    resources:
        **JOBS.requests("evaluate"),
    params:
        fingerprint=JOBS.fingerprint,
    shell:
        "{R3L} evaluate $(dirname {input})"


rule evaluate_further:
    # The same checkpoint on a question set that tables have a column of: GSM8K of what was trained on DAPO.
    input:
        f"{STATE}/result.json",
    output:
        f"{STATE}/{jobs.FURTHER}",
    threads: JOBS.threads("evaluate")
    resources:
        **JOBS.requests("evaluate"),
    params:
        fingerprint=JOBS.fingerprint,
        task_set=JOBS.further_task_set,
    shell:
        "{R3L} evaluate $(dirname {input}) --task-set {wildcards.set}/{wildcards.split}"


rule tune:
    # A method's learning rate: each of three with two seeds, scored on the validation task set, never on the test set.
    input:
        JOBS.tuning_evaluations,
    output:
        "results/tuning/{tier}/{env}/{method}.json",
    shell:
        "{R3L} tune {wildcards.method:q} --tier {wildcards.tier} --env {wildcards.env} --offline > /dev/null"


rule tunings:
    # Of everything that Table 1 trains.
    input:
        JOBS.tunings,


rule table:
    # Every file of configs/tables is a target: results/table1.csv, results/table2.csv, results/alpha.csv ...
    # The csv is the long form, .tex and .md the layout of the paper.
    input:
        runs=lambda wildcards: JOBS.evaluations(wildcards.table),
        further=lambda wildcards: JOBS.further_evaluations(wildcards.table),
        published=plan.published_files(),
    output:
        report("results/{table}.csv", category="Tables", labels={"table": "{table}"}),
        "results/{table}.tex",
        "results/{table}.md",
    params:
        seeds=len(JOBS.config.seeds),
        methods=lambda wildcards: JOBS.rows(wildcards.table),
    shell:
        "{R3L} table {wildcards.table} {input.runs} {input.further} --seeds-planned {params.seeds} --rows '{params.methods}' --out {output[0]} > /dev/null"


rule budget:
    # What each method of Table 1 cost: rollouts, steps, tokens by kind, seconds by phase.
    input:
        JOBS.evaluations("table1"),
    output:
        report("results/budget.csv", category="Tables", labels={"table": "budget"}),
        "results/budget.tex",
        "results/budget.md",
    shell:
        "{R3L} table budget {input} --out {output[0]} > /dev/null"


rule figure:
    # Every figure of r3l/report/figures (docs/figures.md) is a target: learning_curves, exploration, table1, alpha ...
    input:
        lambda wildcards: JOBS.evaluations(FIGURES[wildcards.figure].table),
    output:
        "results/figures/{figure}.pdf",
        report(
            "results/figures/{figure}.png",
            category="Figures",
            labels={"figure": "{figure}"},
        ),
    shell:
        "{R3L} figure {wildcards.figure} {input} --out results/figures"


rule figures:
    # All figures of the runs of Table 1.
    input:
        [
            f"results/figures/{name}.png"
            for name in FIGURES
            if FIGURES[name].table == "table1"
        ],


rule html_report:
    # One HTML file of the runs of Table 1: tables, figures, settings, budgets, training trajectories.
    input:
        "results/figures/learning_curves.png",
        runs=JOBS.evaluations("table1"),
    output:
        report(
            "results/report.html",
            category="Report",
            labels={"page": "all of it on one page"},
        ),
    params:
        seeds=len(JOBS.config.seeds),
    shell:
        "{R3L} report {input.runs} --figures results/figures --seeds-planned {params.seeds} --out {output}"
