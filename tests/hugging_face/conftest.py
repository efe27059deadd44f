"""A cell that has learned a text, and its export."""

import pytest

import hqlt_lab as lab
from tests.generation.speakers import trained
from tests.tasks.texts import prepared


@pytest.fixture(scope="session")
def text_cell(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cells")
    return trained(folder, prepared(folder / "data"))


@pytest.fixture(scope="session")
def exported(text_cell, tmp_path_factory):
    return lab.export(text_cell, tmp_path_factory.mktemp("exports") / "small").folder
