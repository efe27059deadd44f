"""The notebooks page, executed as a notebook in a real kernel."""

import re

import nbformat
import pytest
from nbclient import NotebookClient
from traitlets.config import Config

from tests.project.doc_pages import ROOT, code_blocks

UNCOPIED_NAME_CELLS = [
    "import torch\nbias = torch.zeros(1)",
    '@lab.register("mixer", "fixed_share")\nclass FixedShare(Mixer):\n'
    "    def weights(self, x: Tensor) -> tuple[Weight, Weight]:\n        return bias, bias",
    'lab.run("shares.yaml", overrides=["seeds=3"])',
]


@pytest.fixture(scope="module")
def notebook(tmp_path_factory):
    """The notebook with the cells of the page, and one more that must fail, after execution."""
    page = (ROOT / "docs/notebooks.md").read_text()
    sources = [block.text for block in code_blocks(page) if block.language == "python"] + UNCOPIED_NAME_CELLS
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source.strip()) for source in sources])
    notebook.cells[-1].metadata["tags"] = ["raises-exception"]
    folder = tmp_path_factory.mktemp("notebook")
    # sockets in the folder instead of ports of this machine
    config = Config({"KernelManager": {"transport": "ipc", "ip": str(folder / "kernel")}})
    resources = {"metadata": {"path": str(folder)}}
    NotebookClient(notebook, config=config, timeout=600, startup_timeout=300, resources=resources).execute()
    return notebook


def outputs_of(notebook, start):
    """Return the outputs of the last cell that begins with this text, or is it."""
    cells = [cell for cell in notebook.cells if cell.source == start]
    return (cells or [cell for cell in notebook.cells if cell.source.startswith(start)])[-1].outputs


@pytest.mark.slow
def test_notebooks_page_does_what_it_says_in_a_kernel(notebook):
    (progress,) = outputs_of(notebook, "result = lab.run")
    assert progress.data == {"text/plain": "4 of 4 cells finished"}
    (report,) = outputs_of(notebook, "result")
    assert re.findall(r'<th scope="row">(.*?)</th>', report.data["text/html"]) == ["sum", "fixed_share"]
    assert report.data["text/plain"].startswith("# Is a fixed share") and "\n| sum | 2 |" in report.data["text/plain"]
    (table,) = outputs_of(notebook, "table = lab.results")
    assert table.data["text/html"].count("<td>done</td>") == 4
    (warning,) = outputs_of(notebook, 'lab.make_report("shares.yaml").warnings')
    assert "mixer fixed_share changed after 2 finished cells" in warning.data["text/plain"]
    progress, report = outputs_of(notebook, 'lab.run("shares.yaml", again')
    assert progress.data == {"text/plain": "4 of 4 cells finished"} and "changed after" not in report.data["text/html"]


@pytest.mark.slow
def test_cells_print_nothing_but_their_results(notebook):
    """No warnings, no progress bars, and nothing that workers or libraries print."""
    printed = [output for cell in notebook.cells for output in cell.outputs if output.output_type == "stream"]
    assert [output.text for output in printed] == ["Writing shares.yaml\n"]


@pytest.mark.slow
def test_name_that_cannot_be_copied_is_an_error_before_training(notebook):
    (error,) = [output for output in notebook.cells[-1].outputs if output.output_type == "error"]
    assert error.ename == "RegistryError" and "bias (a Tensor of another cell)" in error.evalue
    assert [output.output_type for output in notebook.cells[-1].outputs] == ["error"]
