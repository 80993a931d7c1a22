"""Task sets, base checkpoints, training, evaluation, tuning."""


rule task_set:
    # Regenerates the task lists, compares their hashes, checks that training and test tasks are apart.
    input:
        jobs.task_sets,
    output:
        "results/task_sets/{tier}/{env}.json",
    log:
        "results/logs/task_set/{tier}/{env}.log",
    conda:
        "../envs/r3l.yaml"
    shell:
        "r3l data check --tier {wildcards.tier:q} --env {wildcards.env:q} --out {output:q} > {log:q} 2>&1"


rule sft:
    # Builds a base checkpoint; only on request: results/stored/models holds the one in use.
    output:
        directory("results/models/{name}"),
    log:
        "results/logs/sft/{name}.log",
    conda:
        "../envs/r3l.yaml"
    threads: 2
    shell:
        "r3l sft {wildcards.name:q} --out {output:q} --workers {threads} > {log:q} 2>&1"


rule train:
    # Trains a run or resumes it. A directory of another configuration is renamed, never deleted.
    # `options` waits for `threads`, so that snakemake does not compare it: the fingerprint says what makes a run another.
    input:
        "results/task_sets/{tier}/{env}.json",
    output:
        f"{jobs.STATE}/result.json",
    log:
        jobs.log("train"),
    priority: JOBS.priority
    conda:
        "../envs/r3l.yaml"
    threads: JOBS.threads("train")
    resources:
        **JOBS.requests("train"),
    params:
        fingerprint=JOBS.fingerprint,
        model=JOBS.model,
        options=lambda wildcards, threads: JOBS.options,
    shell:
        "r3l train --tier {wildcards.tier:q} --env {wildcards.env:q} --method {wildcards.method:q}"
        " --model {params.model:q} --seed {wildcards.seed} --set-aside {params.options} > {log:q} 2>&1"


rule evaluate:
    # The whole test task set with the last checkpoint.
    input:
        f"{jobs.STATE}/result.json",
    output:
        report(
            f"{jobs.STATE}/evaluation.json",
            category="Runs",
            subcategory="{env}",
            labels=jobs.RUN_LABELS,
        ),
    log:
        jobs.log("evaluate"),
    conda:
        "../envs/r3l.yaml"
    threads: JOBS.threads("evaluate")
    resources:
        **JOBS.requests("evaluate"),
    params:
        fingerprint=JOBS.fingerprint,
    shell:
        'r3l evaluate "$(dirname {input:q})" > {log:q} 2>&1'


rule evaluate_further:
    # The same checkpoint on a question set that tables have a column of: GSM8K of what was trained on DAPO.
    input:
        f"{jobs.STATE}/result.json",
    output:
        f"{jobs.STATE}/{jobs.FURTHER_EVALUATION}",
    log:
        jobs.log("evaluate_further", "{set}_{split}"),
    conda:
        "../envs/r3l.yaml"
    threads: JOBS.threads("evaluate")
    resources:
        **JOBS.requests("evaluate"),
    params:
        fingerprint=JOBS.fingerprint,
        task_set=JOBS.further_task_set,
    shell:
        'r3l evaluate "$(dirname {input:q})" --task-set {wildcards.set:q}/{wildcards.split:q} > {log:q} 2>&1'


rule tune:
    # A method's learning rate: each of three with two seeds, scored on the validation task set, never on the test set.
    input:
        JOBS.tuning_evaluations,
    output:
        "results/tuning/{tier}/{env}/{method}.json",
    log:
        "results/logs/tune/{tier}/{env}/{method}.log",
    conda:
        "../envs/r3l.yaml"
    shell:
        "r3l tune {wildcards.method:q} --tier {wildcards.tier:q} --env {wildcards.env:q} --offline > {log:q} 2>&1"


rule tunings:
    # Of everything that Table 1 trains.
    input:
        JOBS.tunings,
