"""Our model as a causal language model of transformers, with identical outputs.

    import hqlt_lab as lab
    from transformers import AutoModelForCausalLM, AutoTokenizer

    lab.register_hugging_face()
    model = AutoModelForCausalLM.from_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model.generate(**tokenizer(["Once upon"], return_tensors="pt"), max_new_tokens=20)

Padding is allowed at any position: tokens where `attention_mask` is 0 are ignored, and their logits are 0. `generate`
moves padding at the end of a row to its front, because transformers continues from the logits of the last position.
Without an `attention_mask` it finds that padding by the padding token, and raises if this token also ends a text.
`StateCache` carries our recurrent state as the `past_key_values` of transformers.
"""

from typing import Any

import torch
from torch import Tensor, nn
from transformers import GenerationMixin, PreTrainedModel
from transformers.modeling_outputs import CausalLMOutputWithPast
from transformers.utils import can_return_tuple

from hqlt_lab.errors import StoreError, format_names
from hqlt_lab.hugging_face.configuration_hqlt import HqltConfig
from hqlt_lab.model.batch_layout import Layout
from hqlt_lab.model.initialize import initialize_parameters
from hqlt_lab.model.sequence_model import SequenceModel
from hqlt_lab.model.state import State, select_rows


class StateCache:
    """The recurrent state of a batch behind the interface of a transformers cache; empty before the first token."""

    is_compileable = False
    is_croppable = False  # writes to the fast weights cannot be undone

    def __init__(self) -> None:
        self.state: State | None = None
        self.seen_tokens = 0  # includes padding, as the length of the attention mask does

    def update(self, state: State, num_tokens: int) -> None:
        self.state, self.seen_tokens = state, self.seen_tokens + num_tokens

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return self.seen_tokens

    def reorder_cache(self, beam_idx: Tensor) -> None:
        """Select the rows with which beam search continues."""
        assert self.state is not None
        self.state = select_rows(self.state, beam_idx.to(self.state[0].document_length.device))


class HqltForCausalLM(PreTrainedModel, GenerationMixin):
    config_class = HqltConfig
    base_model_prefix = "model"
    _tied_weights_keys = {"model.head.weight": "model.embed.weight"}  # noqa: RUF012  # not a ClassVar in transformers either
    _is_stateful = True  # the state cannot be cropped to an earlier token

    def __init__(self, config: HqltConfig) -> None:
        super().__init__(config)
        self.model = SequenceModel(config.sequence_model_config)
        if self.device.type != "meta":  # on meta, the weights are loaded from a file
            initialize_parameters(self.model, self.model.config, seed=0)
        self.post_init()

    @classmethod
    def from_pretrained(cls, *args: Any, output_loading_info: bool = False, **options: Any) -> Any:
        """Load a model as `PreTrainedModel` does, but raise if weights are missing or unexpected instead of warning."""
        loaded: Any = super().from_pretrained(*args, output_loading_info=True, **options)
        model, info = loaded
        mismatches = {kind: sorted(info[f"{kind}_keys"]) for kind in ("missing", "unexpected")}
        if any(mismatches.values()):
            summary = "; ".join(f"{kind}: {format_names(names[:3])}" for kind, names in mismatches.items() if names)
            raise StoreError(f"{args[0]}: the weights do not match config.json ({summary}).")
        return (model, info) if output_loading_info else model

    def _init_weights(self, module: nn.Module) -> None:
        """Do nothing: `__init__` has initialized all weights, or they are all in the file."""

    def get_input_embeddings(self) -> nn.Module:
        return self.model.embed

    def get_output_embeddings(self) -> nn.Module:
        return self.model.head

    def generate(self, inputs: Tensor | None = None, *args: Any, **kwargs: Any) -> Any:
        """Generate as `GenerationMixin` does. Rows with padding at their end get the same tokens as unpadded ones."""
        generate: Any = super().generate  # type: ignore[misc]  # its self argument has a type that is private
        mask, cache = kwargs.get("attention_mask"), kwargs.get("past_key_values")
        prompt = kwargs.get("input_ids") if inputs is None else inputs
        if mask is None and prompt is not None:
            config = kwargs.get("generation_config") or (args[0] if args else None) or self.generation_config
            pad, eos = (kwargs.get(name, getattr(config, name)) for name in ("pad_token_id", "eos_token_id"))
            mask = mask_trailing_padding(prompt, pad, eos, cache.get_seq_length() if cache is not None else 0)
            kwargs |= {} if mask is None else {"attention_mask": mask}
        if mask is None or mask.dim() != 2 or bool(mask[:, -1].all()):
            return generate(inputs, *args, **kwargs)
        num_new = mask.shape[1] - (cache.get_seq_length() if cache is not None else 0)
        trailing = mask[:, -num_new:].flip(1).bool().int().argmax(1)  # [B] length of the padding at the end
        if inputs is not None:
            inputs = move_to_front(inputs, trailing, num_new)
        for name in ("attention_mask", "input_ids", "inputs_embeds"):
            if kwargs.get(name) is not None:
                kwargs[name] = move_to_front(kwargs[name], trailing, num_new)
        output = generate(inputs, *args, **kwargs)
        if prompt is not None:  # the result begins with the prompt as it was passed
            sequences = output if isinstance(output, Tensor) else output.sequences
            sequences[:, : prompt.shape[1]] = prompt.repeat_interleave(len(sequences) // len(prompt), 0)
        return output

    def _prepare_cache_for_generation(  # type: ignore[override]  # annotated as bool in transformers, but returns None
        self, generation_config: Any, model_kwargs: dict[str, Any], *args: Any, **kwargs: Any
    ) -> None:
        mask = model_kwargs.get("attention_mask")
        if mask is not None and mask.dim() == 2 and not bool(mask[:, -1].all()):
            row = int(mask[:, -1].bool().int().argmin())
            raise ValueError(
                f"attention_mask: row {row} ends with padding, so there is no token to continue from. Pass the "
                "attention mask with the prompts, with at least one token in each row."
            )
        if generation_config.use_cache is not False and model_kwargs.get("past_key_values") is None:
            model_kwargs["past_key_values"] = StateCache()

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        past_key_values: StateCache | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        use_cache: bool | None = None,
        logits_to_keep: int | Tensor = 0,
        **loss_kwargs: Any,
    ) -> CausalLMOutputWithPast:
        """Return logits [B, T, vocabulary] of all or of the last `logits_to_keep` tokens; labels are shifted here."""
        assert self.model.embed is not None and self.model.head is not None
        x = self.model.embed(input_ids) if inputs_embeds is None else inputs_embeds
        state = past_key_values.state if past_key_values is not None else None
        x, state = self.model.encode(x, state, layout_from_mask(attention_mask, x))
        positions = slice(-logits_to_keep, None) if isinstance(logits_to_keep, int) else logits_to_keep
        logits = self.model.head(x[:, positions])
        if past_key_values is None and (
            self.config.use_cache and not self.training if use_cache is None else use_cache
        ):
            past_key_values = StateCache()
        if past_key_values is not None:
            past_key_values.update(state, x.shape[1])
        loss = None
        if labels is not None:
            loss = self.loss_function(logits, labels, vocab_size=self.config.vocab_size, **loss_kwargs)
        cache: Any = past_key_values  # not a transformers Cache, but has all methods of one that are used
        return CausalLMOutputWithPast(loss=loss, logits=logits, past_key_values=cache)


