"""Lets a whole run of Trinity, verl and Ray train on CPUs, for tests alone (tests/trinity/test_verl_on_cpus.py).

Python imports this module at the start of every process that has its folder on PYTHONPATH, so also in Ray's
workers. It changes modules right after their import: where CUDA alone works, and the plan of GPUs, which a
nano model has not. Ray is told of GPUs by CUDA_VISIBLE_DEVICES.
"""

import importlib.abc
import importlib.util
import os
import sys
from types import SimpleNamespace

RANKS = int(os.environ.get("VERL_CPU_RANKS", 1))  # data-parallel ranks that train


def plan_gpus(module):
    """One GPU that samples, RANKS that train."""
    from r3l.config.model import ClusterConfig

    planned = module.gpu_cluster

    def gpu_cluster(run):
        cluster = ClusterConfig(nodes=1, gpus_per_node=RANKS + 1, engines=1)
        return cluster if run.engine == "trinity" else planned(run)

    module.gpu_cluster = gpu_cluster


def plan_model(sizes):
    from r3l.config.model import ClusterConfig

    cluster = ClusterConfig(nodes=1, gpus_per_node=RANKS + 1, engines=1)
    sizes.planned_model = lambda run: SimpleNamespace(dtype="float32", cluster=cluster)


def prepare_worker(engine_workers):
    import verl_cpu

    verl_cpu.prepare_process()
    if os.environ.get("VERL_CPU_SYNC") == "float32":
        verl_cpu.send_32_bits()


def compute_in_float32(config):
    build = config.build_verl_config

    def built(of_trinity):
        made = build(of_trinity)
        for part in (made.actor, made.ref):
            part.fsdp_config.mixed_precision = {"param_dtype": "fp32", "reduce_dtype": "fp32"}
        return made

    config.build_verl_config = built


def send_weights_by_file(distributed):
    import verl_cpu

    distributed.WeightTransferEngine.create = staticmethod(
        lambda engine_type, master_address, master_port, world_size, group_name: verl_cpu.WeightFile(
            master_port
        )
    )


def send_no_weights(distributed):
    class Broken:
        def sync_weight(self, iterator):
            raise RuntimeError("the network card is gone")

        def teardown(self):
            pass

    distributed.WeightTransferEngine.create = staticmethod(lambda *args, **options: Broken())


def sample_locally(vllm_model):
    from verl_sampler import LocalSampler

    vllm_model.vLLMRolloutModel = LocalSampler


def work_on_cpu(vllm_worker):
    from verl_vllm import CpuWorker

    vllm_worker.TrinityGPUWorker = CpuWorker


HOOKS = {
    "r3l.config.run": plan_gpus,
    "r3l.trinity.sizes": plan_model,
    "verl.workers.engine_workers": prepare_worker,
    "trinity.trainer.verl.config": compute_in_float32,
    "trinity.utils.distributed": send_weights_by_file,
}
if os.environ.get("VERL_CPU_FAULT") == "weights":
    HOOKS["trinity.utils.distributed"] = send_no_weights
if os.environ.get("VERL_CPU_SAMPLER") == "vllm":
    HOOKS["trinity.common.models.vllm_worker"] = work_on_cpu
else:
    HOOKS["trinity.common.models.vllm_model"] = sample_locally


class Finder(importlib.abc.MetaPathFinder):
    """Runs a module's hook after the module."""

    def find_spec(self, name, path, target=None):
        if name not in HOOKS:
            return None
        hook = HOOKS.pop(name)
        spec = importlib.util.find_spec(name)
        execute = spec.loader.exec_module

        def exec_module(module):
            execute(module)
            hook(module)

        spec.loader.exec_module = exec_module
        return spec


sys.meta_path.insert(0, Finder())
