"""Retrieval as the paper asked it, where lm-eval does otherwise: a key in a long text, and its value is to follow.

    squad_newline   lm-eval's squad_completion, trimmed as there, but ended by a newline or after 48 tokens; lm-eval
                    0.4.13 itself sends a blank line and 256, which its class does not intend
    fda_original    lm-eval's fda reads the whole report; the harness that made the dataset (Arora et al. 2024,
                    arXiv:2407.05483) cuts 950 tokens out of it, around the first place that names key or value

All are greedy, and right if the value occurs in the answer, whatever its case.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from lm_eval.api.instance import Instance
from lm_eval.tasks.fda.task import FDA
from lm_eval.tasks.squad_completion.task import SQUADCompletion

from hqlt_lab.generation.text_model import TextModel

ENDS = {"until": ["\n"], "max_gen_toks": 48}
CONTEXT = 1000 - 50  # tokens of a report, with room for the answer


class SquadNewline(SQUADCompletion):
    """SQuAD as completion, ended as the paper ended it."""

    VERSION = "newline 1"

    def construct_requests(self, doc: Mapping[str, Any], ctx: str, **options: Any) -> list[Instance]:
        (request,) = super().construct_requests(doc, ctx, **options)
        request.arguments = (ctx, dict(ENDS))
        return [request]


class FdaOriginal(FDA):
    """FDA by its original protocol; which tokens are cut out depends on the tokenizer."""

    VERSION = "original 1"
    text_model: TextModel  # set by who makes a class of it

    def validation_docs(self) -> Any:
        found = super().validation_docs()
        said = [number for number, doc in enumerate(found) if len(doc["key"]) > 1 and len(doc["value"]) > 1]
        return found.select(said)

    def doc_to_text(self, doc: Mapping[str, Any]) -> str:
        return prompt(cut(doc, self.text_model), doc["key"])

    def doc_to_target(self, doc: Mapping[str, Any]) -> str:
        return str(doc["value"])


class Span(NamedTuple):
    """Some tokens of a text."""

    start: int
    end: int


def cut(doc: Mapping[str, Any], text_model: TextModel) -> str:
    """The part of a report that is read: half of it before the first key or value, the rest after."""
    text = doc["text"].strip()
    places = [text.lower().find(doc[name].lower()) for name in ("key", "value")]
    first = min((place for place in places if place >= 0), default=len(text))
    tokens = text_model.encode(text)
    start, end = window(len(text_model.encode(text[:first])), len(tokens))
    return text_model.decode(tokens[start:end])


def window(place: int, tokens: int, length: int = CONTEXT) -> Span:
    """Around a place, as far as there are tokens."""
    start = max(0, place - length // 2)
    return Span(start, min(tokens, start + length))


def prompt(text: str, key: str) -> str:
    """The report as a statement that ends, and the key again."""
    question = f"{key}:"
    while text.lower().endswith(question.lower()):
        text = text[: -len(question)]
    return f"{text.strip(chr(10)).strip('.')}. {question[0].upper()}{question[1:]}"
