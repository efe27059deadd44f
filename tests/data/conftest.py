"""Small text to prepare."""

import json

import pytest

from hqlt_lab.data.prepare import prepare
from hqlt_lab.data.request import Request

TEXTS = [f"Document {number}: " + "wörter und Zahlen, " * (number % 7) + str(number**3) for number in range(120)]


@pytest.fixture(scope="session")
def stories(tmp_path_factory):
    """A file of JSON lines with 120 documents."""
    file = tmp_path_factory.mktemp("stories") / "stories.jsonl"
    file.write_text("".join(json.dumps({"text": text}) + "\n" for text in TEXTS))
    return file


@pytest.fixture(scope="session")
def folder(stories, tmp_path_factory):
    """The same, prepared as bytes in shards that are shorter than some documents."""
    into = tmp_path_factory.mktemp("prepared") / "stories"
    prepare(Request(source=str(stories), valid=0.2, test=0.1, shard_tokens=100), into, workers=1)
    return into
