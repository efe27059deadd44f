"""The step: loss, gradient norm, clipping.

    loss = sum of cross-entropies / number of labels in the whole batch, over all pieces and processes

so that pieces and processes add up to one big batch, also where rows have different numbers of labels.
"""

import hashlib
from typing import Any

import torch
from lightning.pytorch import LightningModule
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor
from torch.nn.utils import clip_grads_with_norm_, get_total_norm
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR

from hqlt_lab.experiment.cell import Cell
from hqlt_lab.model.sequence_model import SequenceModel
from hqlt_lab.tasks._base import Task
from hqlt_lab.train.batches import Piece, Pieces
from hqlt_lab.train.checkpoints import recount, sign
from hqlt_lab.train.guard import guard
from hqlt_lab.train.interrupt import Interruption
from hqlt_lab.train.optimiser import adamw
from hqlt_lab.train.progress import Progress
from hqlt_lab.train.ranks import rank, summed, world
from hqlt_lab.train.schedule import factor
from hqlt_lab.train.score import total_loss
from hqlt_lab.train.sharding import Sharded, share_out


class Learner(LightningModule):
    """A model that learns a task."""

    def __init__(self, model: nn.Module, task: Task, cell: Cell, progress: Progress) -> None:
        super().__init__()
        self.model, self.task, self.cell, self.progress = model, task, cell, progress
        self.interruption = Interruption()
        self.curves: dict[str, float] = {}  # of the last step

    def configure_model(self) -> None:
        """In its precision, before a checkpoint is read, and shared out where that is how processes work together."""
        if isinstance(self.model, FSDPModule):  # Lightning may ask more than once
            return
        self.trainer.precision_plugin.convert_module(self.model)  # or weights of 64 bits would be read into 32
        if isinstance(self.trainer.strategy, Sharded):
            assert isinstance(self.model, SequenceModel) and self.device_mesh is not None
            share_out(self.model, self.device_mesh["data_parallel"])

    def train_dataloader(self) -> Pieces:
        return Pieces(self.task, self.cell, self.global_step, rank(), world())

    def training_step(self, piece: Piece) -> Tensor:
        if piece.number == 0:
            self.due = summed(piece.due)
            self.loss = torch.zeros((), device=piece.tokens.device)
        loss = self.total(piece) / self.due
        self.loss = self.loss + loss.detach()
        # Lightning divides by the pieces, and averages over the processes
        return loss * (self.cell.train.accumulate * world())

    def total(self, piece: Piece) -> Tensor:
        """The sum of a piece's cross-entropies, with the random numbers of its place."""
        reseed(piece.tokens.device, self.cell.seed, piece.step, piece.number, rank())
        return total_loss(self.model, self.task, piece.tokens, piece.labels)

    def configure_gradient_clipping(self, optimizer: Optimizer, *_: Any, **__: Any) -> None:
        """Measure, agree, complain, clip: before the weights change."""
        norm = get_total_norm([each.grad for each in self.model.parameters() if each.grad is not None])
        norm = norm.full_tensor() if isinstance(norm, DTensor) else norm
        asked = torch.full_like(self.loss, float(self.interruption.asked))
        loss, anyone_asked = summed(torch.stack([self.loss, asked])).tolist()
        self.interruption.agreed = anyone_asked > 0
        guard(self.global_step, loss, norm.item(), overflow_is_normal=self.cell.trainer.precision == "16-mixed")
        if self.cell.train.clip is not None:
            clip_grads_with_norm_(self.model.parameters(), self.cell.train.clip, norm)
        rate = optimizer.param_groups[0]["lr"]
        self.curves = {"train/loss": loss, "train/lr": rate, "train/gradient_norm": norm.item()}

    def configure_optimizers(self) -> Any:
        optimizer = adamw(self.model, self.cell.train)
        schedule = LambdaLR(optimizer, lambda step: factor(self.cell.train, step))
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        sign(checkpoint, self.cell, self.progress)

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        recount(checkpoint, self.cell.train.accumulate)


def reseed(device: torch.device, *place: int) -> None:
    """Make torch's random numbers a function of this place, so that none have to be saved."""
    digest = hashlib.sha256(repr(place).encode()).digest()
    seed = int.from_bytes(digest[:8], "little") >> 1
    # torch.manual_seed seeds every kind of device there might be, which takes milliseconds
    torch.default_generator.manual_seed(seed)
    if device.type != "cpu":
        torch.get_device_module(device).manual_seed(seed)
