"""hqlt_lab: ablations of hybrid quadratic-linear transformers.

    import hqlt_lab as lab

    lab.available("update_rule")                     what there is
    lab.build_model(width=64, mixer="sum", ...)      a composition
    lab.sizes(model, 2048)                           its parameters, state and FLOPs, part by part
    lab.probe(model, tokens)["share"]                which memory does the work, layer by layer and head by head
    lab.check_part("update_rule", "delta")           the conformance kit
    lab.run("experiments/first_run.yaml")            a study; lab.results and lab.load read it

Names load on first use, so that `import hqlt_lab` costs nothing.
"""

import importlib.util
import os
from typing import Any

# Threads that wait for each other sleep.  By default they spin, and where two programs share the cores a step was
# seen to take 30 times as long.  Read when torch is loaded; a value that is set already stays.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
# Some virtual machines announce AMX and die of its first instruction, in a bfloat16 product; float32 has no use for it.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX10_1_512")
# Nothing is told to anybody about who uses the lab: the libraries below it would, unless they are told not to.
_TELL_NOBODY = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "HF_UPDATE_DOWNLOAD_COUNTS": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
}
os.environ.update({name: value for name, value in _TELL_NOBODY.items() if name not in os.environ})

if importlib.util.find_spec("hqlt_lab.registry") is None:
    raise ImportError(
        "hqlt_lab is not installed: run `make demo` in the clone, or `pip install -c constraints.txt -e .`"
    )

_HOME = {
    "Layout": "hqlt_lab.model.layout",
    "Sampling": "hqlt_lab.generation.sampling",
    "available": "hqlt_lab.registry",
    "build": "hqlt_lab.registry",
    "build_model": "hqlt_lab.model.sequence_model",
    "check_part": "hqlt_lab.check.kit",
    "compare": "hqlt_lab.api",
    "describe": "hqlt_lab.registry",
    "evaluate": "hqlt_lab.api",
    "evaluate_tasks": "hqlt_lab.api",
    "export": "hqlt_lab.api",
    "generate": "hqlt_lab.api",
    "gym_world": "hqlt_lab.tasks._gym",
    "include": "hqlt_lab.registry",
    "lesion": "hqlt_lab.model.lesions",
    "load": "hqlt_lab.api",
    "load_export": "hqlt_lab.api",
    "options": "hqlt_lab.registry",
    "probe": "hqlt_lab.model.probes",
    "register": "hqlt_lab.registry",
    "results": "hqlt_lab.api",
    "roofline": "hqlt_lab.model.roofline",
    "run": "hqlt_lab.api",
    "select_rows": "hqlt_lab.model.state",
    "sizes": "hqlt_lab.model.sizes",
    "temporarily": "hqlt_lab.registry",
}
__all__ = list(_HOME)  # pyright: ignore
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"hqlt_lab has no {name!r}. There is: {', '.join(sorted(_HOME))}.")
    return getattr(importlib.import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return [*globals(), *_HOME]


importlib.import_module("hqlt_lab.hugging_face.join").join()
