"""Model card of an export: components, data, scores, and how to load the model."""

import json
from pathlib import Path
from typing import Any

from hqlt_lab.data.corpus_index import CorpusIndex
from hqlt_lab.hugging_face.configuration_hqlt import HqltConfig
from hqlt_lab.model.config import COMPONENT_KINDS
from hqlt_lab.rundir.outcome import Outcome

CARD_TEMPLATE = """---
library_name: transformers
pipeline_tag: text-generation
tags: [hqlt, fast-weights, hybrid-memory]
---

# {name}

A language model with two memories, softmax attention and fast weights, trained with hqlt_lab {version}.

| component | |
|---|---|
{components}

{layers} layers, width {width}, {heads} heads, {parameters} parameters, {vocabulary} tokens.

**Data.** {documents} documents, {tokens} tokens, read in rows of {length}. Source: {source}.
Tokenizer `{tokenizer}`, digest `{digest}`.
Every document starts with token {separator}. Start prompts with it; a generated text ends with it.

**Scores** of cell `{key}`{steps}:

{scores}

## Use

```python
import hqlt_lab as lab
from transformers import AutoModelForCausalLM, AutoTokenizer

lab.register_hugging_face()  # so that AutoModelForCausalLM knows this kind of model
model = AutoModelForCausalLM.from_pretrained("{name}")
tokenizer = AutoTokenizer.from_pretrained("{name}")
text = model.generate(**tokenizer(["Once upon"], return_tensors="pt"), max_new_tokens=50)
print(tokenizer.decode(text[0], skip_special_tokens=True))
```

Or `hqlt generate {name} --prompt "Once upon"`.
{notes}"""


def make_model_card(
    name: str, config: HqltConfig, index: CorpusIndex, outcome: Outcome | None, notes: list[str]
) -> str:
    """Return the text of README.md."""
    model, origin, train = config.sequence_model_config, config.origin or {}, index.splits["train"]
    return CARD_TEMPLATE.format(
        name=name,
        version=origin["version"],
        components="\n".join(f"| {kind} | `{format_component(getattr(model, kind))}` |" for kind in COMPONENT_KINDS),
        layers=model.layers,
        width=model.width,
        heads=model.heads,
        parameters=f"{outcome.parameters:,}" if outcome else "unknown",
        vocabulary=model.vocabulary,
        documents=f"{train.documents:,}",
        tokens=f"{train.tokens:,}",
        source=describe_source(index),
        tokenizer=index.tokenizer,
        digest=index.digest,
        length=config.max_position_embeddings,
        separator=config.bos_token_id,
        key=origin["key"],
        steps=f" after {outcome.step} steps" if outcome else ", which is still being trained",
        scores=format_scores(outcome),
        notes="".join(f"\n{note}\n" for note in notes),
    )


def describe_source(index: CorpusIndex) -> str:
    """Describe the source of the data; a path is cut to its last component, since the rest may be private."""
    source = {name: value for name, value in index.source.items() if value is not None}
    return ", ".join(f"{name} {Path(value).name if name == 'path' else value}" for name, value in source.items())


def format_component(component: Any) -> str:
    return component if isinstance(component, str) else json.dumps(component)


def format_scores(outcome: Outcome | None) -> str:
    """Return a Markdown table of the metrics, those of the test set first."""
    metrics = {name: value for name, value in (outcome.metrics if outcome else {}).items() if name.count("/") == 1}
    names = sorted(metrics, key=lambda name: (name[:4] != "test", name))
    lines = [f"| {name} | {metrics[name]:.4g} |" for name in names]
    return "\n".join(["| metric | |", "|---|---|", *lines]) if lines else "No scores are recorded."