def mask_trailing_padding(prompt: Tensor, pad: Any, eos: Any, num_cached: int) -> Tensor | None:
    """Return the attention mask of a prompt [B, T] without one; None if no row ends with padding.

    Raise ValueError if the padding token also ends a text: rows with different numbers of it at their end may be padded
    or not, and the continuation depends on it.
    """
    if pad is None or prompt.dim() != 2 or prompt.is_floating_point():
        return None
    is_padding = prompt == int(pad)
    trailing = is_padding[:, num_cached:].flip(1).int().cumprod(1).sum(1)  # [B]
    if int(pad) not in torch.as_tensor([] if eos is None else eos).flatten().tolist():
        return (~is_padding).long() if bool(trailing.any()) else None
    if len(trailing.unique()) > 1:
        raise ValueError(
            f"attention_mask: some rows end with more tokens {int(pad)} than others. This token is both padding and "
            "end of text, so the length of a row is unknown. Pass the attention mask with the prompts."
        )
    return None


def move_to_front(values: Tensor, num_trailing: Tensor, num_new: int) -> Tensor:
    """Move the last `num_trailing` [B] values of each row of [B, T, ...] to the front of its last `num_new` values."""
    earlier_values, new_values = values[:, :-num_new], values[:, -num_new:]
    index = torch.arange(new_values.shape[1], device=values.device) - num_trailing.to(values.device)[:, None]
    rows = torch.arange(len(new_values), device=values.device)[:, None]
    return torch.cat([earlier_values, new_values[rows, index % new_values.shape[1]]], 1)


def layout_from_mask(attention_mask: Tensor | None, x: Tensor) -> Layout | None:
    """Return the layout of x [B, T, width]; the mask may cover all tokens so far.  None without padding."""
    if attention_mask is None:
        return None
    if attention_mask.dim() != 2:
        raise ValueError(f"attention_mask: [B, T] is needed, got {list(attention_mask.shape)}.")
    valid_mask = attention_mask[:, -x.shape[1] :].to(x.device, torch.bool)
    return None if bool(valid_mask.all()) else Layout(valid_mask)
