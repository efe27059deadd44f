"""The source of a component that was defined in a notebook is written with everything that it uses."""

import subprocess
import sys

import pytest

from hqlt_lab import registry
from hqlt_lab.errors import RegistryError
from hqlt_lab.registry import generate_source
from tests.issues import raises_issue

from .notebook_cells import FakeNotebook

IMPORTS = """
import math
import os.path
from dataclasses import dataclass as data
import hqlt_lab as lab
from hqlt_lab.registry import register
from hqlt_lab.ops.memory_schedule import Schedule
"""
TIMING = """
@register("timing", "mine")
def mine(window: int = 4) -> Schedule:
    return Schedule(delay=0, window=window)
"""


@pytest.fixture
def notebook():
    with registry.temporary_components():
        notebook = FakeNotebook()
        notebook.run_cell(IMPORTS)
        yield notebook
        notebook.close()


def source_of(name="mine"):
    return generate_source("timing", name).text


def build_in_a_new_process(tmp_path, **options):
    """Return the repr of the timing that the generated file registers."""
    file = tmp_path / "generated.py"
    file.write_text(source_of())
    spec = {"name": "mine", **options}
    script = f"import hqlt_lab as lab; lab.load_components({str(file)!r}); print(lab.build('timing', {spec}))"
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return result.stdout.strip()


def test_component_of_a_cell_can_be_built_in_another_process(notebook, tmp_path):
    notebook.run_cell("SHIFT, NAMES = 2, ('a', None)\n")
    notebook.run_cell("def shift(value):\n    return value + SHIFT + math.floor(0.5)\n")
    notebook.run_cell("@data\nclass Settings:\n    window: int\n\nAlias = Settings\n")
    notebook.run_cell(
        "unit = max([1])\n"
        "many = [unit]\n"
        '@lab.register("timing", "mine")\n'
        "def mine(window: int = 4) -> Schedule:\n"
        '    """A timing."""\n'
        "    assert os.path.sep and NAMES[0] and many\n"
        "    return Schedule(delay=0, window=shift(Alias(window).window))\n"
    )
    expected = repr(registry.build("timing", {"name": "mine", "window": 5}))
    assert build_in_a_new_process(tmp_path, window=5) == expected
    assert registry.find_registered_names(tmp_path / "generated.py", "timing") == ["mine"]


def test_generated_file_has_the_used_imports_and_no_others(notebook):
    notebook.run_cell(TIMING)
    lines = source_of().splitlines()
    assert [line for line in lines if "import" in line] == [
        "from hqlt_lab.ops.memory_schedule import Schedule",
        "import hqlt_lab.registry",
    ]
    assert not [line for line in lines if line.startswith("@")]


def test_names_that_cannot_be_copied_are_all_reported(notebook):
    notebook.run_cell("import torch\ntable, rows = torch.ones(2), [1]\n")
    notebook.run_cell(
        '@register("timing", "mine")\n'
        "def mine(window: int = 4) -> Schedule:\n"
        "    return Schedule(delay=len(table) + rows[0] + undefined_name, window=window)\n"
    )
    with pytest.raises(RegistryError) as error:
        source_of()
    for name in ("table (a Tensor of another cell)", "rows (a list of another cell)", "undefined_name (not defined)"):
        assert name in str(error.value)


def test_new_definition_replaces_the_old_one_under_another_function_name_too(notebook):
    notebook.run_cell(TIMING)
    first = generate_source("timing", "mine")
    notebook.run_cell(TIMING.replace("def mine", "def other").replace("delay=0", "delay=window"))
    second = generate_source("timing", "mine")
    assert registry.build("timing", "mine").delay == 4
    assert first.name != second.name and "def other" in second.text and "def mine" not in second.text
    notebook.run_cell(TIMING)
    assert generate_source("timing", "mine") == first


def test_redefined_helper_and_changed_constant_change_the_source(notebook):
    notebook.run_cell("PACE = 1\ndef helper():\n    return PACE\n")
    notebook.run_cell(TIMING.replace("delay=0", "delay=helper()"))
    texts = [source_of()]
    notebook.run_cell("PACE = 3\n")
    texts.append(source_of())
    notebook.run_cell("def helper():\n    return 2 * PACE\n")
    texts.append(source_of())
    assert "PACE = 3" in texts[1] and "2 * PACE" in texts[2] and len(set(texts)) == 3


def test_cell_that_registered_a_class_without_methods_is_found(notebook):
    """A class without methods has no code that names its cell, and here two cells define the class."""
    cell = (
        'from hqlt_lab.components.mixers.sum import Sum\n@register("mixer", "mine")\nclass Mine(Sum):\n    scale = {}\n'
    )
    for scale in (1, 2, 1):
        notebook.run_cell(cell.format(scale))
        assert f"scale = {scale}" in generate_source("mixer", "mine").text


def test_base_class_that_is_a_component_itself_is_copied_without_its_registration(notebook):
    notebook.run_cell(
        "from hqlt_lab.components.mixers._base import Mixer\n"
        '@register("mixer", "first")\n'
        "class First(Mixer):\n"
        "    def weights(self, x):\n"
        "        return 1.0, 1.0\n"
    )
    notebook.run_cell('@register("mixer", "second")\nclass Second(First):\n    reads = ("fw",)\n')
    text = generate_source("mixer", "second").text
    assert text.index("class First(Mixer)") < text.index("class Second(First)")
    assert text.count("register(") == 1


def test_component_registered_by_a_call_in_another_cell_is_found(notebook):
    notebook.run_cell("def window_of_four() -> Schedule:\n    return Schedule(delay=0, window=4)\n")
    notebook.run_cell('register("timing", "mine")(window_of_four)\n')
    assert 'register("timing", "mine")(window_of_four)' in source_of()


def test_delayed_annotations_of_a_notebook_are_kept(notebook):
    notebook.run_cell("from __future__ import annotations\n" + TIMING)
    assert source_of().splitlines()[1] == "from __future__ import annotations"


@pytest.mark.parametrize(
    "cell",
    [
        'register("timing", "mine")(lambda: Schedule(delay=0, window=4))',
        'def make():\n    @register("timing", "mine")\n    def inner() -> Schedule:\n        return 1\nmake()',
    ],
    ids=["lambda", "inside a function"],
)
def test_component_without_a_top_level_definition_is_an_error(notebook, cell):
    notebook.run_cell(cell)
    with raises_issue("timing", "source_not_available"):
        source_of()


def test_component_of_a_cell_cannot_take_the_name_of_a_built_in_one(notebook):
    with raises_issue("timing", "name_registered_twice"):
        notebook.run_cell(TIMING.replace('"mine"', '"synchronous"'))
