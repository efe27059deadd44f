"""The page that tells what an exported model is: made of, trained on, scored, loaded."""

import json
from pathlib import Path
from typing import Any

from hqlt_lab.data.index import Index
from hqlt_lab.hugging_face.config import HqltConfig
from hqlt_lab.model.config import PARTS
from hqlt_lab.train.outcome import Outcome

PAGE = """---
library_name: transformers
pipeline_tag: text-generation
tags: [hqlt, fast-weights, hybrid-memory]
---

# {name}

A language model with two memories, softmax attention and fast weights, trained with hqlt_lab {version}.

| part | |
|---|---|
{parts}

{layers} layers, width {width}, {heads} heads, {parameters} parameters, {vocabulary} tokens.

**Data.** {documents} documents, {tokens} tokens, read in rows of {length}. Source: {source}.
Tokenizer `{tokenizer}`, digest `{digest}`.
Every document begins with token {separator}; so should a prompt, and the same token ends a text.

**Scores** of cell `{key}`{steps}:

{scores}

## Use

```python
import hqlt_lab  # tells transformers about the model
from transformers import AutoModelForCausalLM, AutoTokenizer

model = AutoModelForCausalLM.from_pretrained("{name}")
tokenizer = AutoTokenizer.from_pretrained("{name}")
text = model.generate(**tokenizer(["Once upon"], return_tensors="pt"), max_new_tokens=50)
print(tokenizer.decode(text[0], skip_special_tokens=True))
```

Or `hqlt generate {name} --prompt "Once upon"`.
{notes}"""


def card(name: str, config: HqltConfig, index: Index, outcome: Outcome | None, notes: list[str]) -> str:
    """The page of this model."""
    made, origin, train = config.model, config.origin or {}, index.splits["train"]
    return PAGE.format(
        name=name,
        version=origin["version"],
        parts="\n".join(f"| {kind} | `{told(getattr(made, kind))}` |" for kind in PARTS),
        layers=made.layers,
        width=made.width,
        heads=made.heads,
        parameters=f"{outcome.parameters:,}" if outcome else "unknown",
        vocabulary=made.vocabulary,
        documents=f"{train.documents:,}",
        tokens=f"{train.tokens:,}",
        source=source(index),
        tokenizer=index.tokenizer,
        digest=index.digest,
        length=config.max_position_embeddings,
        separator=config.bos_token_id,
        key=origin["key"],
        steps=f" after {outcome.step} steps" if outcome else ", which is still being trained",
        scores=scores(outcome),
        notes="".join(f"\n{note}\n" for note in notes),
    )


def source(index: Index) -> str:
    """Where the text came from; of a path its end alone, as the rest is nobody's business."""
    known = {name: value for name, value in index.source.items() if value is not None}
    return ", ".join(f"{name} {Path(value).name if name == 'path' else value}" for name, value in known.items())


def told(part: Any) -> str:
    return part if isinstance(part, str) else json.dumps(part)


def scores(outcome: Outcome | None) -> str:
    """A line for each, test first."""
    found = {name: value for name, value in (outcome.metrics if outcome else {}).items() if name.count("/") == 1}
    lines = [f"| {name} | {found[name]:.4g} |" for name in sorted(found, key=lambda name: (name[:4] != "test", name))]
    return "\n".join(["| metric | |", "|---|---|", *lines]) if lines else "None are known."
