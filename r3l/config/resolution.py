"""Resolving names of tier, environment, model and method into a Run: four layers, each over the one below.

1. **Tier**, ``configs/tiers/TIER.yaml``: engine, base checkpoint and every number of training, sampling and
   evaluation.
2. **Environment**, ``configs/envs/ENV.yaml`` under ``tiers.TIER``: task sets, turns, base checkpoint, the
   engine's options, and under ``set`` its changes to the tier. ``profiles`` add options. A base checkpoint
   of ``configs/models`` that needs other values in the tier (a thinking model trains turns) has them under
   ``set`` too.
3. **Method**, ``configs/methods/METHOD.yaml``: its ``settings``, then those of the ``profile``, of each
   ``where`` entry that holds, of the tier, and the tuned learning rate. A method that ``extends`` another is
   a layer over all of it. A key without a dot is the method's own, one with a dot is the run's
   (``train.sync_interval``). Below the method, if the run has one: the **protocol**,
   ``configs/protocols/ENV/NAME.yaml``, which sets everything that decides an evaluation's score.
4. **--set KEY=VALUE**: the changes of the row (``r3l@alpha=5``), then those of the command line. In both a
   key without a dot is the method's setting if the method declares it (``alpha``), else a key of the run
   (``threads``).

The lowest layer is the defaults that the code declares (r3l.core.option), so that files hold only what
differs. r3l.config.explanation lists every value of a run with the layer that sets it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os.path import isdir
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import yaml
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from r3l.config.environment import EnvConfig, EnvSettings, environment_of
from r3l.config.files import (
    OWN,
    find_class,
    flat,
    is_own,
    key_paths,
    load,
    names,
    own_folders,
    shown_path,
    validate,
)
from r3l.config.method import (
    RATE,
    ProfileName,
    Scope,
    Variant,
    check_change,
    load_method,
    method_files,
    method_label,
    method_of,
    profile_of,
    settings_in,
    source_in,
    tuned_rate,
    variant,
)
from r3l.config.model import HUB_ID, ModelConfig, as_path, stored_model
from r3l.config.protocol import load_protocol
from r3l.config.run import Run, dialogue_of, feedback_source
from r3l.config.tier import TierConfig
from r3l.config.user_code import user_code
from r3l.core.errors import ConfigError, did_you_mean
from r3l.core.named_folders import check_named_folders
from r3l.core.policy import Samples
from r3l.feedback.feedback import FeedbackSource
from r3l.files.yaml_files import check_value

if TYPE_CHECKING:
    from r3l.core.method import Method

CHOSEN_BY = "the tier, environment, model, method and seed (--tier, --env, --model, --method, --seed)"
CHOSEN = {  # keys of a Run that these decide, so that --set cannot change them
    *("tier", "label", "env", "model", "served", "seed", "profile"),
    *("method", "method_label", "method_code", "own_code"),
}
METHOD = "method_settings."  # prefix of keys of a Run
ENV = "env_settings."
OPTIONS = f"{ENV}options."


class Layer(NamedTuple):
    """Values of a Run, by dotted keys, that one file or the command line sets.

    ``place``: the name of that file or option, for messages. ``sources``: one reason for all values, or the
    file's map from its own keys to reasons. The file's own key is the Run's without ``prefix``, after
    ``section``: ``env_settings.max_turns`` is ``tiers.nano.max_turns`` in a file of configs/envs.
    """

    place: str
    values: dict[str, Any]
    sources: Mapping[str, str] | str
    section: str = ""
    prefix: str = ""

    def source(self, key: str) -> str:
        """The reason given for the value of a Run's dotted ``key``; '' if there is none."""
        if isinstance(self.sources, str):
            return self.sources
        return source_in(self.sources, self.section + key.removeprefix(self.prefix))


