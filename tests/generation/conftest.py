"""Fixture with a trained language-model cell."""

import pytest

from tests.generation.text_models import train_language_cell
from tests.tasks.small_corpus import prepare_small_corpus


@pytest.fixture(scope="session")
def text_cell(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cells")
    return train_language_cell(folder, prepare_small_corpus(folder / "data"))
