"""Determinism check: compute the first training step twice and compare the results bitwise.

    compared        loss and gradients of the first micro-batch
    computed with   the kernels, precision, device and random numbers of training

If they differ, some operation of this model is not deterministic here, and the run is not reproducible.  If they are
equal, no difference was seen: additions in a random order may agree by chance.

The check costs two forward and backward passes and changes nothing.  Gradients are returned instead of accumulated, so
that parameters have none afterwards and no process communicates; random number generators and buffers are restored.
With sharded parameters (fsdp2), gradients are reduced and scattered as in training, so that the communication is
checked too.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch
from lightning.pytorch import Trainer
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule

from hqlt_lab.experiment.cell import Cell
from hqlt_lab.rundir.diagnostics import DeterminismCheck
from hqlt_lab.train.distributed.process_group import all_reduce_sum
from hqlt_lab.train.lightning_module import TrainingModule
from hqlt_lab.train.micro_batches import MicroBatch
from hqlt_lab.train.trainer_state import TrainerState


def compare_first_step(trainer: Trainer, module: TrainingModule) -> DeterminismCheck:
    """Compare two computations of the first step.  Collective: every process must call it, and all get the result."""
    micro_batch = trainer.strategy.batch_to_device(next(iter(module.train_dataloader())))
    differs = find_differences(lambda: compute_first_step(trainer, module, micro_batch))
    total = all_reduce_sum(torch.tensor(float(len(differs)), device=micro_batch.tokens.device))
    return DeterminismCheck(total.item() == 0, differs)


def find_differences(compute: Callable[[], Mapping[str, Tensor]]) -> list[str]:
    """Compute named tensors twice, and return the names of those that are not bitwise equal."""
    first, second = compute(), compute()
    return [name for name in first if not is_bitwise_equal(first[name], second[name])]


def record_determinism_check(
    check: DeterminismCheck, cell: Cell, trainer_state: TrainerState, folder: Path | None
) -> None:
    """Write the result into the folder, if given, and note a warning if determinism was requested and failed."""
    if folder is not None:
        check.write(folder)
    if cell.trainer.deterministic and not check.repeatable:
        trainer_state.notes.append(check.warning_message)


def compute_first_step(trainer: Trainer, module: TrainingModule, micro_batch: MicroBatch) -> dict[str, Tensor]:
    """Return the loss and the gradients of the first step, by parameter name."""
    named = {name: parameter for name, parameter in module.model.named_parameters() if parameter.requires_grad}
    with preserve_rng_and_buffers(module.model, micro_batch.tokens.device):
        with trainer.precision_plugin.train_step_context():
            loss = module.micro_batch_loss(micro_batch) / micro_batch.num_labels
        # with float16 the loss is scaled, because small gradients would underflow
        scaled = trainer.precision_plugin.pre_backward(loss, module)
        grads = parameter_gradients(scaled, list(named.values()), isinstance(module.model, FSDPModule))
    return {"loss": loss.detach(), **dict(zip(named, grads, strict=True))}


def parameter_gradients(loss: Tensor, parameters: list[nn.Parameter], is_sharded: bool) -> Sequence[Tensor]:
    """Return the gradient of each parameter; with sharded parameters, that of the local shard.

    Sharded parameters need `backward`, because `torch.autograd.grad` does not reduce-scatter.
    """
    if not is_sharded:
        return torch.autograd.grad(loss, parameters, allow_unused=True, materialize_grads=True)
    loss.backward()
    grads = [
        torch.zeros(()) if parameter.grad is None else parameter.grad.to_local()  # type: ignore[attr-defined]
        for parameter in parameters
    ]
    for parameter in parameters:
        parameter.grad = None
    return grads


@contextmanager
def preserve_rng_and_buffers(model: nn.Module, device: torch.device) -> Iterator[None]:
    """Restore random number generators and buffers at the end of the context."""
    buffers = [
        (module, name, buffer, buffer.clone())
        for module in model.modules()
        for name, buffer in module.named_buffers(recurse=False)
    ]
    with torch.random.fork_rng([] if device.type == "cpu" else [device], device_type=device.type):
        yield
    with torch.no_grad():
        for module, name, buffer, before in buffers:
            setattr(module, name, buffer.copy_(before))  # a component may change or replace it


def is_bitwise_equal(first: Tensor, second: Tensor) -> bool:
    """Return whether two tensors have the same bits: NaN equals NaN, and 0 differs from -0."""
    return torch.equal(*(x.contiguous().flatten().view(torch.uint8) for x in (first, second)))