def resolve(
    tier: str,
    env: str,
    method: str | Variant,
    seed: int,
    model: str | None = None,
    overrides: Sequence[str] | None = None,
    tuned: bool = True,
) -> Run:
    """The run that the files of tier, environment, model and method make, with the user's changes on top.

    ``method``: a name (``r3l``, ``r3l@alpha=5``) or a Variant. ``model``: the base checkpoint (a name, folder
    or hub id); None: the environment's in this tier, else the tier's. ``overrides`` are the ``key=value`` of
    ``--set``: ``train.steps=3``, ``alpha=5``. ``tuned``: whether a tuned learning rate replaces the tier's.
    Loads no model, but imports the code of method and environment. Raises ConfigError naming file, key, value
    and fix.
    """
    check_named_folders()
    row, layers = layers_of(tier, env, method, model, overrides, tuned)
    place = f"{tier}/{env}/{row.name}"  # for errors

    # Merge the layers into nested dictionaries: a value replaces the value of a lower layer.
    values: dict[str, Any] = {}
    for layer in layers:
        for key, value in layer.values.items():
            *sections, name = key.split(".")
            inside = values
            for section in sections:
                if not isinstance(inside.get(section), dict):
                    inside[section] = {}
                inside = inside[section]
            inside[name] = value

    # Complete the method's settings with its defaults, so that the manifest and the fingerprint have all of
    # them. An error in them is found now, before the model is loaded.
    settings = values.get("method_settings", {})
    if not isinstance(settings, dict):
        raise ConfigError(
            f"{place}: key 'method_settings' has value {settings!r}; change its keys one by one"
        )
    code = str(method_files(row.method)[-1].code)
    built = method_of(row.name, code, settings)

    # Add the values that no layer sets: they follow from the names.
    values |= {
        "tier": tier,
        "label": load("tiers", tier, TierConfig).label,
        "env": env,
        "method": row.name,
        "method_label": method_label(row),
        "method_code": code,
        "method_settings": dict(built.describe()),
        "profile": profile_of(row),
        "seed": seed,
        "own_code": user_code(env, row.method) if any(map(own_folders, OWN)) else {},
    }
    # A protocol's name does not identify its rules, so the run records a digest of them too.
    if isinstance(values.get("protocol"), str):
        values["protocol"] = load_protocol(env, values["protocol"]).identity

    # Check types and ranges, then what only the combination of settings shows.
    run = validate(Run, values, place)
    validate(environment_of(env).options, run.env_settings.options, f"{env}, env_settings.options")
    _check_combination(run, built)
    # A base checkpoint stored with this project was made by SFT in one of its environments.
    named = model or load("envs", env, EnvConfig).in_tier(tier).model
    if not named and is_own("envs", env) and stored_model(run.model):
        raise ConfigError(
            f"environment {env!r} names no base checkpoint for tier {tier}, and the tier's own, "
            f"{run.model}, was taught another environment: its actions would be impossible. Add `model: "
            f"NAME` under tiers.{tier} in {env}.yaml, or give --model"
        )
    return run


def default_model(tier: str, env: str) -> str:
    """Name of the base checkpoint from which runs of ``tier`` in ``env`` start unless ``--model`` is given.

    Raises ConfigError as :func:`resolve` does.
    """
    return resolve(tier, env, "grpo", 0).model_name()  # the same for every method


