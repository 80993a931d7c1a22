"""The registry: every environment under its name, and none imported before its first use."""

import pickle

import pytest
from r3l.envs.base.package import EnvironmentPackage
from r3l.envs.registry import ENVIRONMENTS, find_environment

from r3l.config import EnvConfig, environment_of, load, names
from r3l.core.errors import ConfigError


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_an_environment_is_registered_under_its_own_name(name):
    environment = find_environment(name)
    assert isinstance(environment, EnvironmentPackage) and environment.name == name
    assert find_environment(name) is environment
    assert pickle.loads(pickle.dumps(environment)).name == name  # it travels to the environments' workers


@pytest.mark.parametrize("env", names("envs"))
def test_every_configured_environment_has_its_options_tasks_and_text_side(env):
    config, environment = load("envs", env, EnvConfig), environment_of(env)
    for settings in config.tiers.values():
        environment.options.model_validate(settings.options)
        assert (
            environment.dialogue("compact", settings.max_turns, settings.options).max_turns
            == settings.max_turns
        )


def test_unknown_names_are_named_with_what_is_meant():
    with pytest.raises(
        ConfigError,
        match=r"there is no environment 'scienceword'; known: alfworld.*did you mean 'scienceworld'",
    ):
        find_environment("scienceword")
    with pytest.raises(ConfigError, match="there is no environment 'marsworld'"):
        find_environment("marsworld")


OPTION_DEFAULTS = {
    ("alfworld", 1): {
        "response_format": "strict",
        "unreadable": "ends",
        "repetitions": 3,
        "history": None,
        "list_places": False,
        "turn": "response",
        "admissible": "shown",
        "impossible": "ends",
        "examples": {},
    },
    ("math", 1): {
        "attempts": 1,
        "turns": "segments",
        "format_penalty": 0.0,
        "ask": "tags",
        "extraction": "strict",
        "grader": "ours",
    },
    ("puzzles", 1): {"attempts": 1, "turns": "segments", "format_penalty": 0.0, "verifier": "ours"},
    ("scienceworld", 1): {
        "response_format": "strict",
        "unreadable": "ends",
        "repetitions": 3,
        "history": None,
        "reward": "score",
        "step_limit": 30,
    },
    ("webshop", 1): {
        "response_format": "strict",
        "unreadable": "ends",
        "repetitions": 2,
        "history": None,
        "penalty": 0.0,
        "refused": "shop",
        "observation": "rich",
        "examples": {},
    },
}


def test_another_default_of_an_option_needs_another_version():
    """A run records only the options that it sets, so its fingerprint knows a default by the version alone.

    Whoever changes a default raises the environment's ``version`` and adds a row here. A new option may be
    added to a row if its default is what was done before.
    """
    found = {}
    for name in ENVIRONMENTS:
        package = find_environment(name)
        found[name, package.version] = package.options().model_dump(mode="json")
    assert found == OPTION_DEFAULTS
