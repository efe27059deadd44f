"""Passwords and tokens: used, and never told."""

import base64
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
from hqlt_lab.cli.studies import Typed
from hqlt_lab.secrets import holds_password, parted, scrubbed
from hqlt_lab.track.sent import Sent
from hqlt_lab.track.store import Store, Tracker
from tests.house.test_security import STUDY

SCRUBBED = {
    "postgresql://ada:s3cret@host/db": "postgresql://ada:***@host/db",
    "postgresql+psycopg2://ada:s3/cr@et@host/db": "postgresql+psycopg2://ada:***@host/db",
    "http://ada:s3cret@host:5000/x": "http://ada:***@host:5000/x",
    "https://ghp_s3cret@github.com/a/b.git": "https://***@github.com/a/b.git",
    "postgresql://host/db?user=ada&password=s3cret&x=1": "postgresql://host/db?user=ada&password=***&x=1",
    "host=h password=s3cret user=ada": "host=h password=*** user=ada",
    "wasbs://c@a.net/x?sig=s3cret": "wasbs://c@a.net/x?sig=***",
    "Two: http://a:s3cret@h/1 and http://b:s3cret@h/2.": "Two: http://a:***@h/1 and http://b:***@h/2.",
}
PLAIN = (
    "sqlite:////tmp/mlflow.db",
    "http://127.0.0.1:5000/#/experiments/1",
    "git@github.com:a/b.git",
    "postgresql://ada@host/db",
    "https://host/a@b",
    "seed=1 tokens=512",
)


@pytest.mark.parametrize(("text", "left"), SCRUBBED.items())
def test_a_password_in_an_address_is_blotted_out(text, left):
    assert scrubbed(text) == left and scrubbed(left) == left and holds_password(text)


@pytest.mark.parametrize("text", PLAIN)
def test_what_holds_no_secret_stays(text):
    assert scrubbed(text) == text


@pytest.mark.parametrize(
    "name", ["MLFLOW_TRACKING_PASSWORD", "MLFLOW_TRACKING_TOKEN", "AWS_SECRET_ACCESS_KEY", "HF_TOKEN"]
)
def test_secrets_of_the_environment_are_blotted_out_wherever_they_stand(name, monkeypatch):
    monkeypatch.setenv(name, "hunter22/hunter")
    assert scrubbed("login failed (hunter22/hunter), hunter22%2Fhunter") == "login failed (***), ***"


def test_words_that_hold_a_secret_stay_and_folders_are_none(monkeypatch):
    monkeypatch.setenv("PGPASSWORD", "postgres")
    monkeypatch.setenv("PWD", "/home/ada/lab")
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "parallel")
    assert scrubbed("postgresql://ada:postgres@host/db") == "postgresql://ada:***@host/db"
    assert scrubbed("/home/ada/lab: postgres, parallel") == "/home/ada/lab: ***, parallel"


def test_the_password_of_a_store_is_blotted_out_where_it_stands_alone(monkeypatch):
    monkeypatch.setenv("HQLT_STORE", "postgresql://ada:p%40ssw0rd@host/db")
    assert scrubbed("host/db refused ada with p@ssw0rd") == "host/db refused ada with ***"


def test_the_login_of_a_server_goes_where_mlflow_looks_for_it(monkeypatch, tmp_path):
    for name in ("MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD"):
        monkeypatch.setenv(name, "")
    tracker = api.tracker_of(tmp_path, "http://ada:s3%40cret@host:5000/mlflow")
    assert tracker == Tracker("http://host:5000/mlflow")
    assert os.environ["MLFLOW_TRACKING_USERNAME"] == "ada" and os.environ["MLFLOW_TRACKING_PASSWORD"] == "s3@cret"
    assert parted("http://host:5000") == ("http://host:5000", None, None)


class Door(BaseHTTPRequestHandler):
    """Answers nothing, and remembers who asked."""

    def do_GET(self):
        self.server.seen.append(self.headers.get("Authorization"))
        self.send_response(200 if self.path == "/health" else 403)
        self.end_headers()

    do_POST = do_GET

    def log_message(self, *_):
        pass


def test_a_server_is_told_who_logs_in(monkeypatch, tmp_path):
    for name in ("MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD"):
        monkeypatch.setenv(name, "")
    with HTTPServer(("127.0.0.1", 0), Door) as server:
        server.seen = []
        threading.Thread(target=server.serve_forever, daemon=True).start()
        tracker = api.tracker_of(tmp_path, f"http://ada:s3cret22@127.0.0.1:{server.server_port}")
        with pytest.raises(Exception, match="403"):
            Store(tracker).open().get_experiment("1")
        server.shutdown()
    assert server.seen[-1] == f"Basic {base64.b64encode(b'ada:s3cret22').decode()}"


