"""Where a wheel holds what stands at the top of a checkout; everything else is in pyproject.toml.

``envs`` and ``baselines`` become ``r3l.envs`` and ``r3l.baselines``; configuration, workflow, examples and stored results
keep their places below ``r3l/data`` (r3l.core.files.paths).
"""

from setuptools import find_packages, setup

TOP = ("envs", "baselines")

setup(
    packages=[
        *find_packages(include=["r3l", "r3l.*"]),
        *(f"r3l.{name}" for top in TOP for name in find_packages(include=[top, f"{top}.*"])),
        "r3l.data",
    ],
    package_dir={"r3l.data": ".", **{f"r3l.{top}": top for top in TOP}},
    package_data={
        "": ["py.typed", "prompts/*.txt", "templates/*", "task_sets/*.json", "sets.json", "data/*", "lm_eval/*"],
        "r3l": ["trinity/vllm_stub/**/*"],
        "r3l.data": [
            *("Snakefile", "workflow/**/*", "configs/**/*.yaml", "configs/**/*.txt", "examples/*"),
            *(f"results/stored/{part}" for part in ("models/*/*", "published/*", "released/*", "tuning/*/*/*")),
        ],
    },
)
