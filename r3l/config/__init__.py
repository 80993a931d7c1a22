"""Configuration: one YAML file a tier, an environment, a method; resolved into one frozen Run.

Unknown keys, wrong types and missing files are ConfigErrors that name file, key, value and the fix. Every
value carries its source: each file has a ``sources`` map from key to where the value comes from.
"""

from r3l.config.environment import EnvConfig, EnvTierConfig, environment_of
from r3l.config.files import Strict, folders, is_own, load, names, own_folders, own_variables, validate
from r3l.config.method import MethodConfig, load_method, method_label
from r3l.config.model import (
    ArchitectureConfig,
    ClusterConfig,
    ModelConfig,
    PackagedConfig,
    find_model,
    model_label,
    stored_model,
)
from r3l.config.profile import PROFILES
from r3l.config.resolution import build_method, dialogue_of, feedback_of, gpu_cluster, resolve, trains
from r3l.config.run import Run, hashed, locate, sft_folder, start_of, weights_of
from r3l.config.tier import ComputeDtype, Device, Forward, OptimizerConfig, SamplingConfig, TierConfig, TrainConfig
from r3l.config.variant import Variant, variant

__all__ = [
    "ArchitectureConfig",
    "ClusterConfig",
    "ComputeDtype",
    "Device",
    "Forward",
    "EnvConfig",
    "EnvTierConfig",
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
    "build_method",
    "dialogue_of",
    "environment_of",
    "feedback_of",
    "find_model",
    "folders",
    "gpu_cluster",
    "hashed",
    "is_own",
    "load",
    "load_method",
    "locate",
    "method_label",
    "model_label",
    "names",
    "own_folders",
    "own_variables",
    "resolve",
    "start_of",
    "stored_model",
    "trains",
    "validate",
    "variant",
    "sft_folder",
    "weights_of",
]
