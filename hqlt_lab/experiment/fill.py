"""Every default written in: what is stored with a run does not depend on what a later version thinks the default is.

`bare` is the way back: without whatever is at its default, and without parts that the mixer never reads.  It is what
the key of a cell is made of, so that an option that is added later does not make old results strangers.
"""

from collections.abc import Callable, Mapping
from dataclasses import fields
from functools import cache
from typing import Any

from hqlt_lab.errors import ConfigError, HqltError
from hqlt_lab.experiment.agent import AgentConfig
from hqlt_lab.experiment.settings import TrainConfig, TrainerConfig
from hqlt_lab.model.config import PARTS, ModelConfig, OpsConfig, model_config
from hqlt_lab.registry import find, options, settings_from, split
from hqlt_lab.registry.settings import refuse

Part = dict[str, Any]
Known = dict[tuple[str, str, str | None], Any]  # a section as it is written, and the task -> as it is filled


def filled(told: Mapping[str, Any], known: Known | None = None) -> dict[str, Any]:
    """Task, model, train, agent, trainer and ops, complete and checked; every mistake in one message.

    `known` has sections that were filled before: a thousand cells of a study have a dozen different ones.
    """
    made, wrong = fill_each({section: told.get(section, {}) for section in (*FILLS, "agent")}, known)
    refuse(wrong)
    return made


def fill_each(told: Mapping[str, Any], known: Known | None = None) -> tuple[dict[str, Any], list[str]]:
    """Of these sections those that are right, and a sentence for each mistake in the others."""
    known, wrong = {} if known is None else known, list[str]()
    made: dict[str, Any] = {}
    fills = FILLS | {"agent": lambda given: fill_agent(given, made.get("task", {}).get("name"))}
    for section, fill in fills.items():
        if section not in told:
            continue
        written = (section, repr(told[section]), made.get("task", {}).get("name"))
        try:
            made[section] = known[written] = known[written] if written in known else fill(told[section])
        except HqltError as error:
            wrong += [in_section(section, line) for line in str(error).splitlines()]
    return made, wrong


def in_section(section: str, line: str) -> str:
    """A complaint with the whole path of what it is about."""
    if line.startswith((f"{section}:", f"{section}.")):
        return line
    return f"{section}{line}" if line.startswith(":") else f"{section}.{line}"


def fill_task(told: Any) -> Part:
    if told == {}:
        raise ConfigError("task: what is learned? Name a task, such as {name: parity}.")
    made = fill_part("task", told, "task")
    maker: Any = find("task", made["name"])
    return made | maker.pinned(made)


def fill_part(kind: str, spec: Any, at: str) -> Part:
    """A part as a mapping with its name and all its options."""
    name, chosen = split(kind, spec, at)
    defaults = {option.name: option.default for option in options(kind, name).values() if not option.required}
    return {"name": name} | defaults | chosen


def fill_model(told: Any) -> dict[str, Any]:
    settings = mapping(told)
    wrong = ["vocabulary: the task decides it; leave it out."] if "vocabulary" in settings else []
    try:
        model_config(settings | {"vocabulary": 1})  # there will be one, or `composition` complains
    except ConfigError as error:
        wrong += str(error).splitlines()
    refuse(wrong)
    made = {field.name: settings.get(field.name, field.default) for field in fields(ModelConfig)}
    for kind in PARTS:
        spec = made[kind]
        if isinstance(spec, list):
            made[kind] = [fill_part(kind, one, kind) for one in spec]
        elif spec is not None:
            made[kind] = fill_part(kind, spec, kind)
    return {name: value for name, value in made.items() if name != "vocabulary"}


def fill_train(told: Any) -> TrainConfig:
    return settings_from(TrainConfig, mapping(told))


def fill_trainer(told: Any) -> TrainerConfig:
    return settings_from(TrainerConfig, mapping(told))


def fill_ops(told: Any) -> OpsConfig:
    return settings_from(OpsConfig, mapping(told))


def fill_agent(told: Any, task: str | None) -> AgentConfig | None:
    """Only in a world is there somebody who acts; None as a name: the task was a mistake, and says so."""
    agent = settings_from(AgentConfig, mapping(told))
    maker: Any = None if task is None else find("task", task)
    if maker is not None and not maker.is_world:
        if told:
            raise ConfigError(f"agent: task {task!r} has examples, and agents act in worlds alone. Leave it out.")
        return None
    return agent


FILLS: dict[str, Callable[[Any], Any]] = {
    "task": fill_task,
    "model": fill_model,
    "train": fill_train,
    "trainer": fill_trainer,
    "ops": fill_ops,
}


def mapping(told: Any) -> dict[str, Any]:
    if not isinstance(told, Mapping):
        raise ConfigError(f": a mapping of settings is needed, got {told!r}.")
    return dict(told)


def bare_part(kind: str, part: Mapping[str, Any]) -> Part:
    """Without options at their default."""
    known = options(kind, part["name"])
    return {key: value for key, value in part.items() if key == "name" or value != known[key].default}


def bare_model(model: Mapping[str, Any]) -> dict[str, Any]:
    """Without settings at their default, and without what no layer reads."""
    plain = defaults(ModelConfig)
    made = {key: value for key, value in model.items() if key not in PARTS and value != plain[key]}
    parts = {kind: model[kind] if isinstance(model[kind], list) else [model[kind]] for kind in PARTS}
    layers = [
        bare_layer({kind: specs[layer % len(specs)] for kind, specs in parts.items()})
        for layer in range(model["layers"])
    ]
    return made | {"parts": layers[0] if all(layer == layers[0] for layer in layers) else layers}


def bare_layer(parts: Mapping[str, Any]) -> dict[str, Part]:
    """The parts of one layer that are read, without their defaults."""
    reads = getattr(find("mixer", parts["mixer"]["name"]), "reads", ("fw", "kv"))
    added = "embed" in vars(find("positions", parts["positions"]["name"]))  # to the input, which both memories see
    unread = {"positions"} if "kv" not in reads and not added else set()
    unread |= {"update_rule", "feature_map"} if "fw" not in reads else set()
    if "kv" not in reads and parts["timing"]["name"] == "synchronous":
        unread.add("timing")  # its window is the softmax's
    return {kind: bare_part(kind, part) for kind, part in parts.items() if kind not in unread and part is not None}


def bare_settings(settings: Any, leave_out: tuple[str, ...]) -> dict[str, Any]:
    """A dataclass of settings without what is at its default or cannot change a result."""
    plain, told = defaults(type(settings)), vars(settings)  # type: ignore[arg-type]  # a class has a hash
    return {key: value for key, value in told.items() if key not in leave_out and value != plain[key]}


@cache
def defaults(maker: Callable[[], Any]) -> Mapping[str, Any]:
    """Settings that nobody changed."""
    return vars(maker())
