"""FSDP2: each process holds a shard of every parameter, its gradient and its optimizer state.

    forward and backward    a block's parameters are gathered before it computes, and freed afterwards
    gradients               are averaged, and each process keeps its shard (reduce-scatter)

Checkpoints are unsharded: one file in the format of a single process, so a run can be resumed with another number of
processes.  Master weights are gathered in float32; autocast lowers the precision, as it does without sharding.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch.strategies import ModelParallelStrategy
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.optim import Optimizer

from hqlt_lab.model.sequence_model import SequenceModel
from hqlt_lab.train.distributed.process_group import get_rank


def shard_model(model: SequenceModel, mesh: DeviceMesh) -> None:
    """Shard the parameters of a model in place; they become new objects, so `no_decay` marks are copied to them."""
    no_decay = {name for name, parameter in model.named_parameters() if getattr(parameter, "no_decay", False)}
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    for name, parameter in model.named_parameters():
        if name in no_decay:
            parameter.no_decay = True  # type: ignore[attr-defined]


@contextmanager
def gather_parameters(model: nn.Module) -> Iterator[None]:
    """Unshard all parameters within the context.  Collective: every process must enter it.

    Inside, a process can compute without the others.  Processes with different numbers of batches would otherwise
    deadlock.
    """
    sharded = [module for module in model.modules() if isinstance(module, FSDPModule)]
    for module in sharded:
        module.set_reshard_after_forward(False, recurse=False)
        module.unshard()
    yield
    for module in sharded:
        module.reshard()
        module.set_reshard_after_forward(module is not model, recurse=False)  # torch's default: not for the root


def full_state(state: Any) -> Any:
    """Return nested state with all tensors unsharded and on the CPU; sharded ones are None on ranks other than 0.

    Collective: every process must call it.
    """
    if isinstance(state, Mapping):
        return {name: full_state(value) for name, value in state.items()}
    if isinstance(state, list):
        return [full_state(value) for value in state]
    if isinstance(state, DTensor):
        state = state.full_tensor()  # freed at once on the other ranks
        return state.cpu() if get_rank() == 0 else None
    return state.cpu() if isinstance(state, Tensor) else state


def shard_like(value: Any, parameter: Tensor) -> Any:
    """Return this process's shard of a tensor with the shape of a sharded parameter; return other values unchanged."""
    if not isinstance(parameter, DTensor) or not isinstance(value, Tensor) or value.shape != parameter.shape:
        return value
    value = value.to(parameter.device, parameter.dtype)
    return distribute_tensor(value, parameter.device_mesh, parameter.placements, src_data_rank=None)


def load_full_weights(module: nn.Module, weights: Mapping[str, Any]) -> None:
    """Load unsharded weights into a module, which may be sharded."""
    current = module.state_dict()
    module.load_state_dict({name: shard_like(value, current.get(name, value)) for name, value in weights.items()})


def load_full_optimizer(optimizer: Optimizer, full_state_dict: dict[str, Any]) -> None:
    """Load unsharded optimizer state into the optimizer of a sharded model; torch numbers parameters by group."""
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    state = {
        number: {name: shard_like(value, parameters[number]) for name, value in values.items()}
        for number, values in full_state_dict["state"].items()
    }
    optimizer.load_state_dict(full_state_dict | {"state": state})


class Fsdp2Strategy(ModelParallelStrategy):
    """Lightning's FSDP2 strategy with single-process checkpoints; its own mix up several parameter groups."""

    def __init__(self, world_size: int) -> None:
        super().__init__(data_parallel_size=world_size, tensor_parallel_size=1, save_distributed_checkpoint=False)

    def lightning_module_state_dict(self) -> dict[str, Any]:
        assert self.lightning_module is not None
        return full_state(self.lightning_module.state_dict())

    def optimizer_state(self, optimizer: Optimizer) -> dict[str, Any]:
        return full_state(optimizer.state_dict())

    def load_checkpoint(self, checkpoint_path: str | Path, weights_only: bool | None = None) -> dict[str, Any]:
        assert self.lightning_module is not None
        checkpoint = torch.load(checkpoint_path, map_location="cpu", mmap=True, weights_only=True)
        load_full_weights(self.lightning_module, checkpoint["state_dict"])
        for optimizer, state in zip(self.optimizers, checkpoint["optimizer_states"], strict=True):
            load_full_optimizer(optimizer, state)
        return checkpoint
