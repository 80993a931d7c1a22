"""Panel, training, evaluation, table, figure: every rule is one call of the `r3l` command line.

    snakemake --cores all results/table1.csv
    snakemake --cores all results/table2.csv results/budget.csv --config grid=full seeds=[0,1,2]

A run's directory is its state: checkpoints, metrics and episodes live there undeclared, because Snakemake deletes
declared outputs before and after a failed job. Declared are only the files that appear last, and whole. A job that
was killed resumes when the command is repeated. Runs are repeated when their fingerprint (method, environment,
model and its weights, seed, budget) or their panel changes, never for a path, a date or a commit.
"""

import sys

from snakemake.exceptions import WorkflowError
from snakemake.utils import min_version

from r3l import workflow as plan
from r3l.core.errors import R3LError

min_version("9.27")


configfile: str(plan.WORKFLOW)


report: "r3l/report/templates/workflow.rst"


try:
    from r3l.report import records, status
    from r3l.report.figures import FIGURES

    CONFIG = plan.load(config)
    TABLES = plan.tables()
    RUNS_OF = {name: plan.runs(CONFIG, table) for name, table in TABLES.items()}
except R3LError as error:
    raise WorkflowError(str(error)) from None

R3L = f"{sys.executable} -m r3l.cli"
OPTIONS = plan.options(CONFIG)
TIMES = status.learnt_times(records.STORED.glob("*/*/*/*/seed*"))
RUNS = {run: found for runs in RUNS_OF.values() for run, found in runs.items()}


STATE = "results/{tier}/{env}/{model}/{method}/seed{seed}"  # a run's directory


def run_of(wildcards):
    return RUNS[STATE.removeprefix("results/").format(**wildcards)]


def threads_of(wildcards):
    return run_of(wildcards).threads


def priority_of(wildcards):
    """Longest first, so that no long run is left for the end."""
    return round(status.expected_seconds(run_of(wildcards), TIMES) or 0)


def fingerprint_of(wildcards):
    return run_of(wildcards).fingerprint()


def model_of(wildcards):
    return run_of(wildcards).model


def evaluations_of(table):
    return [f"results/{run}/evaluation.json" for run in RUNS_OF[table]]


def panels_of(wildcards):
    return plan.panel_files(wildcards.env)


wildcard_constraints:
    tier="[^/]+",
    env="[^/]+",
    model="[^/]+",
    method="[^/]+",
    seed=r"\d+",
    table="|".join(TABLES),
    figure="|".join(FIGURES),


rule all:
    default_target: True
    input:
        "results/table1.csv",
        "results/figures/learning_curves.png",
        "results/figures/table1.png",


rule panel:
    # Regenerates the task lists, compares their hashes, checks that training and test tasks are apart.
    input:
        panels_of,
    output:
        "results/panels/{tier}/{env}.json",
    shell:
        "{R3L} panel check --tier {wildcards.tier} --env {wildcards.env} --out {output}"


rule warmstart:
    # Builds a start model anew; on request only, results/stored/models holds the one in use.
    output:
        directory("results/models/{name}"),
    threads: 2
    shell:
        "{R3L} warmstart {wildcards.name} --out {output} --workers {threads}"


rule train:
    # Trains a run or resumes it. A directory of another configuration is renamed, never deleted.
    input:
        "results/panels/{tier}/{env}.json",
    output:
        f"{STATE}/result.json",
    priority: priority_of
    threads: threads_of
    resources:
        mem_mb=3000,
    params:
        fingerprint=fingerprint_of,
        model=model_of,
    shell:
        "{R3L} train --tier {wildcards.tier} --env {wildcards.env} --method {wildcards.method}"
        " --model {params.model:q} --seed {wildcards.seed} --set-aside {OPTIONS}"


rule evaluate:
    # The whole test panel with the last checkpoint.
    input:
        f"{STATE}/result.json",
    output:
        report(
            f"{STATE}/evaluation.json",
            category="Runs",
            subcategory="{env}",
            labels={
                "method": "{method}",
                "seed": "{seed}",
                "model": "{model}",
                "tier": "{tier}",
            },
        ),
    threads: threads_of
    resources:
        mem_mb=3000,
    params:
        fingerprint=fingerprint_of,
    shell:
        "{R3L} evaluate $(dirname {input})"


rule table:
    # Every file of configs/tables is a target: results/table1.csv, results/table2.csv, results/alpha.csv ...
    # The csv is the long form, .tex and .md the layout of the paper.
    input:
        runs=lambda wildcards: evaluations_of(wildcards.table),
        published=plan.published_files(),
    output:
        report("results/{table}.csv", category="Tables", labels={"table": "{table}"}),
        "results/{table}.tex",
        "results/{table}.md",
    params:
        seeds=len(CONFIG.seeds),
        methods=lambda wildcards: ",".join(CONFIG.rows(TABLES[wildcards.table])),
    shell:
        "{R3L} table {wildcards.table} {input.runs} --seeds-planned {params.seeds} --rows '{params.methods}' --out {output[0]} > /dev/null"


rule budget:
    # What each method of Table 1 cost: rollouts, steps, tokens by kind, seconds by phase.
    input:
        evaluations_of("table1"),
    output:
        report("results/budget.csv", category="Tables", labels={"table": "budget"}),
        "results/budget.tex",
        "results/budget.md",
    shell:
        "{R3L} table budget {input} --out {output[0]} > /dev/null"


rule figure:
    # Every figure of r3l/report/figures (docs/figures.md) is a target: learning_curves, exploration, table1, alpha ...
    input:
        lambda wildcards: evaluations_of(FIGURES[wildcards.figure].table),
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
        runs=evaluations_of("table1"),
    output:
        report(
            "results/report.html",
            category="Report",
            labels={"page": "all of it on one page"},
        ),
    params:
        seeds=len(CONFIG.seeds),
    shell:
        "{R3L} report {input.runs} --figures results/figures --seeds-planned {params.seeds} --out {output}"
