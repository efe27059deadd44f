"""fsdp2: every process has its share of each parameter, of its gradient and of the optimiser's averages.

    a block's parameters are put together before it computes, there and back, and let go afterwards
    gradients are averaged, and each process keeps its share of them

What is saved is whole, one file in the form that one process writes: a run may go on with other processes, or alone.
Masters are float32 and are put together as such; autocast computes in less, as it does without shares.
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
from hqlt_lab.train.ranks import rank


def share_out(model: SequenceModel, mesh: DeviceMesh) -> None:
    """Leave this process its share of the parameters, which are other objects from now on."""
    staying = {name for name, each in model.named_parameters() if getattr(each, "no_decay", False)}
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    for name, parameter in model.named_parameters():
        if name in staying:
            parameter.no_decay = True  # type: ignore[attr-defined]


@contextmanager
def put_together(model: nn.Module) -> Iterator[None]:
    """Inside, every process has all parameters and may compute alone; all of them must enter.

    Processes that read different numbers of batches would otherwise wait for each other for ever.
    """
    shared = [module for module in model.modules() if isinstance(module, FSDPModule)]
    for module in shared:
        module.set_reshard_after_forward(False, recurse=False)
        module.unshard()
    yield
    for module in shared:
        module.reshard()
        module.set_reshard_after_forward(module is not model, recurse=False)  # torch spares the root, which comes last


def whole(state: Any) -> Any:
    """The same with every tensor in full, on the CPU, for the first process; all of them must ask."""
    if isinstance(state, Mapping):
        return {name: whole(value) for name, value in state.items()}
    if isinstance(state, list):
        return [whole(value) for value in state]
    if isinstance(state, DTensor):
        state = state.full_tensor()  # the others let go of it at once
        return state.cpu() if rank() == 0 else None
    return state.cpu() if isinstance(state, Tensor) else state


def share_of(value: Any, parameter: Tensor) -> Any:
    """This process's part of what belongs to a parameter and is as large as it; anything else stays."""
    if not isinstance(parameter, DTensor) or not isinstance(value, Tensor) or value.shape != parameter.shape:
        return value
    value = value.to(parameter.device, parameter.dtype)
    return distribute_tensor(value, parameter.device_mesh, parameter.placements, src_data_rank=None)


def load_weights(module: nn.Module, weights: Mapping[str, Any]) -> None:
    """Whole weights into a module that may have its share only."""
    here = module.state_dict()
    module.load_state_dict({name: share_of(value, here.get(name, value)) for name, value in weights.items()})


def load_optimiser(optimizer: Optimizer, stored: dict[str, Any]) -> None:
    """The whole state of an optimiser into one that has its share only; torch numbers parameters group by group."""
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    state = {
        number: {name: share_of(value, parameters[number]) for name, value in values.items()}
        for number, values in stored["state"].items()
    }
    optimizer.load_state_dict(stored | {"state": state})


class Sharded(ModelParallelStrategy):
    """Lightning's strategy, with the files of one process: its own ones lose track of several groups of parameters."""

    def __init__(self, processes: int) -> None:
        super().__init__(data_parallel_size=processes, tensor_parallel_size=1, save_distributed_checkpoint=False)

    def lightning_module_state_dict(self) -> dict[str, Any]:
        assert self.lightning_module is not None
        return whole(self.lightning_module.state_dict())

    def optimizer_state(self, optimizer: Optimizer) -> dict[str, Any]:
        return whole(optimizer.state_dict())

    def load_checkpoint(self, checkpoint_path: str | Path, weights_only: bool | None = None) -> dict[str, Any]:
        assert self.lightning_module is not None
        stored = torch.load(checkpoint_path, map_location="cpu", mmap=True, weights_only=True)
        load_weights(self.lightning_module, stored["state_dict"])
        for optimizer, state in zip(self.optimizers, stored["optimizer_states"], strict=True):
            load_optimiser(optimizer, state)
        return stored