def layers_of(
    tier: str,
    env: str,
    method: str | Variant,
    model: str | None,
    overrides: Sequence[str] | None,
    tuned: bool = True,
) -> tuple[Variant, list[Layer]]:
    """The row (method and changes) of a run, and what each file and option sets, the lowest layer first.

    Arguments as of :func:`resolve`. A ``profile=`` among ``overrides`` becomes a change of the row, as if its
    name had it. Values are checked later, except profile and protocol. Raises ConfigError for an unknown
    name or key, and for a malformed file.
    """
    # The row, the profile and the base checkpoint: settings of every layer depend on them.
    row = variant(method) if isinstance(method, str) else method
    changes = []
    for change in overrides or ():
        if change.startswith("profile="):  # as --method r3l@profile=fair; a second one is an error
            row = variant(row.changed(profile=change.partition("=")[2]).name)
        else:
            changes.append(change)
    profile = profile_of(row)
    in_tier = load("tiers", tier, TierConfig)
    in_env = load("envs", env, EnvConfig)
    usual = in_env.in_tier(tier).model or in_tier.model
    base = as_path(model) if model else usual

    # The user's changes are the highest layers, but they are read first: lower layers depend on some of them.
    above = [
        Layer(row.name, changed_values(row, row.changes), "the name of the row"),
        Layer("--set", changed_values(row, changes), "the command line"),
    ]
    for key in above[0].values.keys() & above[1].values.keys():
        named = above[0].values[key]
        given = above[1].values[key]
        if named != given:
            short = key.removeprefix("method_settings.")
            raise ConfigError(
                f"--set {short}={given}: the row is named {row.name}, so its runs have {short}={named}; name the "
                f"value that you want in --method, as in {row.method}@{short}={given}, and leave out the --set"
            )

    # 1. The tier, then 2. the environment in it.
    of_tier = in_tier.model_dump(exclude={"tier", "label", "sources", "tuning"}, exclude_unset=True)
    below = [Layer(f"configs/tiers/{tier}.yaml", flat(of_tier), in_tier.sources)]
    below += _environment_layers(in_env, tier, profile)

    # The base checkpoint, if --model names one, and its changes to the tier.
    if model:
        below.append(Layer("--model", {"model": base}, "the command line"))
    name = model or usual
    if name in names("models"):
        config = load("models", name, ModelConfig)
        below.append(Layer(f"configs/models/{name}.yaml", config.set, config.sources, "set."))

    # The protocol that the row or --set names.
    protocol = (above[0].values | above[1].values).get("protocol")
    if protocol is not None:
        found = load_protocol(env, str(protocol))
        path = f"configs/protocols/{found.config.env}/{found.path.name}"
        below.append(Layer(path, flat(found.values), found.config.sources))

    # 3. The method. Some of its settings hold for one base checkpoint, or only where single turns are
    # training samples: so the value of ``samples`` is needed, which the highest layer with it sets.
    samples: Samples = "trajectory"
    for layer in [*below, *above]:
        samples = layer.values.get("samples") or samples
    scope = Scope(tier, profile, in_env.environment or env, base, samples)
    for file in method_files(row.method):
        values = {}
        sources = {}
        for key, (value, source) in file.settings_in(scope).items():
            of_run = key if "." in key else f"{METHOD}{key}"
            values[of_run] = value
            sources[of_run] = source
        below.append(Layer(shown_path("methods", file.method), values, sources))
    # A tuned learning rate was chosen for the profile paper and one base checkpoint: the usual or a named one.
    is_tuned = tuned and profile == "paper"
    rate = tuned_rate(row, tier, env if base == usual else f"{env}/{base}") if is_tuned else None
    if rate:
        below.append(Layer(shown_path("methods", rate.file), {RATE: rate.rate}, rate.source))
    return row, [*below, *above]


def _environment_layers(config: EnvConfig, tier: str, profile: ProfileName) -> list[Layer]:
    """The layers of a file of configs/envs: settings in ``tier``, changes to the tier, and the profile."""
    # The profile comes last: its options and task sets are on top of the tier's own.
    path = shown_path("envs", config.env)
    own = config.in_tier(tier)
    settings = own.model_dump(include={*EnvSettings.model_fields}, exclude_unset=True)
    values: dict[str, Any] = {"env_settings": settings}
    if own.model:
        values["model"] = own.model
    options = {f"{OPTIONS}{key}": value for key, value in config.profiles.get(profile, {}).items()}
    layers = [
        Layer(path, flat(values), config.sources, f"tiers.{tier}.", ENV),
        Layer(path, own.set, config.sources, f"tiers.{tier}.set."),
        Layer(path, options, config.sources, f"profiles.{profile}.", OPTIONS),
    ]
    if further := config.further_test_task_sets.get(profile):
        test_sets = {f"{ENV}further_test_task_sets": [*own.further_test_task_sets, *further]}
        layers.append(Layer(path, test_sets, config.sources, f"further_test_task_sets.{profile}."))
    return layers


def changed_values(row: Variant, changes: Sequence[str]) -> dict[str, Any]:
    """Parse ``key=value`` texts to values by dotted keys of Run: ``alpha=5`` -> ``method_settings.alpha: 5``.

    A key without a section is a setting of the row's method if its code declares it, else a key of Run.
    Values are read as YAML, but not checked; ``profile=`` is skipped, since it is no value of a Run. Raises
    ConfigError for a text that cannot be read, an unknown or ambiguous key, one of CHOSEN, and for an empty
    mapping, which names no key.
    """
    settings = getattr(find_class("methods", str(method_files(row.method)[-1].code)), "Settings", None)
    own = settings.model_fields if settings else {}
    # Check each key, and give a setting of the method its section: ``alpha`` -> ``method_settings.alpha``.
    texts = []
    for change in changes:
        check_change(change)
        key = change.partition("=")[0]
        section = key.partition(".")[0]
        if key == "profile":
            continue
        if section in CHOSEN:
            raise ConfigError(f"key {key!r} is not for a change: it follows from {CHOSEN_BY}")
        if key in own and key in Run.model_fields:
            raise ConfigError(
                f"key {key!r} is ambiguous: a setting of method {row.method!r}, and a key of the run. For "
                f"the method's write {METHOD}{change}; for the run's set {key} in configs/tiers, or rename "
                "the method's setting"
            )
        if section not in Run.model_fields and key not in own:
            # Perhaps a section was left out, else a letter is wrong.
            dotted = [path for path in key_paths(Run) if path.endswith(f".{key}")]
            if dotted:
                meant = f" (did you mean {' or '.join(map(repr, dotted))}?)"
            else:
                meant = did_you_mean(key, [*own, *Run.model_fields])
            raise ConfigError(
                f"unknown key {key!r}{meant}: method {row.method!r} has no such setting, a run no such key"
            )
        texts.append(f"{METHOD}{change}" if key in own else change)
    # Read the values as YAML: numbers, lists, null.
    try:
        for text in texts:
            key, _, value = text.partition("=")
            check_value(value, key)
            if "{" in value:  # each one alone: merged with others, an empty mapping would not be seen
                _refuse_empty(key, OmegaConf.select(OmegaConf.from_dotlist([text]), key))
        return flat(cast(dict[str, Any], OmegaConf.to_container(OmegaConf.from_dotlist(texts))))
    except (OmegaConfBaseException, yaml.YAMLError) as error:
        raise ConfigError(
            f"one of {', '.join(changes)} cannot be read: {' '.join(str(error).split())}"
        ) from error


