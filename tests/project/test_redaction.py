"""Passwords and tokens are used and never printed or stored."""

import base64
import json
import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from typer.testing import CliRunner

from hqlt_lab import api
from hqlt_lab.cli.app import app
from hqlt_lab.cli.terminal.next_command import NextCommand
from hqlt_lab.redact import has_credentials, redact_secrets, split_credentials
from hqlt_lab.rundir.sync_state import SyncState
from hqlt_lab.track.tracking_store import StoreConnection, TrackingStore
from tests.project.test_security import STUDY

REDACTED = {
    "postgresql://ada:s3cret@host/db": "postgresql://ada:***@host/db",
    "postgresql+psycopg2://ada:s3/cr@et@host/db": "postgresql+psycopg2://ada:***@host/db",
    "http://ada:s3cret@host:5000/x": "http://ada:***@host:5000/x",
    "https://ghp_s3cret@github.com/a/b.git": "https://***@github.com/a/b.git",
    "postgresql://host/db?user=ada&password=s3cret&x=1": "postgresql://host/db?user=ada&password=***&x=1",
    "host=h password=s3cret user=ada": "host=h password=*** user=ada",
    "wasbs://c@a.net/x?sig=s3cret": "wasbs://c@a.net/x?sig=***",
    "Two: http://a:s3cret@h/1 and http://b:s3cret@h/2.": "Two: http://a:***@h/1 and http://b:***@h/2.",
}
WITHOUT_SECRETS = (
    "sqlite:////tmp/mlflow.db",
    "http://127.0.0.1:5000/#/experiments/1",
    "git@github.com:a/b.git",
    "postgresql://ada@host/db",
    "https://host/a@b",
    "seed=1 tokens=512",
)


@pytest.mark.parametrize(("text", "redacted"), REDACTED.items())
def test_password_in_a_url_is_redacted(text, redacted):
    assert redact_secrets(text) == redacted and redact_secrets(redacted) == redacted and has_credentials(text)


@pytest.mark.parametrize("text", WITHOUT_SECRETS)
def test_text_without_secrets_is_unchanged(text):
    assert redact_secrets(text) == text


@pytest.mark.parametrize(
    "name",
    [
        "MLFLOW_TRACKING_PASSWORD", "MLFLOW_TRACKING_TOKEN", "AWS_SECRET_ACCESS_KEY", "HF_TOKEN",
        "SMTP_PASS", "DB_PWD", "GITHUB_PAT", "WANDB_KEY",
    ],
)  # fmt: skip
def test_secrets_of_the_environment_are_redacted_anywhere_in_a_text(name, monkeypatch):
    monkeypatch.setenv(name, "hunter22/hunter")
    assert redact_secrets("login failed (hunter22/hunter), hunter22%2Fhunter") == "login failed (***), ***"


def test_user_names_and_folders_are_not_redacted(monkeypatch):
    monkeypatch.setenv("PGPASSWORD", "postgres")
    monkeypatch.setenv("PWD", "/home/ada/lab")
    monkeypatch.setenv("OLDPWD", "/home/ada/lab")
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "parallel")
    assert redact_secrets("postgresql://ada:postgres@host/db") == "postgresql://ada:***@host/db"
    assert redact_secrets("/home/ada/lab: postgres, parallel") == "/home/ada/lab: ***, parallel"


@pytest.mark.parametrize("secret", ["pa\\ss\"w'örd", "zwölf Wörter", "hunter22", "tab\tand more"])
def test_secrets_are_redacted_as_repr_and_json_write_them_and_inside_of_words(secret, monkeypatch):
    monkeypatch.setenv("MY_PASS", secret)
    escaped = [repr(secret), ascii(secret), json.dumps(secret), json.dumps(secret, ensure_ascii=False)]
    for text in (secret, *(literal[1:-1] for literal in escaped)):
        assert redact_secrets(f"user{text}abc, {text}") == "user***abc, ***"


@pytest.mark.parametrize("secret", ["pa\\ss\"w'\u00f6rd", "it's hunter22", 'say "hunter22"'])
def test_secrets_are_redacted_in_texts_with_other_quotes_and_in_json_that_contains_a_repr(secret, monkeypatch):
    monkeypatch.setenv("MY_PASS", secret)
    contents = [f"user{around}{secret}{around}" for around in ("", "'", '"', "'\"")]
    for content in contents:
        for text in (repr(content), json.dumps(content), json.dumps({"why": repr(content)}), repr(repr(content))):
            redacted = redact_secrets(text)
            assert "***" in redacted and "hunter22" not in redacted and "ss" not in redacted


def test_password_of_a_store_is_redacted_outside_of_its_url(monkeypatch):
    monkeypatch.setenv("HQLT_STORE", "postgresql://ada:p%40ssw0rd@host/db")
    assert redact_secrets("host/db refused ada with p@ssw0rd") == "host/db refused ada with ***"


def test_credentials_of_a_server_are_moved_to_the_variables_of_mlflow(monkeypatch, tmp_path):
    for name in ("MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD"):
        monkeypatch.setenv(name, "")
    store = api.resolve_tracking_store(tmp_path, "http://ada:s3%40cret@host:5000/mlflow")
    assert store == TrackingStore("http://host:5000/mlflow")
    assert os.environ["MLFLOW_TRACKING_USERNAME"] == "ada" and os.environ["MLFLOW_TRACKING_PASSWORD"] == "s3@cret"
    assert split_credentials("http://host:5000") == ("http://host:5000", None, None)


class RecordingHandler(BaseHTTPRequestHandler):
    """Rejects every request and records its Authorization header."""

    def do_GET(self):
        self.server.authorizations.append(self.headers.get("Authorization"))
        self.send_response(200 if self.path == "/health" else 403)
        self.end_headers()

    do_POST = do_GET

    def log_message(self, *_):
        pass


