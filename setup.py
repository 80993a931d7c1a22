"""Where a wheel holds what stands at the top of a checkout; everything else is in pyproject.toml.

``envs`` and ``baselines`` become ``r3l.envs`` and ``r3l.baselines``; configuration, workflow, examples and stored
results keep their places below ``r3l/data`` (r3l.files.paths).
"""

from setuptools import find_packages, setup
from setuptools.command.build_py import build_py

TOP = ("envs", "baselines")


class BuildPy(build_py):
    """``r3l.data`` is the top of the checkout, but this file is no module of it."""

    def find_package_modules(self, package: str, package_dir: str) -> list[tuple[str, str, str]]:
        """As setuptools finds them."""
        return [] if package == "r3l.data" else super().find_package_modules(package, package_dir)


setup(
    cmdclass={"build_py": BuildPy},
    packages=[
        *find_packages(include=["r3l", "r3l.*"]),
        *(f"r3l.{name}" for top in TOP for name in find_packages(include=[top, f"{top}.*"])),
        "r3l.data",
    ],
    package_dir={"r3l.data": ".", **{f"r3l.{top}": top for top in TOP}},
    package_data={
        "": [
            "py.typed",
            "prompts/*.txt",
            "templates/*",
            "task_sets/*.json",
            "sets.json",
            "data/*",
            "*.mplstyle",
        ],
        "r3l.data": [
            *(
                "Snakefile",
                "workflow/**/*",
                "configs/**/*.yaml",
                "configs/**/*.txt",
                "configs/**/*.in",
                "configs/**/*.csv",
                "configs/*.cmake",
                "examples/*",
                "build/release.json",
            ),
            *(
                f"results/stored/{part}"
                for part in (
                    "map.csv",
                    "map_registered.csv",
                    "adapters/*/*",
                    "models/*/*",
                    "published/*",
                    "released/*",
                    "tuning/*/*/*",
                )
            ),
        ],
    },
)
