"""What is trusted: no source of the lab reads pickles, runs strings or trusts the code of others."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.house.test_tree import ROOT, sources

NEVER = ("eval", "exec", "compile", "pickle.load", "pickle.loads", "os.system", "os.popen", "yaml.load")
WORDS = {"shell": False, "allow_pickle": False, "trust_remote_code": False, "weights_only": True}
SAVING = ("save_checkpoint",)  # says what is left out, not what may be read


def calls(file):
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func), {word.arg: word.value for word in node.keywords}


def test_no_source_runs_what_it_reads():
    for file in sources():
        for name, words in calls(file):
            assert name not in NEVER, f"{file}: {name}"
            assert name != "torch.load" or "weights_only" in words, file
            for word, needed in WORDS.items():
                if word in words and name.split(".")[-1] not in SAVING:
                    assert ast.literal_eval(words[word]) is needed, f"{file}: {name}({word}=...)"


def test_libraries_that_would_tell_who_uses_them_are_told_not_to():
    mlflow, *others = "MLFLOW_DISABLE_TELEMETRY", "HF_HUB_DISABLE_TELEMETRY", "RAY_USAGE_STATS_ENABLED"
    script = f"import os, hqlt_lab; print(*(os.environ[name] for name in {[mlflow, *others]}))"
    free = {name: value for name, value in os.environ.items() if name not in (mlflow, *others)}
    for given, found in (({}, "true 1 0"), ({mlflow: "false"}, "false 1 0")):
        told = subprocess.run([sys.executable, "-c", script], env=free | given, capture_output=True, text=True)
        assert told.stdout.split() == found.split()


def test_the_audit_does_not_call_unknown_packages_safe():
    """Where advisories cannot be reached, pip-audit skips every package and finds nothing: strictly, a failure."""
    (line,) = [line for line in (ROOT / "Makefile").read_text().splitlines() if "-r constraints.txt" in line]
    assert line.strip().startswith(".audit/bin/pip-audit --strict ")


DEAF = """
import os, socket

def local(address):
    return not isinstance(address, tuple) or str(address[0]) in ("127.0.0.1", "::1", "localhost", "0.0.0.0", "")

def note(what):
    with open(os.environ["ATTEMPTS"], "a") as file:
        file.write(f"{what}\\n")

for name in ("connect", "connect_ex", "sendto"):
    def guarded(self, *given, _before=getattr(socket.socket, name)):
        if not local(given[-1]):
            note(given[-1])
            raise OSError("the network is out of reach")
        return _before(self, *given)
    setattr(socket.socket, name, guarded)

def looked_up(host, *given, _before=socket.getaddrinfo, **words):
    if not local((host or "",)):
        note(host)
        raise OSError("the network is out of reach")
    return _before(host, *given, **words)

socket.getaddrinfo = looked_up
"""
STUDY = """
question: Does it speak to anybody?
task: {name: parity, train_length: [3, 8], test_length: [8, 16], eval_size: 16}
model: {width: 8, heads: 1, layers: 1, mlp_width: 8, timing: {name: synchronous, window: 4}, mixer: sum}
train: {steps: 4, batch_size: 4, valid_every: 2, checkpoint_every: 2, log_every: 1}
trainer: {accelerator: cpu}
seeds: 1
"""


@pytest.mark.slow
def test_a_study_speaks_to_nobody(tmp_path):
    """Every Python that it starts has its sockets watched: trained, tracked and reported without one call."""
    (tmp_path / "watch").mkdir()
    (tmp_path / "watch/sitecustomize.py").write_text(DEAF)
    (tmp_path / "study.yaml").write_text(STUDY)
    told = os.environ | {"PYTHONPATH": str(tmp_path / "watch"), "ATTEMPTS": str(tmp_path / "attempts")}
    for name in ("MLFLOW_TRACKING_URI", "MLFLOW_DISABLE_TELEMETRY", "CI", "PYTEST_CURRENT_TEST", "DO_NOT_TRACK"):
        told.pop(name, None)
    command = [str(Path(sys.executable).with_name("hqlt")), "run", "study.yaml"]
    ran = subprocess.run(command, cwd=tmp_path, env=told, capture_output=True, text=True, timeout=240)
    assert ran.returncode == 0, ran.stderr
    assert (tmp_path / "runs/studies/study/report.html").exists() and (tmp_path / "runs/mlflow.db").exists()
    script = "import socket; socket.create_connection(('192.0.2.1', 9), 1)"
    assert subprocess.run([sys.executable, "-c", script], env=told, capture_output=True).returncode == 1
    assert (tmp_path / "attempts").read_text().splitlines() == ["192.0.2.1"], "the watch itself works"
