"""hqlt_lab: ablation studies of hybrid quadratic-linear transformers.

    import hqlt_lab as lab

    lab.available("update_rule")                     list the registered components of a kind
    lab.build_model(width=64, mixer="sum", ...)      build a model from components
    lab.sizes(model, 2048)                           parameters, state and FLOPs of each component
    lab.probe(model, tokens)["share"]                share of each memory in the output, per layer and head
    lab.check_component("update_rule", "delta")      run the conformance tests
    lab.check_module(MyLayer, {"width": 64})         check a layer that is not a component
    lab.run("experiments/first_run.yaml")            run a study; lab.results and lab.load read its results

Names are imported on first use, so `import hqlt_lab` loads neither torch nor Lightning.
"""

import importlib.util
import logging
from typing import Any

from hqlt_lab.process_settings import IMPORT_ENV, ignore_tqdm_warning, set_env_defaults

set_env_defaults(IMPORT_ENV)  # before torch and the other libraries are loaded
ignore_tqdm_warning()

if importlib.util.find_spec("hqlt_lab.registry") is None:
    raise ImportError(
        "hqlt_lab is not installed: run `make demo` in the clone, or `pip install -c constraints.txt -e .`"
    )

# Without a handler, Python would print warnings of a library to standard error; see hqlt_lab.log_handler.
logging.getLogger("hqlt_lab").addHandler(logging.NullHandler())

_MODULE_BY_NAME = {
    "Layout": "hqlt_lab.model.batch_layout",
    "Sampling": "hqlt_lab.generation.sampling_options",
    "available": "hqlt_lab.registry",
    "build": "hqlt_lab.registry",
    "build_model": "hqlt_lab.model.sequence_model",
    "check_component": "hqlt_lab.check.conformance",
    "check_module": "hqlt_lab.check.modules.check_module",
    "compare": "hqlt_lab.api",
    "describe": "hqlt_lab.registry",
    "compare_profiles": "hqlt_lab.api",
    "evaluate": "hqlt_lab.api",
    "evaluate_tasks": "hqlt_lab.api",
    "export": "hqlt_lab.api",
    "generate": "hqlt_lab.api",
    "gym_environment": "hqlt_lab.tasks._to_gymnasium",
    "lesion": "hqlt_lab.model.analysis.lesions",
    "load": "hqlt_lab.api",
    "load_components": "hqlt_lab.registry",
    "load_export": "hqlt_lab.api",
    "make_report": "hqlt_lab.api",
    "options": "hqlt_lab.registry",
    "probe": "hqlt_lab.model.analysis.layer_probes",
    "profile": "hqlt_lab.api",
    "register": "hqlt_lab.registry",
    "register_hugging_face": "hqlt_lab.hugging_face.registration",
    "results": "hqlt_lab.api",
    "roofline": "hqlt_lab.model.analysis.roofline",
    "run": "hqlt_lab.api",
    "select_rows": "hqlt_lab.model.state",
    "sizes": "hqlt_lab.model.analysis.component_sizes",
    "temporary_components": "hqlt_lab.registry",
}
__all__ = list(_MODULE_BY_NAME)  # pyright: ignore
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    if name not in _MODULE_BY_NAME:
        raise AttributeError(f"hqlt_lab has no {name!r}. Available: {', '.join(sorted(_MODULE_BY_NAME))}.")
    return getattr(importlib.import_module(_MODULE_BY_NAME[name]), name)


def __dir__() -> list[str]:
    return [*globals(), *_MODULE_BY_NAME]
