"""Count how the public functions and methods of a code base are named.

    python tests/project/count_names.py [FOLDER ...]      default: hqlt_lab components registry

Prints two shares: names that are participles or prepositional phrases (`told`, `kept`, `of_memory`), and names of a
single word. Names with a leading underscore, and names of fixed meaning such as `forward`, count like all others.
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

PREPOSITIONS = """
about above across after against along among around as at before behind below beside between beyond by down during
for in inside into near of off on onto out outside over past since through till toward under until up upon via
with within without
"""
IRREGULAR_PARTICIPLES = """
begun bound brought built cut done drawn driven felt forgotten found given gone grown heard held hidden hurt kept
known laid led left lent lost made meant met paid put read said seen sent set shown shut sought spent spoken spread
stood struck swept sworn taken taught thought thrown told understood won worn written asked
"""
NOT_PARTICIPLES = "seed need speed feed embed shed bed red read set put cut"
NOUNS_IN_ING = "string training setting encoding padding mapping timing scoring binding embedding ring thing"


def public_names(folder: Path) -> Iterator[str]:
    for file in sorted(folder.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not node.name.startswith("_"):
                yield node.name


def is_participle(word: str) -> bool:
    if word in NOT_PARTICIPLES.split():
        return False
    return (
        word in IRREGULAR_PARTICIPLES.split()
        or (word.endswith("ed") and len(word) > 3)
        or (word.endswith("ing") and word not in NOUNS_IN_ING.split())
    )


def is_participle_or_prepositional(name: str) -> bool:
    """Return True for `kept`, `of_memory`, `brought_back`, `seen_dead`, but not for hooks such as `on_train_end`."""
    prepositions = PREPOSITIONS.split()
    words = name.rstrip("_").split("_")
    if len(words) == 1:
        return words[0] in prepositions or is_participle(words[0])
    if words[0] == "on":
        return False
    participle_phrase = is_participle(words[0]) and words[1] in prepositions
    return words[0] in prepositions or words[-1] in prepositions or participle_phrase


def main() -> None:
    folders = [Path(name) for name in sys.argv[1:]] or [Path(name) for name in ("hqlt_lab", "components", "registry")]
    names = [name for folder in folders for name in public_names(folder)]
    odd = [name for name in names if is_participle_or_prepositional(name)]
    single = [name for name in names if "_" not in name.rstrip("_")]
    print(f"{len(names)} public functions and methods")
    print(f"participles or prepositional phrases: {len(odd)} ({100 * len(odd) / len(names):.1f} %)")
    print(f"single words: {len(single)} ({100 * len(single) / len(names):.1f} %)")


if __name__ == "__main__":
    main()
