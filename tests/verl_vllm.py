"""vLLM's worker for CPUs in place of Trinity's for GPUs, with weights from a file in place of NCCL."""

from dataclasses import dataclass

from verl_cpu import WeightFile
from vllm.distributed.weight_transfer import base
from vllm.v1.worker.cpu_worker import CPUWorker


@dataclass
class Init(base.WeightTransferInitInfo):
    master_address: str
    master_port: int
    rank_offset: int
    world_size: int


@dataclass
class Update(base.WeightTransferUpdateInfo):
    names: list = None
    dtype_names: list = None
    shapes: list = None
    packed: bool = True


class FromFile(base.WeightTransferEngine):
    init_info_cls = Init
    update_info_cls = Update

    def init_transfer_engine(self, init_info):
        self.weights = WeightFile(init_info.master_port)

    def receive_weights(self, update_info, load_weights):
        weights = self.weights.receive()
        assert list(weights) == list(update_info.names)
        load_weights(list(weights.items()))

    def shutdown(self):
        pass

    @staticmethod
    def trainer_send_weights(iterator, trainer_args):
        raise NotImplementedError


class CpuWorker(CPUWorker):
    def apply_patches(self):
        from trinity.common.models.vllm_patch.worker_patch import patch_vllm_prompt_logprobs

        patch_vllm_prompt_logprobs(self.model_runner)

    def load_model(self, *args, **options):
        from vllm.distributed.weight_transfer.factory import WeightTransferEngineFactory

        WeightTransferEngineFactory._registry["nccl"] = lambda: FromFile
        return super().load_model(*args, **options)
