"""transformers knows our model, whichever is imported first, and nobody pays who does not ask."""

import subprocess
import sys

import pytest

LOAD = """
model, tokenizer = AutoModelForCausalLM.from_pretrained(FOLDER), AutoTokenizer.from_pretrained(FOLDER)
told = model.generate(**tokenizer(["the key"], return_tensors="pt"), max_new_tokens=3)
print(type(model).__name__, told.shape[1])
"""
OURS_FIRST = "import hqlt_lab\nfrom transformers import AutoModelForCausalLM, AutoTokenizer\n"
THEIRS_FIRST = "from transformers import AutoModelForCausalLM, AutoTokenizer\nimport hqlt_lab\n"


@pytest.mark.parametrize("first", [OURS_FIRST, THEIRS_FIRST], ids=["ours", "theirs"])
def test_the_auto_classes_know_our_model_in_either_order(first, exported):
    script = first + LOAD.replace("FOLDER", repr(str(exported)))
    words = [sys.executable, "-W", "error", "-c", script]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["HqltForCausalLM", "11"]


def test_importing_the_lab_loads_neither_torch_nor_transformers():
    script = "import sys, hqlt_lab; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    assert not {"torch", "transformers", "safetensors"} & set(loaded)
