"""Configuration: a YAML file for each tier, environment and method, resolved into one frozen Run.

Unknown keys, wrong types and missing files are ConfigErrors that name file, key, value and the fix. Every
file has a ``sources`` map that says for each key where its value comes from.
"""

from r3l.config.base_checkpoint import base_checkpoint_of, base_checkpoint_warning
from r3l.config.environment import EnvConfig, EnvTierConfig, env_configs, environment_of
from r3l.config.explanation import Explained, explained, train_command
from r3l.config.files import Strict, is_own, load, names, own_folders, own_variables, validate
from r3l.config.fingerprint_inputs import model_digest, model_identity, sft_folder
from r3l.config.method import PROFILES, MethodConfig, Variant, load_method, method_label, variant
from r3l.config.model import (
    ArchitectureConfig,
    ClusterConfig,
    ModelConfig,
    PackagedConfig,
    as_path,
    find_model,
    locate,
    stored_model,
)
from r3l.config.resolution import default_model, planned_feedback_source, resolve
from r3l.config.run import Run, build_method, dialogue_of, feedback_source, gpu_cluster, hashed, trains
from r3l.config.tier import (
    Compute,
    ComputeDtype,
    Device,
    OptimizerConfig,
    SamplingConfig,
    TierConfig,
    TrainConfig,
)

__all__ = [
    "ArchitectureConfig",
    "ClusterConfig",
    "Compute",
    "ComputeDtype",
    "Device",
    "EnvConfig",
    "EnvTierConfig",
    "Explained",
    "MethodConfig",
    "ModelConfig",
    "OptimizerConfig",
    "PROFILES",
    "PackagedConfig",
    "Run",
    "SamplingConfig",
    "Strict",
    "TierConfig",
    "TrainConfig",
    "Variant",
    "as_path",
    "build_method",
    "default_model",
    "dialogue_of",
    "env_configs",
    "environment_of",
    "explained",
    "feedback_source",
    "find_model",
    "gpu_cluster",
    "hashed",
    "is_own",
    "load",
    "load_method",
    "locate",
    "method_label",
    "model_digest",
    "model_identity",
    "names",
    "own_folders",
    "own_variables",
    "planned_feedback_source",
    "resolve",
    "sft_folder",
    "base_checkpoint_warning",
    "base_checkpoint_of",
    "stored_model",
    "train_command",
    "trains",
    "validate",
    "variant",
]
