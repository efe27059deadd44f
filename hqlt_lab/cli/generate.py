"""The verb that lets a trained language model speak."""

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hqlt_lab.cli import completion
from hqlt_lab.cli.options import RunsOption, for_programs
from hqlt_lab.cli.screen import aside
from hqlt_lab.errors import ConfigError
from hqlt_lab.generation.sampling import Sampling
from hqlt_lab.registry import sentences
from hqlt_lab.words import in_json

if TYPE_CHECKING:
    from hqlt_lab.generation.generate import Generated

TargetArgument = Annotated[
    str,
    typer.Argument(
        help="A trained cell (key, folder or MLflow run) whose task is language, or an export.",
        autocompletion=completion.cells,
    ),
]
USUAL, SAYS = Sampling(), sentences(Sampling)


def generate(
    target: TargetArgument,
    prompt: Annotated[list[str] | None, typer.Option(help="A text to go on from. Repeatable.")] = None,
    prompts: Annotated[
        Path | None, typer.Option(help="A file with a prompt per line: plain, or a JSON string.")
    ] = None,
    tokens: Annotated[int, typer.Option(help=SAYS["tokens"])] = USUAL.tokens,
    temperature: Annotated[float, typer.Option(help=SAYS["temperature"])] = USUAL.temperature,
    top_k: Annotated[int | None, typer.Option(help=SAYS["top_k"])] = None,
    top_p: Annotated[float | None, typer.Option(help=SAYS["top_p"])] = None,
    stop: Annotated[list[str] | None, typer.Option(help="End before this string. Repeatable.")] = None,
    seed: Annotated[int, typer.Option(help=SAYS["seed"])] = USUAL.seed,
    runs: RunsOption = Path("runs"),
    as_json: Annotated[bool, for_programs("an entry per prompt: prompt, tokens, text, reason, speed.")] = False,
) -> None:
    """Let a trained language model go on from prompts; without any, from standard input."""
    options = Sampling(
        tokens=tokens, temperature=temperature, top_k=top_k, top_p=top_p, stop=tuple(stop or ()), seed=seed
    )
    given = prompts_of(prompt, prompts)
    from hqlt_lab import api

    model = api.text_model(target, runs)
    longest = max((len(model.encode(one)) for one in given), default=0) + 1 + tokens
    if longest > model.trained_length:
        aside.print(f"Up to {longest} tokens: it was trained on rows of {model.trained_length}.", style="dim")
    live = len(given) == 1 and not as_json
    found = api.generate(model, given, options, (lambda piece: print(piece.text, end="", flush=True)) if live else None)
    if as_json:
        print(in_json([entry(one, answer) for one, answer in zip(given, found, strict=True)]))
    elif live:
        print()
    else:
        for one, answer in zip(given, found, strict=True):
            print(f"--- {json.dumps(one, ensure_ascii=False)}\n{answer.text}")
    if found:
        reasons = ", ".join(dict.fromkeys(answer.reason for answer in found))
        speed = found[0].speed
        aside.print(
            f"Prompts {speed.prompt:.0f} tokens/s, then {speed.decoding:.0f} tokens/s. Ended by: {reasons}.",
            style="dim",
        )


def prompts_of(typed: list[str] | None, file: Path | None) -> list[str]:
    """From the one place where they are."""
    if typed and file:
        raise ConfigError("Prompts are given by --prompt or by --prompts, not by both.")
    if typed:
        return typed
    if file:
        if not file.is_file():
            raise ConfigError(f"prompts: there is no file {file}.")
        try:
            text = file.read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise ConfigError(f"prompts: {file} is not UTF-8 ({error.reason} at byte {error.start}).") from error
        return [line_of(line) for line in text.removesuffix("\n").split("\n")]
    if sys.stdin.isatty():
        raise ConfigError(
            'There is no prompt. Give --prompt "..." (it may be empty), --prompts FILE, or a text by pipe.'
        )
    return [sys.stdin.read()]


def line_of(line: str) -> str:
    """A line, or the JSON string that it is."""
    if line.startswith('"'):
        try:
            return str(json.loads(line))
        except ValueError:
            pass
    return line


def entry(prompt: str, answer: "Generated") -> dict[str, object]:
    return {"prompt": prompt, **asdict(answer), "speed": answer.speed._asdict()}
