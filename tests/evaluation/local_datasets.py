"""A few documents of each dataset, with the fields of the original, and files that contain them."""

import json
from pathlib import Path

CHOICES = {"text": ["a stone", "the sun", "rain"], "label": ["A", "B", "C"]}
FACT = "The report was written by Ada in the spring. It was printed in Turin. Author: Ada. Place: Turin."

DOCUMENTS = {
    "wikitext": [
        {"page": " = Memory = \n\n A memory holds , as far as it can , what was written . \n" * 3},
        {"page": " = Key = \n It opens @-@ and closes . "},
    ],
    "lambada_openai": [
        {"text": "she wrote the key and then she read the key"},
        {"text": "what the memory holds is what a key has written again"},
    ],
    "piqa": [
        {"goal": "To open a door", "sol1": "use the key", "sol2": "use a much longer lamp", "label": 0},
        {"goal": "To read", "sol1": "close the book", "sol2": "open the book", "label": 1},
        {"goal": "To rest", "sol1": "sit", "sol2": "run", "label": 0},
    ],
    "hellaswag": [
        {
            "ind": number,
            "activity_label": "Cooking",
            "ctx_a": "A pot stands on the fire.",
            "ctx_b": "the cook",
            "ctx": "A pot stands on the fire. the cook",
            "endings": ["stirs it.", "is a pot [substeps] of fire.", "sings to the old wall.", "flies."],
            "label": str(number),
        }
        for number in range(2)
    ],
    "winogrande": [
        {"sentence": "The cup fell because the _ was too high.", "option1": "cup", "option2": "shelf", "answer": "2"},
        {"sentence": "Ada thanked Eve since _ was kind.", "option1": "Ada", "option2": "Eve", "answer": "2"},
    ],
    "arc_easy": [{"id": "1", "question": "What is warm?", "choices": CHOICES, "answerKey": "B"}],
    "arc_challenge": [{"id": "2", "question": "What is hard?", "choices": CHOICES, "answerKey": "A"}],
    "swde": [{"text": f"  {FACT} Author: \n", "key": "author", "value": " Ada ", "doc_id": "1"}],
    "squad_newline": [{"text": f" {FACT} It was written by", "value": "Ada", "doc_id": "2"}],
    "fda": [{"text": f"{FACT}\nPlace:", "key": "place", "value": "Turin", "doc_id": "3"}],
    "fda_original": [
        {"text": f"{FACT}\nplace:", "key": "place", "value": "Turin", "doc_id": "3"},
        {"text": FACT, "key": "a", "value": "Ada", "doc_id": "4"},  # skipped, because the key has one character
    ],
}


def write_local_datasets(folder: Path, names: tuple[str, ...] = tuple(DOCUMENTS)) -> Path:
    """Write the documents of these tasks to a folder and return it."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        lines = (json.dumps(document) + "\n" for document in DOCUMENTS[name])
        (folder / f"{name}.jsonl").write_text("".join(lines))
    return folder
