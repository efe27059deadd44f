"""Our model as one of transformers': the same numbers, behind their interface.

    import hqlt_lab
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model.generate(**tokenizer(["Once upon"], return_tensors="pt"), max_new_tokens=20)

Padding may stand anywhere: where `attention_mask` is 0 nothing is read, and the logits are 0.
"""

from typing import Any

import torch
from torch import Tensor, nn
from transformers import GenerationMixin, PreTrainedModel
from transformers.modeling_outputs import CausalLMOutputWithPast
from transformers.utils import can_return_tuple

from hqlt_lab.errors import StoreError, listed
from hqlt_lab.hugging_face.cache import StateCache
from hqlt_lab.hugging_face.config import HqltConfig
from hqlt_lab.model.initialise import initialise
from hqlt_lab.model.layout import Layout
from hqlt_lab.model.sequence_model import SequenceModel


class HqltForCausalLM(PreTrainedModel, GenerationMixin):
    config_class = HqltConfig
    base_model_prefix = "model"
    _tied_weights_keys = {"model.head.weight": "model.embed.weight"}  # noqa: RUF012  # theirs is no ClassVar
    _is_stateful = True  # no way back to an earlier token

    def __init__(self, config: HqltConfig) -> None:
        super().__init__(config)
        self.model = SequenceModel(config.model)
        if self.device.type != "meta":  # else the weights come from a file
            initialise(self.model, self.model.config, seed=0)
        self.post_init()

    @classmethod
    def from_pretrained(cls, *given: Any, output_loading_info: bool = False, **options: Any) -> Any:
        """As theirs, but a weight that is missing or left over is an error, not a warning."""
        loaded: Any = super().from_pretrained(*given, output_loading_info=True, **options)
        model, info = loaded
        wrong = {what: sorted(info[f"{what}_keys"]) for what in ("missing", "unexpected")}
        if any(wrong.values()):
            told = "; ".join(f"{what}: {listed(names[:3])}" for what, names in wrong.items() if names)
            raise StoreError(f"{given[0]}: these are not the weights of its config.json ({told}).")
        return (model, info) if output_loading_info else model

    def _init_weights(self, module: nn.Module) -> None:
        """Nothing: `__init__` has drawn them, or they were all in the file."""

    def get_input_embeddings(self) -> nn.Module:
        return self.model.embed

    def get_output_embeddings(self) -> nn.Module:
        return self.model.head

    def _prepare_cache_for_generation(  # type: ignore[override]  # theirs says bool and returns None
        self, generation_config: Any, model_kwargs: dict[str, Any], *rest: Any, **more: Any
    ) -> None:
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
        **for_the_loss: Any,
    ) -> CausalLMOutputWithPast:
        """Logits [B, T, vocabulary], or of the last `logits_to_keep` tokens; labels are those of `input_ids`."""
        assert self.model.embed is not None and self.model.head is not None
        x = self.model.embed(input_ids) if inputs_embeds is None else inputs_embeds
        state = past_key_values.state if past_key_values is not None else None
        x, state = self.model.encode(x, state, layout_of(attention_mask, x))
        kept = slice(-logits_to_keep, None) if isinstance(logits_to_keep, int) else logits_to_keep
        logits = self.model.head(x[:, kept])
        if past_key_values is None and (
            self.config.use_cache and not self.training if use_cache is None else use_cache
        ):
            past_key_values = StateCache()
        if past_key_values is not None:
            past_key_values.update(state, x.shape[1])
        loss = None
        if labels is not None:
            loss = self.loss_function(logits, labels, vocab_size=self.config.vocab_size, **for_the_loss)
        cache: Any = past_key_values  # theirs is a class of theirs, of which nothing is asked but what ours has
        return CausalLMOutputWithPast(loss=loss, logits=logits, past_key_values=cache)


def layout_of(attention_mask: Tensor | None, x: Tensor) -> Layout | None:
    """Of the tokens of this call x [B, T, width]; the mask may be of all tokens so far."""
    if attention_mask is None:
        return None
    if attention_mask.dim() != 2:
        raise ValueError(f"attention_mask: [B, T] is needed, got {list(attention_mask.shape)}.")
    real = attention_mask[:, -x.shape[1] :].to(x.device, torch.bool)
    return None if bool(real.all()) else Layout(real)
