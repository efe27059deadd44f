"""The Lightning module: loss, gradient norm, and one optimizer step over all micro-batches and processes.

    loss = sum of cross-entropies / number of labels in the whole batch, over all micro-batches and processes

so that micro-batches and processes together equal one large batch, even if rows have different numbers of labels.
"""

from typing import Any

import torch
from lightning.pytorch import LightningModule
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR

from hqlt_lab.experiment.cell import Cell
from hqlt_lab.hashing import derive_seed
from hqlt_lab.model.sequence_model import SequenceModel
from hqlt_lab.tasks._base import Task
from hqlt_lab.train.checkpoints.checkpoint_io import attach_metadata, rescale_progress
from hqlt_lab.train.distributed.fsdp import Fsdp2Strategy, shard_model
from hqlt_lab.train.distributed.process_group import all_reduce_sum, get_rank, get_world_size
from hqlt_lab.train.divergence import clip_gradients, compute_gradient_norm, raise_if_not_finite
from hqlt_lab.train.interrupt import StopSignalHandler
from hqlt_lab.train.micro_batches import MicroBatch, MicroBatches
from hqlt_lab.train.optim import build_adamw, lr_factor
from hqlt_lab.train.per_memory_training import drop_frozen_gradients, set_training_step
from hqlt_lab.train.scoring import total_loss
from hqlt_lab.train.trainer_state import TrainerState


class TrainingModule(LightningModule):
    """A model with its task, loss and optimizer."""

    def __init__(self, model: nn.Module, task: Task, cell: Cell, trainer_state: TrainerState) -> None:
        super().__init__()
        self.model, self.task, self.cell, self.trainer_state = model, task, cell, trainer_state
        self.stop_handler = StopSignalHandler()
        self.step_metrics: dict[str, float] = {}  # train/... of the last step

    def configure_model(self) -> None:
        """Convert the model to the training precision and shard it for fsdp2, before a checkpoint is loaded."""
        if isinstance(self.model, FSDPModule):  # Lightning may call this hook more than once
            return
        self.trainer.precision_plugin.convert_module(
            self.model
        )  # otherwise float64 weights would be loaded into float32
        if isinstance(self.trainer.strategy, Fsdp2Strategy):
            assert isinstance(self.model, SequenceModel) and self.device_mesh is not None
            shard_model(self.model, self.device_mesh["data_parallel"])

    def train_dataloader(self) -> MicroBatches:
        return MicroBatches(self.task, self.cell, self.global_step, get_rank(), get_world_size())

    def training_step(self, micro_batch: MicroBatch) -> Tensor:
        if micro_batch.micro_step == 0:
            self.num_labels = all_reduce_sum(micro_batch.num_labels)
            self.batch_loss = torch.zeros((), device=micro_batch.tokens.device)
        loss = self.micro_batch_loss(micro_batch) / self.num_labels
        self.batch_loss = self.batch_loss + loss.detach()
        # Lightning divides by the number of micro-batches and averages over processes
        return loss * (self.cell.train.accumulate * get_world_size())

    def micro_batch_loss(self, micro_batch: MicroBatch) -> Tensor:
        """Return the sum of the cross-entropies of a micro-batch, after seeding from (seed, step, micro_step, rank)."""
        seed_generators(micro_batch.tokens.device, self.cell.seed, micro_batch.step, micro_batch.micro_step, get_rank())
        set_training_step(self.model, self.cell, micro_batch.step)
        return total_loss(self.model, self.task, micro_batch.tokens, micro_batch.labels, self.cell.train.head)

    def configure_gradient_clipping(self, optimizer: Optimizer, *_: Any, **__: Any) -> None:
        """Compute the gradient norm, exchange loss and stop requests, raise if not finite, and clip."""
        norm = compute_gradient_norm(self.model.parameters())
        stop_requested = torch.full_like(self.batch_loss, float(self.stop_handler.stop_requested))
        loss, num_stop_requests = all_reduce_sum(torch.stack([self.batch_loss, stop_requested])).tolist()
        self.stop_handler.stop_agreed = num_stop_requests > 0
        raise_if_not_finite(
            self.global_step, loss, norm.item(), allow_overflow=self.cell.trainer.precision == "16-mixed"
        )
        clip_gradients(self.model.parameters(), self.cell.train.clip, norm)
        drop_frozen_gradients(self.model, self.cell.train, self.global_step)
        lr = optimizer.param_groups[0]["lr"]
        self.step_metrics = {"train/loss": loss, "train/lr": lr, "train/gradient_norm": norm.item()}

    def configure_optimizers(self) -> Any:
        optimizer = build_adamw(self.model, self.cell.train)
        schedule = LambdaLR(optimizer, lambda step: lr_factor(self.cell.train, step))
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        attach_metadata(checkpoint, self.cell, self.trainer_state)

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        rescale_progress(checkpoint, self.cell.train.accumulate)


def seed_generators(device: torch.device, *key: int) -> None:
    """Seed torch's generators from a key such as (seed, step), so that no generator state has to be saved."""
    seed = derive_seed(repr(key))
    # torch.manual_seed would seed every kind of device, which takes milliseconds
    torch.default_generator.manual_seed(seed)
    if device.type != "cpu":
        torch.get_device_module(device).manual_seed(seed)
