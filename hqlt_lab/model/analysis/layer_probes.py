"""Probes: how much each memory contributes, per layer and head, measured on some sequences.

    probes = probe(model, tokens)
    probes["share"]                              [layers, heads], nan for layers without the quantity

Means over valid tokens without meta tokens, at least in float32; a and b are the mixer's weights (`components/mixers`):

    gate_fw, gate_kv        a, b                       over tokens and channels
    norm_fw, norm_kv        |fw|, |kv|                 of the output of each memory, as the mixer gets it
    work_fw, work_kv        |a fw|, |b kv|             of what the mixer adds up; 0 for a memory that is not built
    share                   work_fw / (work_fw + work_kv)
    state_norm              |S|                        Frobenius norm of the fast weights after the sequence
    state_rank              exp(-sum p log p)          p: singular values of S over their sum (Roy & Vetterli 2007)
    erase, write, keep ...  the gates of the update rule by name; those with log_ as exp: keep = exp(log_keep);
                            gates with channels by their mean over channels
    forget                  f                          the forget gates of softmax, if it has any
    entropy                 -sum p log p               p: softmax probabilities, in nats, over the last queries

A quantity has a value for each head of the mixer's output; norms, states, gates and entropies for each head of their
memory, of which there may be fewer or more.

Probes use temporary hooks: they change neither the computation nor the model.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn

from hqlt_lab.components.attention._base import Attention
from hqlt_lab.components.mixers._base import has_contributions, has_weights
from hqlt_lab.components.update_rules._base import UpdateRule
from hqlt_lab.model.analysis.attention_entropy import attention_entropy
from hqlt_lab.model.analysis.context_managers import eval_mode, force_eager, temporary_hooks, unwrap_compiled
from hqlt_lab.model.batch_layout import Layout, TokenPositions
from hqlt_lab.model.hybrid_memory import HybridMemory
from hqlt_lab.model.state import MemoryState
from hqlt_lab.ops.gates import named_gates
from hqlt_lab.ops.precision import at_least_float32, disable_autocast

MEMORIES = ("fw", "kv")
Quantities = dict[str, Tensor]  # quantity -> [H]


@dataclass(frozen=True)
class Probes:
    """For each layer, a mapping from a quantity to its value in each head."""

    layers: Sequence[Mapping[str, list[float]]]

    @property
    def names(self) -> list[str]:
        """The quantities that at least one layer has."""
        return list(dict.fromkeys(name for layer in self.layers for name in layer))

    def __getitem__(self, name: str) -> Tensor:
        """Return a quantity [layers, heads], with nan for layers and heads that do not have it."""
        if name not in self.names:
            raise KeyError(f"No layer has {name!r}. Recorded: {', '.join(self.names)}.")
        heads = max(len(layer.get(name, [])) for layer in self.layers)
        rows = [layer.get(name, []) for layer in self.layers]
        return torch.tensor([[*row, *[torch.nan] * (heads - len(row))] for row in rows])


@torch.no_grad()
def probe(model: nn.Module, tokens: Tensor, layout: Layout | None = None) -> Probes:
    """Run the model on tokens [B, T] (or vectors [B, T, width]) and measure; a few rows are enough."""
    inner = unwrap_compiled(model)
    layer_probes = [
        None if memory is None else LayerProbe(memory, inner.config.meta_tokens) for memory in inner.layer_memories
    ]
    with (
        force_eager(model),
        eval_mode(inner),
        temporary_hooks(*(register for layer in layer_probes if layer for register in layer.hook_registrations())),
    ):
        inner(tokens, layout=layout)
    return Probes([layer.quantities if layer else {} for layer in layer_probes])


class LayerProbe:
    """Measures the quantities of one layer in its forward hooks."""

    def __init__(self, memory: HybridMemory, meta_tokens: int) -> None:
        self.memory, self.meta_tokens = memory, meta_tokens
        self.fw: Tensor | None = None  # inputs of the mixer
        self.kv: Tensor | None = None
        self.quantities: dict[str, list[float]] = {}

    def hook_registrations(self) -> Iterator[Callable[[], Any]]:
        yield partial(self.memory.mixer.register_forward_hook, self.on_mixer_output)
        yield partial(self.memory.register_forward_hook, self.on_memory_output)

    def on_mixer_output(self, mixer: nn.Module, inputs: tuple[Any, ...], output: Tensor) -> None:
        _, self.fw, self.kv = inputs

    def on_memory_output(
        self, memory: HybridMemory, inputs: tuple[Any, ...], output: tuple[Tensor, MemoryState]
    ) -> None:
        """Compute the quantities and release the inputs of the mixer."""
        (x, _, token_positions), (_, state) = inputs, output
        valid_mask = valid_token_mask(x, token_positions) & (token_positions.position >= self.meta_tokens)
        quantities = mixer_quantities(memory, x, self.fw, self.kv, valid_mask)
        if memory.update_rule is not None:
            assert state.fw is not None
            value_dim = memory.sizes["fw"].value_dim  # a rule may store its normalizer behind the values
            quantities |= state_quantities(state.fw[..., :value_dim], valid_mask.any(1))
            quantities |= gate_quantities(memory.update_rule, x, valid_mask)
        if memory.attention is not None:
            quantities |= forget_quantities(memory.attention, x, valid_mask)
            quantities["entropy"] = attention_entropy(memory, x, token_positions, valid_mask)
        values = iter(torch.cat(list(quantities.values())).tolist())  # one device synchronization for all
        self.fw, self.kv = None, None
        self.quantities = {name: list(islice(values, len(heads))) for name, heads in quantities.items()}


def mixer_quantities(
    memory: HybridMemory, x: Tensor, fw: Tensor | None, kv: Tensor | None, valid_mask: Tensor
) -> Quantities:
    """Return the mixer's weights, and the norms of the memories' outputs before and after weighting."""
    weights = memory.mixer.weights(x) if has_weights(memory.mixer) else (None, None)
    zeros = torch.zeros_like(next(output for output in (fw, kv) if output is not None))
    quantities: Quantities = {}
    if has_contributions(memory.mixer) and not has_weights(memory.mixer):
        outputs: dict[str, Any] = {"fw": fw, "kv": kv}  # None for a memory that the mixer does not read
        for name, summand in zip(MEMORIES, memory.mixer.contributions(x, **outputs), strict=True):
            quantities[f"work_{name}"] = masked_mean(at_least_float32(summand).norm(dim=-1), valid_mask)
    with disable_autocast(x):
        for name, weight, output in zip(MEMORIES, weights, (fw, kv), strict=True):
            if output is not None:
                quantities[f"norm_{name}"] = masked_mean(at_least_float32(output).norm(dim=-1), valid_mask)
            if weight is not None:
                output_or_zeros = zeros if output is None else output
                weight = at_least_float32(torch.as_tensor(weight, device=x.device)).expand_as(output_or_zeros)
                quantities[f"gate_{name}"] = masked_mean(weight.mean(-1), valid_mask)
                quantities[f"work_{name}"] = masked_mean((weight * output_or_zeros).norm(dim=-1), valid_mask)
        if "work_fw" in quantities:
            quantities["share"] = quantities["work_fw"] / (quantities["work_fw"] + quantities["work_kv"])
    return quantities


def state_quantities(state: Tensor, rows: Tensor) -> Quantities:
    """Return norm and effective rank of the fast weights [B, H, K, V], over the rows that have tokens."""
    state = at_least_float32(state)[rows]
    finite = state.isfinite().all(-1, keepdim=True).all(-2, keepdim=True)  # svdvals raises for others
    values = torch.linalg.svdvals(state.where(finite, 0.0))  # [B, H, min(K, V)]
    p = values / values.sum(-1, keepdim=True)  # nan for an empty memory, which has no rank
    return {
        "state_norm": state.norm(dim=(-2, -1)).mean(0),
        "state_rank": torch.special.entr(p).sum(-1).exp().nanmean(0),
    }


def gate_quantities(rule: UpdateRule, x: Tensor, valid_mask: Tensor) -> Quantities:
    """Return the mean of each gate that the rule computes, over tokens and over the gate's own dimensions.

    Constant gates, which are None, are left out.
    """
    gates = named_gates(rule.gates(x))
    valid_mask = valid_mask.repeat_interleave(rule.writes, 1)
    with disable_autocast(x):
        gates = {name: at_least_float32(gate) for name, gate in gates.items()}
        return {
            name.removeprefix("log_"): masked_mean(
                channel_mean(gate.exp() if name.startswith("log_") else gate), valid_mask
            )
            for name, gate in gates.items()
        }


def forget_quantities(attention: Attention, x: Tensor, valid_mask: Tensor) -> Quantities:
    """Return the mean forget gate of softmax over tokens, if it has one."""
    log_forget = attention.log_forget(x)
    return {} if log_forget is None else {"forget": masked_mean(at_least_float32(log_forget).exp(), valid_mask)}


def channel_mean(gate: Tensor) -> Tensor:
    """Return the mean of a gate [B, H, T, ...] over the dimensions after the third: [B, H, T]."""
    return gate if gate.dim() == 3 else gate.flatten(3).mean(-1)


def valid_token_mask(x: Tensor, token_positions: TokenPositions) -> Tensor:
    """Return [B, T]: True for tokens, False for padding, which is at the end of each row."""
    if token_positions.row_length is None:
        return torch.ones(x.shape[:2], dtype=torch.bool, device=x.device)
    return torch.arange(x.shape[1], device=x.device) < token_positions.row_length[:, None]


def masked_mean(u: Tensor, valid_mask: Tensor) -> Tensor:
    """Return the mean of u [B, H, T] over the valid tokens: [H]."""
    return u.masked_fill(~valid_mask[:, None], 0.0).sum((0, 2)) / valid_mask.sum()
