"""`hqlt generate`: continue prompts with a trained language model."""

import json
import logging
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hqlt_lab.cli.terminal import completion
from hqlt_lab.cli.terminal.shared_options import RunsOption, json_option
from hqlt_lab.errors import ConfigError, ConfigIssue
from hqlt_lab.files import decode_json
from hqlt_lab.formatting import dump_json
from hqlt_lab.generation.sampling_options import Sampling
from hqlt_lab.registry import read_field_docs

if TYPE_CHECKING:
    from hqlt_lab.generation.text_generation import GeneratedText

logger = logging.getLogger(__name__)

TargetArgument = Annotated[
    str,
    typer.Argument(
        help="A trained cell (key, folder or MLflow run) whose task is language, or an export.",
        autocompletion=completion.complete_cells,
    ),
]
DEFAULT_SAMPLING, OPTION_HELP = Sampling(), read_field_docs(Sampling)


def generate_text(
    target: TargetArgument,
    prompt: Annotated[list[str] | None, typer.Option(help="Text to continue. Repeatable.")] = None,
    prompts: Annotated[
        Path | None, typer.Option(help="File with one prompt per line, as plain text or as a JSON string.")
    ] = None,
    tokens: Annotated[int, typer.Option(help=OPTION_HELP["tokens"])] = DEFAULT_SAMPLING.tokens,
    temperature: Annotated[float, typer.Option(help=OPTION_HELP["temperature"])] = DEFAULT_SAMPLING.temperature,
    top_k: Annotated[int | None, typer.Option(help=OPTION_HELP["top_k"])] = None,
    top_p: Annotated[float | None, typer.Option(help=OPTION_HELP["top_p"])] = None,
    stop: Annotated[list[str] | None, typer.Option(help="Stop before this string. Repeatable.")] = None,
    seed: Annotated[int, typer.Option(help=OPTION_HELP["seed"])] = DEFAULT_SAMPLING.seed,
    runs: RunsOption = Path("runs"),
    as_json: Annotated[bool, json_option("an entry per prompt: prompt, tokens, text, reason, speed.")] = False,
) -> None:
    """Generate text with a trained language model, from prompts or from standard input."""
    options = Sampling(
        tokens=tokens, temperature=temperature, top_k=top_k, top_p=top_p, stop=tuple(stop or ()), seed=seed
    )
    prompt_texts = read_prompts(prompt, prompts)
    from hqlt_lab import api

    model = api.load_text_model(target, runs)
    longest = max((len(model.encode(text)) for text in prompt_texts), default=0) + 1 + tokens
    if longest > model.trained_length:
        logger.info(
            f"Generating up to position {longest}; the model was trained on sequences of {model.trained_length} tokens."
        )
    stream = len(prompt_texts) == 1 and not as_json
    on_chunk = (lambda chunk: print(chunk.text, end="", flush=True)) if stream else None
    results = api.generate(model, prompt_texts, options, on_chunk)
    if as_json:
        print(dump_json([generation_entry(text, result) for text, result in zip(prompt_texts, results, strict=True)]))
    elif stream:
        print()
    else:
        for text, result in zip(prompt_texts, results, strict=True):
            print(f"--- {json.dumps(text, ensure_ascii=False)}\n{result.text}")
    if results:
        reasons = ", ".join(dict.fromkeys(result.reason for result in results))
        speed = results[0].speed
        logger.info(f"Prompts {speed.prompt:.0f} tokens/s, then {speed.decoding:.0f} tokens/s. Ended by: {reasons}.")


def read_prompts(prompts: list[str] | None, file: Path | None) -> list[str]:
    """Return the prompts of --prompt, of the --prompts file, or the text on standard input."""
    if prompts and file:
        raise ConfigError(
            ConfigIssue("--prompt", "prompt_and_prompts", "use only one of them.", other_paths=("--prompts",))
        )
    if prompts:
        return prompts
    if file:
        if not file.is_file():
            raise ConfigError.at("--prompts", "file_not_found", f"there is no file {file}.")
        try:
            text = file.read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            message = f"{file} is not encoded in UTF-8 ({error.reason} at byte {error.start})."
            raise ConfigError.at("--prompts", "not_utf8", message) from error
        return [parse_prompt_line(line) for line in text.removesuffix("\n").split("\n")]
    if sys.stdin.isatty():
        hint = 'Use --prompt "..." (it may be empty), --prompts FILE, or pipe a text.'
        raise ConfigError.at("--prompt", "missing_prompt", "there is no prompt.", hint)
    return [sys.stdin.read()]


def parse_prompt_line(line: str) -> str:
    """Return the line, decoded if it is a JSON string."""
    if line.startswith('"'):
        try:
            return decode_json(line, str)
        except ValueError:
            pass
    return line


def generation_entry(prompt: str, generated: "GeneratedText") -> dict[str, object]:
    return {"prompt": prompt, **asdict(generated), "speed": generated.speed._asdict()}
