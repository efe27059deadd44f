"""Variants of lm-eval tasks, with the protocol of the paper where lm-eval differs.  Both are retrieval tasks: generate
the value of a key in a long text.

    squad_newline   lm-eval's squad_completion, with the same trimming, but generation stops at a newline or after 48
                    tokens; lm-eval 0.4.13 sends a blank line and 256, which its class does not intend
    fda_original    lm-eval's fda reads the whole report; the evaluation code of the dataset's authors (Arora et al.
                    2024, arXiv:2407.05483) takes 950 tokens around the first mention of the key or the value

All decode greedily; an answer is correct if it contains the value, ignoring case.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from lm_eval.api.instance import Instance
from lm_eval.tasks.fda.task import FDA
from lm_eval.tasks.squad_completion.task import SQUADCompletion

from hqlt_lab.generation.text_model import TextModel

GEN_KWARGS = {"until": ["\n"], "max_gen_toks": 48}
CONTEXT_TOKENS = 1000 - 50  # excerpt of a report, so that the answer fits too


class SquadNewline(SQUADCompletion):
    """SQuAD completion with the stop condition of the paper."""

    VERSION = "newline 1"

    def construct_requests(self, doc: Mapping[str, Any], ctx: str, **options: Any) -> list[Instance]:
        (request,) = super().construct_requests(doc, ctx, **options)
        request.arguments = (ctx, dict(GEN_KWARGS))
        return [request]


class FdaOriginal(FDA):
    """FDA with its original protocol.  The excerpt depends on the tokenizer."""

    VERSION = "original 1"
    text_model: TextModel  # set by `own_task_class` in a subclass

    def validation_docs(self) -> Any:
        documents = super().validation_docs()
        indices = [i for i, doc in enumerate(documents) if len(doc["key"]) > 1 and len(doc["value"]) > 1]
        return documents.select(indices)

    def doc_to_text(self, doc: Mapping[str, Any]) -> str:
        return format_prompt(excerpt_report(doc, self.text_model), doc["key"])

    def doc_to_target(self, doc: Mapping[str, Any]) -> str:
        return str(doc["value"])


class TokenSpan(NamedTuple):
    """A range of tokens of a text."""

    start: int
    end: int


def excerpt_report(doc: Mapping[str, Any], text_model: TextModel) -> str:
    """Return the excerpt of a report around the first occurrence of the key or the value."""
    text = doc["text"].strip()
    positions = [text.lower().find(doc[name].lower()) for name in ("key", "value")]
    first = min((position for position in positions if position >= 0), default=len(text))
    tokens = text_model.encode(text)
    start, end = centered_window(len(text_model.encode(text[:first])), len(tokens))
    return text_model.decode(tokens[start:end])


def centered_window(position: int, num_tokens: int, length: int = CONTEXT_TOKENS) -> TokenSpan:
    """Return a span of `length` tokens that begins half of it before a position, cut off at the ends of the text."""
    start = max(0, position - length // 2)
    return TokenSpan(start, min(num_tokens, start + length))


def format_prompt(text: str, key: str) -> str:
    """Return the text without trailing repetitions of the key, ended by a period, followed by the key."""
    question = f"{key}:"
    while text.lower().endswith(question.lower()):
        text = text[: -len(question)]
    return f"{text.strip(chr(10)).strip('.')}. {question[0].upper()}{question[1:]}"
