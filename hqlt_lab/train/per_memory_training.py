"""How the memories are trained: the step at which each starts, its learning rate, and the softmax window of each step.

    train.memories: {kv: {start_step: 500}}     before step 500 the output of softmax is 0, in training and evaluation,
                                                and the parameters that only softmax has are frozen
    train.window: {low: 8, high: 64}            the option `window` of the timings is drawn from (seed, step) for each
                                                training step; evaluation uses the declared one

Both are functions of the number of optimizer steps that are done (for an agent, of environment steps), which is stored
with all weights.  So a resumed run and weights that are loaded later behave as in the run.
"""

from collections.abc import Iterator

from torch import nn

from hqlt_lab.experiment.cell import Cell
from hqlt_lab.experiment.run_settings import MEMORIES, TrainConfig, WindowRange
from hqlt_lab.hashing import derive_seed
from hqlt_lab.model.hybrid_memory import HybridMemory
from hqlt_lab.model.window_override import set_windows


def set_training_step(model: nn.Module, cell: Cell, step: int) -> None:
    """Prepare a model, or an agent, for a training step."""
    zero_waiting_memories(model, cell.train, step)
    if cell.train.window_range is not None:
        set_windows(model, draw_window(cell.train.window_range, cell.seed, step))


def set_evaluation_step(model: nn.Module, train: TrainConfig, step: int) -> None:
    """Prepare a model, or an agent, for an evaluation of the weights after that many steps."""
    zero_waiting_memories(model, train, step)
    if train.window_range is not None:
        set_windows(model, None)


def zero_waiting_memories(model: nn.Module, train: TrainConfig, step: int) -> None:
    """Silence the memories whose training has not started at this step."""
    silent = list_frozen_memories(train, step)
    for memory in iter_memories(model):
        memory.silent = silent


def list_frozen_memories(train: TrainConfig, step: int) -> tuple[str, ...]:
    """Return the memories whose training has not started at this step."""
    return tuple(name for name in MEMORIES if step < train.memory(name).start_step)


def drop_frozen_gradients(model: nn.Module, train: TrainConfig, step: int) -> None:
    """Remove the gradients of frozen parameters, so that the optimizer changes neither them nor their averages."""
    for name in list_frozen_memories(train, step):
        for parameter in own_parameters(model, name):
            parameter.grad = None


def own_parameters(model: nn.Module, name: str) -> Iterator[nn.Parameter]:
    """Yield the parameters that only one of the memories has, "fw" or "kv", in all layers."""
    for memory in iter_memories(model):
        for component in memory.own_components(name):
            yield from component.parameters()


def iter_memories(model: nn.Module) -> Iterator[HybridMemory]:
    """Yield the memories of all layers of a model or an agent."""
    return (module for module in model.modules() if isinstance(module, HybridMemory))


def lr_scales(model: nn.Module, train: TrainConfig) -> dict[int, float]:
    """Return the learning-rate scale of each parameter whose scale is not 1, by the parameter's id."""
    scales = {name: train.memory(name).lr_scale for name in MEMORIES}
    return {
        id(parameter): scale
        for name, scale in scales.items()
        if scale != 1
        for parameter in own_parameters(model, name)
    }


def draw_window(window_range: WindowRange, seed: int, step: int) -> int:
    """Return the window of a training step, uniform from low to high."""
    number = derive_seed(repr(("window", seed, step)))
    return window_range.low + number % (window_range.high - window_range.low + 1)
