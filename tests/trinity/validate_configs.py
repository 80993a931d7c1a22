"""Run by the Python of Trinity's environment: each YAML file of a folder through Trinity's own loader and validators.

Prints one JSON object, file -> what Trinity derives from it, or ``error``. Where this package's parts for Trinity
cannot be imported there, classes of Trinity's own stand in for them: keys and values are checked all the same.
"""

import importlib
import json
import sys
import types
from pathlib import Path

from trinity.algorithm.advantage_fn.grpo_advantage import GRPOAdvantageFn
from trinity.algorithm.algorithm import GRPOAlgorithm
from trinity.algorithm.policy_loss_fn.ppo_policy_loss import PPOPolicyLossFn
from trinity.common.config import load_config
from trinity.trainer.verl.config import build_verl_config

STAND_INS = {}  # module -> what stands for it


def stand_in(dotted, base):
    module, _, name = dotted.rpartition(".")
    if module not in STAND_INS:
        try:
            importlib.import_module(module)
            return
        except ModuleNotFoundError:
            STAND_INS[module] = sys.modules[module] = types.ModuleType(module)
    own = {"__call__": base.__call__} if base is PPOPolicyLossFn else {}  # each loss must have its own
    setattr(STAND_INS[module], name, type(name, (base,), own))


def derived(path):
    config = load_config(str(path))
    stand_in(config.algorithm.algorithm_type, GRPOAlgorithm)
    stand_in(config.algorithm.advantage_fn, GRPOAdvantageFn)
    stand_in(config.algorithm.policy_loss_fn, PPOPolicyLossFn)
    config = config.check_and_update()
    verl = build_verl_config(config)
    return {
        "verl_mini_batch": verl.actor.ppo_mini_batch_size,
        "verl_tokens": verl.actor.ppo_max_token_len_per_gpu,
        "verl_lr": verl.actor.optim.lr,
        "train_batch_size": config.buffer.trainer_input.experience_buffer.batch_size,
        "trainer_gpus": config.cluster.trainer_gpu_num,
        "rollout_gpus": config.cluster.rollout_gpu_num,
        "max_tokens": config.buffer.explorer_input.tasksets[0].rollout_args.max_tokens,
        "mode": config.mode,
        "sync_method": config.synchronizer.sync_method.value,
        "eval_interval": config.explorer.eval_interval,
        "runners": config.explorer.runner_per_model,
    }


def main(folder):
    results = {}
    for path in sorted(Path(folder).glob("*.yaml")):
        try:
            results[path.name] = derived(path)
        except Exception as error:  # noqa: BLE001  # whatever Trinity raises is the finding
            results[path.name] = {"error": f"{type(error).__name__}: {error}"}
    print("FOUND " + json.dumps(results))


main(sys.argv[1])
