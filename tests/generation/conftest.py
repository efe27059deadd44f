"""A cell that has learned a text."""

import pytest

from tests.generation.speakers import trained
from tests.tasks.texts import prepared


@pytest.fixture(scope="session")
def text_cell(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cells")
    return trained(folder, prepared(folder / "data"))
