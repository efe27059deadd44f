"""What the README says is what happens."""

import re
import subprocess
import sys
from pathlib import Path

import hqlt_lab as lab
from hqlt_lab.registry import KINDS, available

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def test_the_python_of_the_readme_runs_from_top_to_bottom(tmp_path):
    (tmp_path / "readme.py").write_text("\n".join(blocks("python")))
    subprocess.run([sys.executable, "-W", "error", "readme.py"], cwd=tmp_path, check=True)


def test_composing_a_model_takes_five_lines_and_a_new_rule_less_than_sixty():
    compose, rule, _ = blocks("python")
    assert len([line for line in compose.splitlines() if line]) <= 5
    assert len(rule.splitlines()) < 60


def test_the_commands_of_the_readme_exist():
    commands = [line.split("#")[0].split() for block in blocks("bash") for line in block.splitlines()]
    targets = {words[1] for words in commands if words[0] == "make"}
    assert all(f"\n{target}:" in (ROOT / "Makefile").read_text() for target in targets)
    verbs = {
        word
        for words in commands
        if words[0] == "hqlt"
        for word in words
        if word in ("list", "show", "doctor", "new", "check")
    }
    helped = subprocess.run(
        [Path(sys.executable).parent / "hqlt", "--help"], capture_output=True, text=True, check=True
    )
    assert verbs and all(verb in helped.stdout for verb in verbs)


def test_the_readme_lists_parts_that_exist():
    for kind in KINDS:
        row = next(line for line in README.splitlines() if line.startswith(f"| `{kind}`"))
        assert set(re.findall(r"`(\w+)`", row)[1:]) <= set(available(kind))


def test_the_baselines_of_the_readme_build():
    for row in README.splitlines():
        if row.startswith(("| HQLT of", "| DeltaNet", "| Transformer++")):
            settings = ", ".join(re.findall(r"`([^`]+)`", row))
            assert eval(f"build(width=16, heads=2, {settings})", {"build": lab.build_model})
