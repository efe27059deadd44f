"""Who does the work: what passes from each memory, layer by layer and head by head, on some text.

    seen = probe(model, tokens)
    seen["share"]                                [layers, heads], nan where a layer does not have the quantity

Means over real tokens, with the mixer's a and b (`components/mixers`), in float32 at least:

    gate_fw, gate_kv        a, b                       over tokens and channels
    norm_fw, norm_kv        |fw|, |kv|                 of what each memory answers
    work_fw, work_kv        |a fw|, |b kv|             of what passes; 0 for a memory that is not there
    share                   work_fw / (work_fw + work_kv)
    state_norm              |S|                        Frobenius norm of the fast weights after the text
    state_rank              exp(-sum p log p)          p: singular values of S over their sum (Roy & Vetterli 2007)
    erase, write, keep ...  the update rule's gates by their names; a log_ is taken back: keep = exp(log_keep)
    entropy                 -sum p log p               p: softmax's probabilities, in nats, over the last queries

Looks on through hooks: the model computes what it always does, and is afterwards as it was before.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from hqlt_lab.components.mixers._base import gives_weights
from hqlt_lab.model.entropy import attention_entropy
from hqlt_lab.model.inside import bare, eagerly, evaluating, hooked
from hqlt_lab.model.layout import Layout, Places
from hqlt_lab.model.memory import HybridMemory
from hqlt_lab.model.state import MemoryState
from hqlt_lab.ops.steps import no_autocast, precise

MEMORIES = ("fw", "kv")
Found = dict[str, Tensor]  # quantity -> [H]


@dataclass(frozen=True)
class Probes:
    """What was seen: for each layer a mapping from a quantity to its number in each head."""

    layers: Sequence[Mapping[str, list[float]]]

    @property
    def names(self) -> list[str]:
        """The quantities that any layer has."""
        return list(dict.fromkeys(name for layer in self.layers for name in layer))

    def __getitem__(self, name: str) -> Tensor:
        """[layers, heads]; nan in a layer that does not have it."""
        if name not in self.names:
            raise KeyError(f"No layer has {name!r}. Seen: {', '.join(self.names)}.")
        heads = len(next(layer[name] for layer in self.layers if name in layer))
        return torch.tensor([layer.get(name, [torch.nan] * heads) for layer in self.layers])


@torch.no_grad()
def probe(model: nn.Module, tokens: Tensor, layout: Layout | None = None) -> Probes:
    """Let the model read tokens [B, T] (or vectors [B, T, width]) and look on; a few rows will do."""
    inner = bare(model)
    looks = [Look(memory) for memory in inner.memories]
    with eagerly(model), evaluating(inner), hooked(*(put for look in looks for put in look.hooks())):
        inner(tokens, layout=layout)
    return Probes([look.found for look in looks])


class Look:
    """What is seen of one layer."""

    def __init__(self, memory: HybridMemory) -> None:
        self.memory = memory
        self.fw: Tensor | None = None  # what the mixer got
        self.kv: Tensor | None = None
        self.found: dict[str, list[float]] = {}

    def hooks(self) -> Iterator[Callable[[], Any]]:
        yield partial(self.memory.mixer.register_forward_hook, self.at_mixer)
        yield partial(self.memory.register_forward_hook, self.at_memory)

    def at_mixer(self, mixer: nn.Module, given: tuple[Any, ...], answer: Tensor) -> None:
        _, self.fw, self.kv = given

    def at_memory(self, memory: HybridMemory, given: tuple[Any, ...], answer: tuple[Tensor, MemoryState]) -> None:
        """The layer has answered: all is known, and the answers may be let go."""
        (x, _, places), (_, state) = given, answer
        real = real_tokens(x, places)
        found = of_mixer(memory, x, self.fw, self.kv, real)
        if memory.update_rule is not None:
            assert state.fw is not None
            values = memory.to_q.out_features // memory.heads  # behind them a rule may keep its normaliser
            found |= of_state(state.fw[..., :values], real.any(1)) | of_gates(memory, x, real)
        if memory.positions is not None:
            found["entropy"] = attention_entropy(memory, x, places)
        numbers = torch.stack(list(found.values())).tolist()  # at once: each waits for the device
        self.fw, self.kv, self.found = None, None, dict(zip(found, numbers, strict=True))


def of_mixer(memory: HybridMemory, x: Tensor, fw: Tensor | None, kv: Tensor | None, real: Tensor) -> Found:
    """Gates, and norms of what is answered and of what passes."""
    weights = memory.mixer.weights(x) if gives_weights(memory.mixer) else (None, None)
    silent = torch.zeros_like(next(answer for answer in (fw, kv) if answer is not None))
    found: Found = {}
    with no_autocast(x):
        for name, weight, answer in zip(MEMORIES, weights, (fw, kv), strict=True):
            if answer is not None:
                found[f"norm_{name}"] = mean(precise(answer).norm(dim=-1), real)
            if weight is not None:
                known = silent if answer is None else answer
                weight = precise(torch.as_tensor(weight, device=x.device)).expand_as(known)
                found[f"gate_{name}"] = mean(weight.mean(-1), real)
                found[f"work_{name}"] = mean((weight * known).norm(dim=-1), real)
        if "work_fw" in found:
            found["share"] = found["work_fw"] / (found["work_fw"] + found["work_kv"])
    return found


def of_state(state: Tensor, rows: Tensor) -> Found:
    """Norm and effective rank of the fast weights [B, H, K, V], over the rows that read anything."""
    state = precise(state)[rows]
    finite = state.isfinite().all(-1, keepdim=True).all(-2, keepdim=True)  # the decomposition refuses others
    values = torch.linalg.svdvals(state.where(finite, 0.0))  # [B, H, min(K, V)]
    p = values / values.sum(-1, keepdim=True)  # nan for a memory that is empty, which has no rank
    return {
        "state_norm": state.norm(dim=(-2, -1)).mean(0),
        "state_rank": torch.special.entr(p).sum(-1).exp().nanmean(0),
    }


def of_gates(memory: HybridMemory, x: Tensor, real: Tensor) -> Found:
    """The mean of each gate that the rule computes; those that are constants of it are none."""
    rule: Any = memory.update_rule
    gates = rule.gates(x)
    real = real.repeat_interleave(rule.writes, 1)
    with no_autocast(x):
        given = {name: precise(gate) for name, gate in zip(gates._fields, gates, strict=True) if gate is not None}
        return {
            name.removeprefix("log_"): mean(gate.exp() if name.startswith("log_") else gate, real)
            for name, gate in given.items()
        }


def real_tokens(x: Tensor, places: Places) -> Tensor:
    """[B, T]: whether there is a token; a layer has its padding at the end."""
    if places.length is None:
        return torch.ones(x.shape[:2], dtype=torch.bool, device=x.device)
    return torch.arange(x.shape[1], device=x.device) < places.length[:, None]


def mean(u: Tensor, real: Tensor) -> Tensor:
    """Over the real tokens of u [B, H, T]: [H]."""
    return u.masked_fill(~real[:, None], 0.0).sum((0, 2)) / real.sum()
