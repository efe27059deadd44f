"""A small source and the data prepared from it."""

import json

import pytest

from hqlt_lab.data.prepare import prepare_data
from hqlt_lab.data.prepare_options import PrepareRequest

TEXTS = [f"Document {number}: " + "wörter und Zahlen, " * (number % 7) + str(number**3) for number in range(120)]


@pytest.fixture(scope="session")
def stories(tmp_path_factory):
    """A JSONL file with 120 documents."""
    file = tmp_path_factory.mktemp("stories") / "stories.jsonl"
    file.write_text("".join(json.dumps({"text": text}) + "\n" for text in TEXTS))
    return file


@pytest.fixture(scope="session")
def folder(stories, tmp_path_factory):
    """The 120 documents prepared as bytes, in shards shorter than some documents."""
    into = tmp_path_factory.mktemp("prepared") / "stories"
    prepare_data(PrepareRequest(source=str(stories), valid=0.2, test=0.1, shard_tokens=100), into, workers=1)
    return into
