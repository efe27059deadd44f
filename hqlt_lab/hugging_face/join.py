"""transformers learns of our model when it looks for any, whichever of the two packages is imported first.

Its Auto classes live in two modules.  If one is loaded already it is told at once; else we wait for it as the first of
Python's finders, let the others find it, and tell it as soon as it has run.  `import hqlt_lab` alone loads nothing.
"""

import importlib.util
import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType


def tell_configs(module: ModuleType) -> None:
    from hqlt_lab.hugging_face.config import HqltConfig

    module.AutoConfig.register(HqltConfig.model_type, HqltConfig, exist_ok=True)


def tell_models(module: ModuleType) -> None:
    from hqlt_lab.hugging_face.causal_lm import HqltForCausalLM
    from hqlt_lab.hugging_face.config import HqltConfig

    module.AutoModelForCausalLM.register(HqltConfig, HqltForCausalLM, exist_ok=True)


TOLD: dict[str, Callable[[ModuleType], None]] = {
    "transformers.models.auto.configuration_auto": tell_configs,
    "transformers.models.auto.modeling_auto": tell_models,
}


class Waiting(MetaPathFinder):
    """For modules that have to be told something once they have run."""

    def __init__(self) -> None:
        self.looking: set[str] = set()

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name not in TOLD or name in self.looking:
            return None
        self.looking.add(name)  # the others look now
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self.looking.discard(name)
        if spec is not None and spec.loader is not None:
            run = spec.loader.exec_module

            def run_and_tell(module: ModuleType) -> None:
                run(module)
                TOLD[name](module)

            spec.loader.exec_module = run_and_tell  # type: ignore[method-assign]
        return spec


def join() -> None:
    """Let transformers know, now or as soon as it is asked for."""
    if not any(isinstance(finder, Waiting) for finder in sys.meta_path):
        sys.meta_path.insert(0, Waiting())
    for name, tell in TOLD.items():
        if name in sys.modules:
            tell(sys.modules[name])