def _refuse_empty(key: str, value: Any) -> None:
    """Raise ConfigError if ``value``, of ``key``, is or has a mapping without keys."""
    if not OmegaConf.is_dict(value):
        return
    if not value:
        raise ConfigError(
            f"{key}={{}} would change nothing: a mapping changes the keys that it names, and this one names "
            f"none. Name them, as in {key}.NAME=VALUE, or leave it out"
        )
    for name in value:
        _refuse_empty(f"{key}.{name}", value[name])


def _check_combination(run: Run, method: Method) -> None:
    """Raise ConfigError for settings that are allowed separately, but not together."""
    place = f"{run.tier}/{run.env}"
    if run.samples == "turn" and dialogue_of(run).stop == "line":
        raise ConfigError(
            f"{place}: samples is 'turn', but a turn of {run.env} is a line of a response, which a chat "
            "template would render as a message; set samples=trajectory or env_settings.options.turns=whole"
        )
    # vLLM as the sampler of the local engine has limits.
    if run.compute == "vllm" and run.engine == "trinity":
        raise ConfigError(
            f"{place}: compute is 'vllm', but Trinity-RFT has its own vLLM: leave one of them out"
        )
    if run.compute == "vllm" and max(run.sampling.temperature, run.evaluation.temperature) > 2:
        raise ConfigError(f"{place}: compute is 'vllm', but it takes temperatures up to 2")
    # Retries and their guidance are written for the prompts of training, and go on within one dialog.
    if method.trains and (run.protocol is not None or dialogue_of(run).history is not None):
        for_score = "a protocol"
        if run.protocol is None:
            for_score = "a new dialog for every turn (options history and response_format)"
        raise ConfigError(
            f"{place}: {for_score} is for r3l evaluate, and method {run.method!r} trains; leave it out"
        )
    if run.sampling.max_tokens >= run.sampling.max_context:
        raise ConfigError(
            f"{place}: sampling.max_tokens, {run.sampling.max_tokens}, must be below sampling.max_context, "
            f"{run.sampling.max_context}"
        )
    # A server may use any name for its models. Loading a name without a slash says whether it exists.
    if (
        run.engine != "server"
        and "/" in run.model
        and not HUB_ID.fullmatch(run.model)
        and not isdir(run.model)
    ):
        raise ConfigError(
            f"there is no model {run.model!r}: it must be a name of configs/models or "
            "results/stored/models, a folder, or an id of the Hugging Face hub such as "
            "Qwen/Qwen2.5-1.5B-Instruct"
        )


def planned_feedback_source(row: Variant, tier: str) -> FeedbackSource | None:
    """The author of the feedback that a method or variant learns from; None if it reads none.

    It is read only from the method's files and its changes, not for a particular environment or model. Raises
    ConfigError for an unknown name or a wrong value.
    """
    settings = settings_in(row.method, Scope(tier, profile_of(row)))
    for key, value in changed_values(row, row.changes).items():
        if key.startswith(METHOD):
            settings[key.removeprefix(METHOD)] = value
    # The other keys of a method's file change the run: they have a dot, or a name that Run has.
    own = {key: value for key, value in settings.items() if "." not in key and key not in Run.model_fields}
    return feedback_source(method_of(row.name, str(load_method(row.method).code), own).describe())
