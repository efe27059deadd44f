"""The golden file holds every sentence that users may read. `make messages` writes it again."""

from tests.golden.message_texts import TEXTS_FILE, render_texts
from tests.golden.test_config_messages import UNPLAIN_WORDS


def test_sentences_of_the_source_code_are_those_of_the_golden_file():
    golden, rendered = TEXTS_FILE.read_text().splitlines(), list(render_texts())
    missing, outdated = set(rendered) - set(golden), set(golden) - set(rendered)
    assert (missing, outdated) == (set(), set()), "If the new wording is right, write the golden file: make messages"
    assert len(rendered) > 500


def test_sentences_are_plain():
    assert [line for line in TEXTS_FILE.read_text().splitlines() if UNPLAIN_WORDS.search(line)] == []
