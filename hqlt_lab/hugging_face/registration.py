"""Registers our classes with transformers' Auto classes.

import hqlt_lab as lab

lab.register_hugging_face()
model = AutoModelForCausalLM.from_pretrained(folder)
"""

from hqlt_lab.data.tokenizers._base import import_optional


def register_hugging_face() -> None:
    """Let transformers' AutoConfig and AutoModelForCausalLM load exported models.

    Call it once per process before `from_pretrained`, after or before transformers is imported. It imports torch and
    transformers, so `import hqlt_lab` does not call it.
    """
    library = import_optional("transformers", "transformers", "register_hugging_face")
    from hqlt_lab.hugging_face.configuration_hqlt import HqltConfig
    from hqlt_lab.hugging_face.modeling_hqlt import HqltForCausalLM

    library.AutoConfig.register(HqltConfig.model_type, HqltConfig, exist_ok=True)
    library.AutoModelForCausalLM.register(HqltConfig, HqltForCausalLM, exist_ok=True)
