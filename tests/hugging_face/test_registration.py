"""transformers finds our classes after one call, in either import order, and importing the lab changes nothing."""

import subprocess
import sys

import pytest

LOAD_SCRIPT = """
model, tokenizer = AutoModelForCausalLM.from_pretrained(FOLDER), AutoTokenizer.from_pretrained(FOLDER)
tokens = model.generate(**tokenizer(["the key"], return_tensors="pt"), max_new_tokens=3)
print(type(model).__name__, tokens.shape[1])
"""
IMPORT_TRANSFORMERS = "from transformers import AutoModelForCausalLM, AutoTokenizer\n"
REGISTER = "import hqlt_lab as lab\nlab.register_hugging_face()\n"


@pytest.mark.parametrize(
    "imports",
    [REGISTER + IMPORT_TRANSFORMERS, IMPORT_TRANSFORMERS + REGISTER + REGISTER],
    ids=["lab first", "transformers first, registered twice"],
)
def test_auto_classes_find_our_model_in_either_import_order(imports, export_folder):
    script = imports + LOAD_SCRIPT.replace("FOLDER", repr(str(export_folder)))
    process = subprocess.run([sys.executable, "-W", "error", "-c", script], capture_output=True, text=True)
    assert process.returncode == 0, process.stderr
    assert process.stdout.split() == ["HqltForCausalLM", "11"]


def test_importing_the_lab_imports_neither_torch_nor_transformers():
    script = "import sys, hqlt_lab; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    assert not {"torch", "transformers", "safetensors"} & set(loaded)


def test_importing_the_lab_installs_no_import_hook():
    script = "import sys; before = [*sys.meta_path]; import hqlt_lab; print(sys.meta_path == before)"
    process = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert process.stdout.split() == ["True"]
