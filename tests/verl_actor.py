"""One rank of verl's actor under Trinity's worker, in a process of its own (tests/trinity/inside)."""

import logging
import os

import torch
import verl_cpu
import yaml

from r3l.config import ClusterConfig, Run, validate
from r3l.trinity.config import Place, trinity_config


def configuration(run, folder, ranks, sequence_parallel):
    """Ours, with 32-bit numbers where a GPU would compute in bfloat16."""
    import r3l.trinity.config as ours

    cluster = ClusterConfig(nodes=1, gpus_per_node=ranks + 1, engines=1, sequence_parallel=sequence_parallel)
    ours.cluster_of = lambda *args: cluster
    ours.planned_model = lambda run: type("Model", (), {"dtype": "float32"})
    attention = "sdpa" if sequence_parallel == 1 else ours.FLASH
    config = trinity_config(run, Place(folder, folder / "tasks", attention=attention))
    overrides = config["trainer"]["trainer_config"]
    if sequence_parallel > 1:
        overrides["model"]["override_config"]["attn_implementation"] = "packed_torch"
    exact = {"mixed_precision": {"param_dtype": "fp32", "reduce_dtype": "fp32"}, "use_torch_compile": False}
    for part in ("actor", "ref"):
        overrides[part] = {"fsdp_config": exact, "use_torch_compile": False}
    return config


def full(tensor):
    whole = tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor
    return whole.detach().clone()


def actor(rank, ranks, port, sequence_parallel, folder):
    """One rank: train the batch, save and load a checkpoint; rank 0 leaves what came of it in a file."""
    address = {"RANK": rank, "WORLD_SIZE": ranks, "LOCAL_RANK": 0, "LOCAL_WORLD_SIZE": 1, "MASTER_PORT": port}
    os.environ.update({name: str(value) for name, value in address.items()})
    os.environ.update(MASTER_ADDR="127.0.0.1", CUDA_VISIBLE_DEVICES="")
    torch.set_num_threads(1)
    verl_cpu.prepare_process()
    if sequence_parallel > 1:
        verl_cpu.register_packed_attention()

    from transformers import AutoTokenizer
    from trinity.algorithm import ALGORITHM_TYPE
    from trinity.common import config_validator
    from trinity.common.config import load_config
    from trinity.common.experience import Experience
    from trinity.trainer.verl.config import build_verl_config
    from trinity.trainer.verl.losses import build_trinity_loss
    from trinity.trainer.verl.monkey_patch import left_right_2_no_padding
    from trinity.trainer.verl.utils import to_data_proto
    from trinity.trainer.verl.workers import TrinityActorRolloutRefWorker
    from verl.utils import tensordict_utils as tu
    from verl.utils.metric import reduce_metrics
    from verl.utils.seqlen_balancing import calculate_workload, get_seqlen_balanced_partitions
    from verl.workers.utils.padding import no_padding_2_padding

    batch = torch.load(folder / "batch.pt", weights_only=False)
    run = validate(Run, batch["run"], "run")
    path = folder / f"config-{rank}.yaml"
    path.write_text(yaml.safe_dump(configuration(run, folder, ranks, sequence_parallel)))
    config = load_config(str(path))
    for validator in config_validator.validators:
        validator.validate(config)
    settings = build_verl_config(config)
    reference = ALGORITHM_TYPE.get(config.algorithm.algorithm_type).use_reference
    worker = TrinityActorRolloutRefWorker(
        settings, role="actor_rollout_ref" if reference else "actor_rollout"
    )
    worker.init_model()
    worker._algo_config = config.algorithm
    worker.actor.set_loss_fn(build_trinity_loss(config.algorithm))
    engine = worker.actor.engine

    # As Trinity's trainer: rows to tensors, balanced over data-parallel ranks, each rank its share.
    tokenizer = AutoTokenizer.from_pretrained(config.model.model_path)
    experiences = Experience.deserialize_many(batch["experiences"])
    data = to_data_proto(experiences, tokenizer.pad_token_id, torch.nn.Module(), logging.getLogger())
    data.batch["old_log_probs"] = data.batch["rollout_log_probs"]
    replicas, mine = engine.get_data_parallel_size(), engine.get_data_parallel_rank()
    workload = calculate_workload(data.batch["attention_mask"].sum(-1))
    parts = get_seqlen_balanced_partitions(workload, k_partitions=replicas, equal_size=True)
    data.reorder(torch.tensor([row for part in parts for row in part]))

    def share():
        tensors = left_right_2_no_padding(data.to_tensordict())
        return tu.chunk_tensordict(tensors, replicas)[mine] if replicas > 1 else tensors

    if reference:
        tensors = share()
        temperature = config.model.temperature
        tu.assign_non_tensor(tensors, calculate_entropy=False, compute_loss=False, temperature=temperature)
        scored = tu.get(worker.ref.infer_batch(tensors), "log_probs")
        everyones = [None] * ranks
        torch.distributed.all_gather_object(everyones, no_padding_2_padding(scored, share()).float())
        data.batch["ref_log_prob"] = torch.cat(everyones[:: ranks // replicas])

    def prepared():
        tensors = share()
        size = settings.actor.ppo_mini_batch_size
        tu.assign_non_tensor(
            tensors,
            calculate_entropy=False,
            global_batch_size=size,
            mini_batch_size=size,
            epochs=1,
            seed=42,
            dataloader_kwargs={"shuffle": False},
            temperature=config.model.temperature,
            compute_loss=True,
        )
        return tensors

    gradient = {}
    step = engine.optimizer_step

    def recorded():
        trained = [(n, p.grad) for n, p in engine.module.named_parameters() if p.grad is not None]
        gradient.update({name: full(grad) for name, grad in trained})
        return step()

    engine.optimizer_step = recorded
    trained = worker.actor.train_mini_batch(prepared())
    weights = {name: full(p) for name, p in engine.module.named_parameters()}

    # Back from a checkpoint come the same weights and moments.
    def moments():
        return [full(state["exp_avg"]) for state in engine.optimizer.state.values()]

    before = moments()
    engine.save_checkpoint(str(folder / "checkpoint"), global_step=1)
    with torch.no_grad():
        for parameter in engine.module.parameters():
            parameter.mul_(0)
        for state in engine.optimizer.state.values():
            state["exp_avg"].mul_(0)
    engine.load_checkpoint(str(folder / "checkpoint"), del_local_after_load=False)
    loaded = {name: full(p) for name, p in engine.module.named_parameters()}
    restored = all(torch.equal(weights[name], loaded[name]) for name in weights)
    restored &= all(torch.equal(a, b) for a, b in zip(before, moments(), strict=True))

    # A batch in which no row trains changes neither.
    del engine.optimizer_step
    data.batch["token_weight"].zero_()
    without_rows = worker.actor.train_mini_batch(prepared())
    kept = all(torch.equal(weights[name], full(p)) for name, p in engine.module.named_parameters())
    kept &= all(torch.equal(a, b) for a, b in zip(before, moments(), strict=True))
    kept &= all(int(state["step"]) == 1 for state in engine.optimizer.state.values())
    if rank == 0:  # with sequence parallelism only the first rank of each group has metrics
        kept &= float(reduce_metrics(tu.get(without_rows, "metrics"))["grad_norm"]) == 0
        metrics = {k: float(v) for k, v in reduce_metrics(tu.get(trained, "metrics")).items()}
        found = {"metrics": metrics, "gradient": gradient, "weights": weights}
        found |= {"restored": restored, "kept": kept}
        torch.save(found, folder / "found.pt")
