"""Security: no source file unpickles, executes strings or trusts remote code, and a study makes no network requests."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.project.test_package_structure import ROOT, source_files

FORBIDDEN_CALLS = ("eval", "exec", "compile", "pickle.load", "pickle.loads", "os.system", "os.popen", "yaml.load")
REQUIRED_KEYWORDS = {"shell": False, "allow_pickle": False, "trust_remote_code": False, "weights_only": True}
SAVE_FUNCTIONS = ("save_checkpoint",)  # their weights_only selects what is saved, not what may be loaded


def function_calls(file):
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func), {keyword.arg: keyword.value for keyword in node.keywords}


def test_no_source_file_executes_what_it_reads():
    for file in source_files():
        for name, keywords in function_calls(file):
            assert name not in FORBIDDEN_CALLS, f"{file}: {name}"
            assert name != "torch.load" or "weights_only" in keywords, file
            for keyword, required in REQUIRED_KEYWORDS.items():
                if keyword in keywords and name.split(".")[-1] not in SAVE_FUNCTIONS:
                    assert ast.literal_eval(keywords[keyword]) is required, f"{file}: {name}({keyword}=...)"


def test_telemetry_of_libraries_is_disabled_unless_the_user_enables_it():
    mlflow, *others = "MLFLOW_DISABLE_TELEMETRY", "HF_HUB_DISABLE_TELEMETRY", "RAY_USAGE_STATS_ENABLED"
    script = f"import os, hqlt_lab; print(*(os.environ[name] for name in {[mlflow, *others]}))"
    env = {name: value for name, value in os.environ.items() if name not in (mlflow, *others)}
    for user_env, expected in (({}, "true 1 0"), ({mlflow: "false"}, "false 1 0")):
        result = subprocess.run([sys.executable, "-c", script], env=env | user_env, capture_output=True, text=True)
        assert result.stdout.split() == expected.split()


def test_audit_is_strict():
    """Without --strict, pip-audit skips packages whose advisories cannot be fetched, and passes."""
    (line,) = [line for line in (ROOT / "Makefile").read_text().splitlines() if "-r constraints.txt" in line]
    assert line.strip().startswith(".audit/bin/pip-audit --strict ")


BLOCKED_NETWORK = """
import os, socket

def is_local(address):
    return not isinstance(address, tuple) or str(address[0]) in ("127.0.0.1", "::1", "localhost", "0.0.0.0", "")

def record_attempt(target):
    with open(os.environ["ATTEMPTS"], "a") as file:
        file.write(f"{target}\\n")

for name in ("connect", "connect_ex", "sendto"):
    def guarded(self, *arguments, _original=getattr(socket.socket, name)):
        if not is_local(arguments[-1]):
            record_attempt(arguments[-1])
            raise OSError("the network is unreachable")
        return _original(self, *arguments)
    setattr(socket.socket, name, guarded)

def guarded_getaddrinfo(host, *arguments, _original=socket.getaddrinfo, **options):
    if not is_local((host or "",)):
        record_attempt(host)
        raise OSError("the network is unreachable")
    return _original(host, *arguments, **options)

socket.getaddrinfo = guarded_getaddrinfo
"""
STUDY = """
question: Does it use the network?
task: {name: parity, train_length: [3, 8], test_length: [8, 16], eval_size: 16}
model: {width: 8, heads: 1, layers: 1, mlp_width: 8, timing: {name: synchronous, window: 4}, mixer: sum}
train: {steps: 4, batch_size: 4, valid_every: 2, checkpoint_every: 2, log_every: 1}
trainer: {accelerator: cpu}
seeds: 1
"""


@pytest.mark.slow
def test_study_makes_no_network_requests(tmp_path):
    """All Python processes of the study have guarded sockets; it is trained, tracked and reported without a request."""
    (tmp_path / "guard").mkdir()
    (tmp_path / "guard/sitecustomize.py").write_text(BLOCKED_NETWORK)
    (tmp_path / "study.yaml").write_text(STUDY)
    env = os.environ | {"PYTHONPATH": str(tmp_path / "guard"), "ATTEMPTS": str(tmp_path / "attempts")}
    for name in ("MLFLOW_TRACKING_URI", "MLFLOW_DISABLE_TELEMETRY", "CI", "PYTEST_CURRENT_TEST", "DO_NOT_TRACK"):
        env.pop(name, None)
    command = [str(Path(sys.executable).with_name("hqlt")), "run", "study.yaml"]
    result = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=240)
    assert result.returncode == 0, result.stderr
    assert (tmp_path / "runs/studies/study/report.html").exists() and (tmp_path / "runs/mlflow.db").exists()
    script = "import socket; socket.create_connection(('192.0.2.1', 9), 1)"
    assert subprocess.run([sys.executable, "-c", script], env=env, capture_output=True).returncode == 1
    assert (tmp_path / "attempts").read_text().splitlines() == ["192.0.2.1"], "the guard itself must work"
