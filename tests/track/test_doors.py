"""Who reaches the server: this machine alone, unless asked; then all who call it by its name."""

import json
import socket
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

import pytest

from hqlt_lab.track import doors
from hqlt_lab.track.server import serve

SEARCH = "/ajax-api/2.0/mlflow/experiments/search"


def test_by_default_nobody_else_is_let_in():
    assert not any(doors.is_open(host) for host in ("127.0.0.1", "localhost", "::1"))
    assert doors.settings("127.0.0.1", 5000) == {} and doors.address("127.0.0.1", 5000) == "http://127.0.0.1:5000"


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.7"])
def test_an_open_server_says_so_and_knows_its_names(host):
    assert doors.is_open(host) and "everybody who reaches it can read and change all runs" in doors.warning(host)
    told = doors.settings(host, 5000)
    names = told["MLFLOW_SERVER_ALLOWED_HOSTS"].split(",")
    assert {"localhost:5000", "127.0.0.1:5000", "[::1]:5000"} <= set(names) and "*" not in names
    assert ("192.0.2.7:5000" in names) is (host == "192.0.2.7")
    assert (f"{socket.gethostname()}:5000" in names) is (host != "192.0.2.7")
    assert "http://localhost:5000" in told["MLFLOW_SERVER_CORS_ALLOWED_ORIGINS"].split(",")


def test_names_that_the_user_gave_stay(monkeypatch):
    monkeypatch.setenv("MLFLOW_SERVER_ALLOWED_HOSTS", "lab.example.org")
    assert "MLFLOW_SERVER_ALLOWED_HOSTS" not in doors.settings("0.0.0.0", 5000)


def asked(address, **headers):
    """The number that a search for experiments is answered with, as the browser asks for it."""
    body = json.dumps({"max_results": 1}).encode()
    request = Request(address + SEARCH, body, {"Content-Type": "application/json", **headers})
    try:
        with urlopen(request, timeout=20) as answer:
            return answer.status
    except HTTPError as refused:
        refused.close()
        return refused.code


@pytest.mark.slow
def test_a_server_is_reached_by_the_machine_s_own_address_if_it_was_asked_to(tracker):
    network = next(doors.own_addresses(), None)
    if network is None:
        pytest.skip("this machine has no address but its own")
    with serve(tracker) as address:
        assert address.startswith("http://127.0.0.1:") and asked(address) == 200
        with pytest.raises(URLError):
            urlopen(address.replace("127.0.0.1", network), timeout=5)
    with serve(tracker, host="0.0.0.0") as address:
        assert doors.bracketed(network) in address
        assert asked(address) == 200 and asked(address, Origin=address) == 200  # the page itself asks with its origin
        assert asked(address, Host="evil.example.org") == 403  # a name of theirs that leads here
        assert asked(address, Origin="http://evil.example.org") == 403  # a page of theirs