def test_server_receives_the_credentials(monkeypatch, tmp_path):
    for name in ("MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD"):
        monkeypatch.setenv(name, "")
    with HTTPServer(("127.0.0.1", 0), RecordingHandler) as server:
        server.authorizations = []
        threading.Thread(target=server.serve_forever, daemon=True).start()
        store = api.resolve_tracking_store(tmp_path, f"http://ada:s3cret22@127.0.0.1:{server.server_port}")
        with pytest.raises(Exception, match="403"):
            StoreConnection(store).open_client().get_experiment("1")
        server.shutdown()
    assert server.authorizations[-1] == f"Basic {base64.b64encode(b'ada:s3cret22').decode()}"


@pytest.mark.parametrize("uri", ["http://ada:s3cret22@127.0.0.1:9", "postgresql://ada:s3cret22@127.0.0.1:9/db"])
def test_password_is_in_no_message_and_no_suggested_command(uri, tmp_path, monkeypatch):
    for name in ("MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD"):
        monkeypatch.setenv(name, "")
    (tmp_path / "study.yaml").write_text(STUDY)
    warning = api.sync_study(tmp_path / "study.yaml", runs=tmp_path / "runs", tracking=uri)
    assert warning.startswith("MLflow at ") and "is not up to date" in warning and "s3cret22" not in warning
    assert "s3cret22" not in NextCommand(Path("study.yaml"), [], Path("runs"), uri).format_command("ui")
    result = CliRunner().invoke(app, ["ui", "--runs", str(tmp_path / "none"), "--tracking", uri, "--port", "no"])
    assert "s3cret22" not in result.output


def test_password_on_the_command_line_works_with_a_warning(tmp_path):
    uri = "postgresql://ada:s3cret22@127.0.0.1:9/db"
    hqlt = str(Path(sys.executable).with_name("hqlt"))
    result = subprocess.run(
        [hqlt, "run", "nowhere.yaml", "--tracking", uri], cwd=tmp_path, capture_output=True, text=True
    )
    assert "postgresql://ada:***@127.0.0.1:9/db: other users can read a password on the command line" in result.stderr
    assert "Set MLFLOW_TRACKING_URI instead." in result.stderr and "s3cret22" not in result.stdout + result.stderr


def test_stored_uri_of_a_tracking_store_is_redacted():
    assert TrackingStore("postgresql://ada:s3cret@host/db").redacted_uri == "postgresql://ada:***@host/db"
    assert TrackingStore("sqlite:////tmp/x.db").redacted_uri == "sqlite:////tmp/x.db"
    assert "uri" in SyncState.__annotations__


LEAKING_MIXER = '''
"""A mixer whose error message contains secrets."""
import os
from hqlt_lab.components.mixers._base import Mixer
from hqlt_lab.registry import register

@register("mixer", "leak")
class Leak(Mixer):
    """Leak: raises an error with a password."""
    def forward(self, x, fw, kv):
        password = os.environ["MLFLOW_TRACKING_PASSWORD"]
        raise RuntimeError(f"no {password} at postgresql://ada:{os.environ['OTHER']}@host/db")
'''


@pytest.mark.slow
def test_study_leaks_no_secret_to_its_files_and_output(tmp_path):
    """Secrets are in the environment, in URLs, in the repository and its diff, and in a component's error."""
    names = ("MLFLOW_TRACKING_PASSWORD", "MLFLOW_TRACKING_TOKEN", "OTHER", "AWS_SECRET_ACCESS_KEY")
    secrets = {name: f"hunter-22-{letter * 4}" for name, letter in zip(names, "abcd", strict=True)}
    inherited = {name: value for name, value in os.environ.items() if name != "MLFLOW_TRACKING_URI"}
    env = inherited | secrets | {"DATABASE_URL": "postgresql://ada:hunter-22-eeee@host/db"}
    arms = "launcher: {retries: 0}\narms: {../../../fine: {}, leak: {model.mixer: leak}}\n"
    (tmp_path / "study.yaml").write_text(STUDY + arms)
    (tmp_path / "leak.py").write_text(LEAKING_MIXER)
    (tmp_path / "notes.txt").write_text("old\n")
    commit = "-c user.name=a -c user.email=a@b commit -qm x"
    for arguments in ("init -q", "add .", commit, "remote add origin https://hunter-22-ffff@host/x"):
        subprocess.run(["git", *arguments.split()], cwd=tmp_path, check=True)
    (tmp_path / "notes.txt").write_text("hunter-22-dddd\nhttps://ada:hunter-22-gggg@host/x\n")

    def run_hqlt(*arguments):
        command = [str(Path(sys.executable).with_name("hqlt")), "--with", "leak.py", *arguments]
        return subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=240)

    before = {file.name for file in tmp_path.iterdir()}
    run, status = run_hqlt("run", "study.yaml"), run_hqlt("status", "study.yaml")
    assert run.returncode == 3, run.stderr
    assert "RuntimeError: no *** at postgresql://ada:***@host/db" in status.stdout
    contents = {file: file.read_bytes() for file in (tmp_path / "runs").rglob("*") if file.is_file()}
    contents["output"] = (run.stdout + run.stderr + status.stdout + status.stderr).encode()
    diff = next(content for name, content in contents.items() if str(name).endswith(".diff"))
    assert b"+***\n+https://ada:***@host/x" in diff and any(str(name).endswith("mlflow.db") for name in contents)
    assert not {str(name) for name, content in contents.items() if b"hunter-22-" in content}
    created = {file.name for file in tmp_path.iterdir()} - before - {"__pycache__"}
    assert created == {"runs"}, "the arm name ../../../fine must not lead out of the runs folder"
