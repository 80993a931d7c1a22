"""docs/audit.md defines every id that the project cites, and says of every option what the code does."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
import yaml
from docs.pages import DOCS, prose, text

from r3l.config import Run, build_method, names, resolve
from r3l.files.paths import ROOT

AUDIT = DOCS / "audit.md"
CITING = ("r3l", "baselines", "envs", "configs", "examples", "tests", "docs")
KINDS = {".py", ".yaml", ".md", ".txt", ".json", ".jinja", ".js"}

_ID = re.compile(r"\b[AB]-\d+\b")
_SECTION = re.compile(r"\b(RLTF )?audit,? (?:section )?(\d+(?:\.\d+)?(?:(?:,| and| to) \d+(?:\.\d+)?)*)")
_DEFECT = re.compile(r"RLTF defect (\d+)")
_HEADING = re.compile(r"^#+ (RLTF audit \d+|RLTF defect \d+|[AB]-\d+|\d(?:\.\d+)?)\b", re.MULTILINE)
_OPTION = re.compile(r"^- Option(?: of `(\w+)`)?: `(\w+)`: ((?:`[^`]+`(?:, )?)+)\.(.*)$", re.MULTILINE)
_PROFILE = re.compile(r"Profile `(\w+)`: ((?:`[^`]+`(?: \((?:`\w+`(?:, )?)+\))?(?:, )?)+)\.")
_VALUE = re.compile(r"`([^`]+)`(?: \(((?:`\w+`(?:, )?)+)\))?")


def cited(content: str) -> set[str]:
    """Ids in a text: ``A-1``, ``0.7``, ``RLTF audit 2``, ``RLTF defect 1``."""
    ids = set(_ID.findall(content)) | {f"RLTF defect {n}" for n in _DEFECT.findall(content)}
    for rltf, numbers in _SECTION.findall(content):
        ids |= {f"RLTF audit {n}" if rltf else n for n in re.findall(r"\d+(?:\.\d+)?", numbers)}
    return ids


def files() -> Iterator[Path]:
    for folder in CITING:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in KINDS and path.name != Path(__file__).name and "__pycache__" not in path.parts:
                yield path
    yield from (
        ROOT / "README.md",
        ROOT / "CHANGELOG.md",
        *(ROOT / "workflow").rglob("*.smk"),
        ROOT / "Snakefile",
    )


def test_every_cited_id_is_defined():
    defined = set(_HEADING.findall(prose(AUDIT)))
    unknown = {str(path.relative_to(ROOT)): cited(text(path)) - defined for path in files()}
    assert {path: ids for path, ids in unknown.items() if ids} == {}
    ids = _HEADING.findall(prose(AUDIT))
    assert len(ids) == len(set(ids))


OPTIONS = [line.groups() for line in _OPTION.finditer(text(AUDIT))]


def run_of(method: str = "r3l", env: str = "alfworld", profile: str = "paper", *overrides: str) -> Run:
    tier = "paper" if env in ("alfworld", "webshop", "scienceworld") else "smol"
    return resolve(tier, env, f"{method}@profile={profile}", 0, None, list(overrides))


@cache
def settings(method: str, profile: str) -> dict[str, object]:
    return dict(build_method(run_of(method, profile=profile)).describe())


def having(key: str) -> list[str]:
    """The methods with an option, those that only change another one's settings left out."""
    return [name for name in names("methods") if key in settings(name, "paper")]


def claims(values: str) -> Iterator[tuple[object, list[str]]]:
    """(value, methods) of ``\\`a\\` (\\`grpo\\`, \\`r3l\\`), \\`b\\```."""
    for value, methods in _VALUE.findall(values):
        yield yaml.safe_load(value), re.findall(r"\w+", methods)


def plain(value: object) -> object:
    return list(value) if isinstance(value, tuple) else value


@pytest.mark.parametrize(("env", "key", "values", "rest"), [o for o in OPTIONS if not o[0]])
def test_method_options_exist_with_their_values_and_profiles(env, key, values, rest):
    methods = having(key)
    assert methods, f"no method has an option {key}"
    for value, _ in claims(values):
        run_of(
            methods[0],
            "alfworld",
            "paper",
            f"method_settings.{key}={yaml.safe_dump(value, default_flow_style=True).splitlines()[0]}",
        )
    profiles = {profile: list(claims(stated)) for profile, stated in _PROFILE.findall(rest)}
    if "paper" not in profiles:
        (first, _), *_ = claims(values)
        profiles["paper"] = [(first, [m for _, of in profiles.get("released_code", []) for m in of] or methods[:1])]
    for profile, stated in profiles.items():
        for value, of in stated:
            assert of, f"{key}: which methods does profile {profile} set to {value}?"
            for method in of:
                assert plain(settings(method, profile)[key]) == value, f"{key} of {method} in profile {profile}"


@pytest.mark.parametrize(("env", "key", "values", "rest"), [o for o in OPTIONS if o[0]])
def test_environment_options_exist_with_their_values_and_profiles(env, key, values, rest):
    for value, _ in claims(values):
        run_of("r3l", env, "paper", f"env_settings.options.{key}={value}")
    for profile, stated in _PROFILE.findall(rest):
        assert [run_of("r3l", env, profile).env_settings.options[key]] == [value for value, _ in claims(stated)]
