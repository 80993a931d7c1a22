"""Task sets, base checkpoints, training, evaluation, tuning."""


rule task_set:
    # Regenerates the task lists, compares their hashes, checks that training and test tasks are disjoint.
    output:
        "results/task_sets/{tier}/{env}.json",
    log:
        "results/logs/task_set/{tier}/{env}.log",
    params:
        hashes=jobs.task_sets,
    shell:
        "r3l data check --tier {wildcards.tier:q} --env {wildcards.env:q} --out {output:q} > {log:q} 2>&1"


rule sft:
    # Builds a base checkpoint; only on request, since runs use those in results/stored/models.
    output:
        directory("results/models/{name}"),
    log:
        "results/logs/sft/{name}.log",
    threads: 2
    shell:
        "r3l sft {wildcards.name:q} --out {output:q} --workers {threads} > {log:q} 2>&1"


rule train:
    # Trains a run or resumes it. A directory of another configuration is renamed, never deleted.
    # Params that take `threads` are not compared by snakemake: only the fingerprint decides whether a run changed.
    input:
        ancient("results/task_sets/{tier}/{env}.json"),
    output:
        f"{jobs.STATE}/result.json",
    log:
        jobs.log_path("train"),
    priority: JOBS.priority
    threads: JOBS.threads("train")
    resources:
        **JOBS.requests("train"),
    params:
        fingerprint=JOBS.fingerprint,
        model=lambda wildcards, threads: JOBS.model(wildcards),
        options=lambda wildcards, threads: JOBS.options,
    shell:
        "r3l train --tier {wildcards.tier:q} --env {wildcards.env:q} --method {wildcards.method:q}"
        " --model {params.model:q} --seed {wildcards.seed} --set-aside {params.options} > {log:q} 2>&1"


rule evaluate:
    # Plays the complete test task set with the last checkpoint.
    input:
        JOBS.result,
    output:
        report(
            f"{jobs.STATE}/evaluation.json",
            category="Runs",
            subcategory="{env}",
            labels=jobs.RUN_LABELS,
        ),
    log:
        jobs.log_path("evaluate"),
    threads: JOBS.threads("evaluate")
    resources:
        **JOBS.requests("evaluate"),
    params:
        fingerprint=JOBS.fingerprint,
    shell:
        'r3l evaluate "$(dirname {input:q})" > {log:q} 2>&1'


rule evaluate_further:
    # Plays a further question set with the same checkpoint, for its own table column: GSM8K after training on DAPO.
    input:
        JOBS.result,
    output:
        f"{jobs.STATE}/{jobs.FURTHER_EVALUATION}",
    log:
        jobs.log_path("evaluate_further", "{set}_{split}"),
    threads: JOBS.threads("evaluate")
    resources:
        **JOBS.requests("evaluate"),
    params:
        fingerprint=JOBS.fingerprint,
        task_set=JOBS.further_task_set,
    shell:
        'r3l evaluate "$(dirname {input:q})" --task-set {wildcards.set:q}/{wildcards.split:q} > {log:q} 2>&1'


rule tune:
    # Chooses a method's learning rate: three rates, scored on the validation task set, never on the test task set.
    input:
        JOBS.tuning_evaluations,
    output:
        "results/tuning/{tier}/{env}/{method}.json",
    log:
        "results/logs/tune/{tier}/{env}/{method}.log",
    params:
        made_of=JOBS.tuned_of,
    shell:
        "r3l tune {wildcards.method:q} --tier {wildcards.tier:q} --env {wildcards.env:q} --offline > {log:q} 2>&1"


rule tunings:
    # Tunings of all methods that Table 1 trains.
    input:
        JOBS.tunings,
