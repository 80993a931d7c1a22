"""Tables, figures and the report."""


rule table:
    # Every file of configs/tables is a target: results/table1.csv, results/table2.csv, results/alpha.csv ...
    # The csv is in long form; .tex and .md have the paper's layout.
    input:
        runs=lambda wildcards: JOBS.evaluations(wildcards.table),
        further=lambda wildcards: JOBS.further_evaluations(wildcards.table),
    output:
        csv=report(
            "results/{table}.csv", category="Tables", labels={"table": "{table}"}
        ),
        tex="results/{table}.tex",
        md="results/{table}.md",
    log:
        "results/logs/table/{table}.log",
    params:
        seeds=len(JOBS.config.seeds),
        methods=lambda wildcards: JOBS.rows(wildcards.table),
        made_of=lambda wildcards: JOBS.made_of(wildcards.table),
    shell:
        "r3l table {wildcards.table} {input.runs:q} {input.further:q} --seeds-planned {params.seeds}"
        " --method {params.methods:q} --out {output.csv:q} > {log:q} 2>&1"


rule budget:
    # Cost of each method of Table 1: rollouts, steps, tokens by kind, seconds by phase.
    input:
        lambda wildcards: JOBS.evaluations("table1"),
    output:
        csv=report("results/budget.csv", category="Tables", labels={"table": "budget"}),
        tex="results/budget.tex",
        md="results/budget.md",
    log:
        "results/logs/table/budget.log",
    params:
        made_of=lambda wildcards: JOBS.made_of("table1"),
    shell:
        "r3l table budget {input:q} --out {output.csv:q} > {log:q} 2>&1"


rule figure:
    # Every figure of r3l/report/figures (docs/compare.md) is a target: learning_curves, exploration, table1, alpha ...
    input:
        lambda wildcards: JOBS.evaluations(FIGURES[wildcards.figure].table),
    output:
        "results/figures/{figure}.pdf",
        report(
            "results/figures/{figure}.png",
            category="Figures",
            labels={"figure": "{figure}"},
        ),
    log:
        "results/logs/figure/{figure}.log",
    params:
        made_of=lambda wildcards: JOBS.made_of(FIGURES[wildcards.figure].table),
    shell:
        "r3l figure {wildcards.figure} {input:q} --out results/figures > {log:q} 2>&1"


rule figures:
    # All figures of the runs of Table 1.
    input:
        [
            f"results/figures/{name}.png"
            for name in FIGURES
            if FIGURES[name].table == "table1"
        ],


rule html_report:
    # One HTML file about the runs of Table 1: tables, figures, settings, budgets, training trajectories.
    input:
        ancient("results/figures/learning_curves.png"),
        runs=lambda wildcards: JOBS.evaluations("table1"),
    output:
        report(
            "results/report.html",
            category="Report",
            labels={"page": "everything on one page"},
        ),
    log:
        "results/logs/report.log",
    params:
        seeds=len(JOBS.config.seeds),
        made_of=lambda wildcards: JOBS.made_of("table1"),
    shell:
        "r3l report {input.runs:q} --figures results/figures --seeds-planned {params.seeds} --out {output:q} > {log:q} 2>&1"
