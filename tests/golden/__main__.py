"""Write the golden files of messages: `make messages`."""

from tests.golden.config_message_cases import (
    CASES,
    GOLDEN_FILE,
    list_lm_eval_cases,
    render_cases,
    render_file_cases,
)
from tests.golden.message_texts import TEXTS_FILE, render_texts


def write_golden_files() -> None:
    """Write one line for each message."""
    lines = {*render_file_cases(), *render_cases(CASES), *render_cases(list_lm_eval_cases())}
    GOLDEN_FILE.write_text("\n".join(sorted(lines)) + "\n")
    TEXTS_FILE.write_text("\n".join(render_texts()) + "\n")


if __name__ == "__main__":  # preparing data starts processes that import this module
    write_golden_files()