@pytest.mark.parametrize("uri", ["http://ada:s3cret22@127.0.0.1:9", "postgresql://ada:s3cret22@127.0.0.1:9/db"])
def test_neither_sentences_nor_commands_tell_a_password(uri, tmp_path, monkeypatch):
    for name in ("MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD"):
        monkeypatch.setenv(name, "")
    (tmp_path / "study.yaml").write_text(STUDY)
    behind = api.catch_up(tmp_path / "study.yaml", runs=tmp_path / "runs", tracking=uri)
    assert behind.startswith("MLflow at ") and "does not have everything yet" in behind and "s3cret22" not in behind
    assert "s3cret22" not in Typed(Path("study.yaml"), [], Path("runs"), uri).with_verb("ui")
    told = CliRunner().invoke(app, ["ui", "--runs", str(tmp_path / "none"), "--tracking", uri, "--port", "no"])
    assert "s3cret22" not in told.output


def test_a_password_on_the_command_line_works_and_is_warned_of(tmp_path):
    uri = "postgresql://ada:s3cret22@127.0.0.1:9/db"
    hqlt = str(Path(sys.executable).with_name("hqlt"))
    told = subprocess.run(
        [hqlt, "run", "nowhere.yaml", "--tracking", uri], cwd=tmp_path, capture_output=True, text=True
    )
    assert "postgresql://ada:***@127.0.0.1:9/db: a password on the command line can be read by others" in told.stderr
    assert "Put it into MLFLOW_TRACKING_URI." in told.stderr and "s3cret22" not in told.stdout + told.stderr


def test_what_is_noted_of_a_store_holds_no_password():
    assert Tracker("postgresql://ada:s3cret@host/db").shown == "postgresql://ada:***@host/db"
    assert Tracker("sqlite:////tmp/x.db").shown == "sqlite:////tmp/x.db"
    assert "uri" in Sent.__annotations__


LEAK = '''
"""A mixer that complains with all it knows."""
import os
from hqlt_lab.components.mixers._base import Mixer
from hqlt_lab.registry import register

@register("mixer", "leak")
class Leak(Mixer):
    """Leak: it fails, and tells why."""
    def forward(self, x, fw, kv):
        password = os.environ["MLFLOW_TRACKING_PASSWORD"]
        raise RuntimeError(f"no {password} at postgresql://ada:{os.environ['OTHER']}@host/db")
'''


@pytest.mark.slow
def test_a_study_with_secrets_everywhere_keeps_them_all(tmp_path):
    """In the environment, in addresses, in the repository and its changes, in what a part complains of."""
    names = ("MLFLOW_TRACKING_PASSWORD", "MLFLOW_TRACKING_TOKEN", "OTHER", "AWS_SECRET_ACCESS_KEY")
    secrets = {name: f"hunter-22-{letter * 4}" for name, letter in zip(names, "abcd", strict=True)}
    here = {name: value for name, value in os.environ.items() if name != "MLFLOW_TRACKING_URI"}  # other tests' store
    env = here | secrets | {"DATABASE_URL": "postgresql://ada:hunter-22-eeee@host/db"}
    arms = "launcher: {retries: 0}\narms: {../../../fine: {}, leak: {model.mixer: leak}}\n"
    (tmp_path / "study.yaml").write_text(STUDY + arms)
    (tmp_path / "leak.py").write_text(LEAK)
    (tmp_path / "notes.txt").write_text("old\n")
    commit = "-c user.name=a -c user.email=a@b commit -qm x"
    for words in ("init -q", "add .", commit, "remote add origin https://hunter-22-ffff@host/x"):
        subprocess.run(["git", *words.split()], cwd=tmp_path, check=True)
    (tmp_path / "notes.txt").write_text("hunter-22-dddd\nhttps://ada:hunter-22-gggg@host/x\n")

    def typed(*words):
        command = [str(Path(sys.executable).with_name("hqlt")), "--with", "leak.py", *words]
        return subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=240)

    before = {file.name for file in tmp_path.iterdir()}
    told, shown = typed("run", "study.yaml"), typed("status", "study.yaml")
    assert told.returncode == 3, told.stderr
    assert "RuntimeError: no *** at postgresql://ada:***@host/db" in shown.stdout
    pages = {file: file.read_bytes() for file in (tmp_path / "runs").rglob("*") if file.is_file()}
    pages["output"] = (told.stdout + told.stderr + shown.stdout + shown.stderr).encode()
    diff = next(page for name, page in pages.items() if str(name).endswith(".diff"))
    assert b"+***\n+https://ada:***@host/x" in diff and any(str(name).endswith("mlflow.db") for name in pages)
    assert not {str(name) for name, page in pages.items() if b"hunter-22-" in page}
    made = {file.name for file in tmp_path.iterdir()} - before - {"__pycache__"}
    assert made == {"runs"}, "an arm's name leads nowhere"
