"""The UI server is reachable from this machine only, unless --host is given; then by its own names only."""

import json
import socket
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

import pytest

from hqlt_lab.track.ui import network
from hqlt_lab.track.ui.mlflow_asgi_app import RequestCheck
from hqlt_lab.track.ui.server import serve_ui

SEARCH_PATH = "/ajax-api/2.0/mlflow/experiments/search"


def test_by_default_the_server_is_not_public():
    assert not any(network.is_public(host) for host in ("127.0.0.1", "localhost", "::1"))
    assert network.server_url("127.0.0.1", 5000) == "http://127.0.0.1:5000"


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.7"])
def test_a_public_server_warns_and_allows_its_own_names(host):
    assert network.is_public(host)
    assert "anyone who can connect can read and change all runs" in network.exposure_warning(host)
    env = network.server_env(host, 5000)
    names = env["MLFLOW_SERVER_ALLOWED_HOSTS"].split(",")
    assert {"localhost:5000", "127.0.0.1:5000", "[::1]:5000"} <= set(names) and "*" not in names
    assert ("192.0.2.7:5000" in names) is (host == "192.0.2.7")
    assert (f"{socket.gethostname()}:5000" in names) is (host != "192.0.2.7")
    assert "http://localhost:5000" in env["MLFLOW_SERVER_CORS_ALLOWED_ORIGINS"].split(",")


def test_allowed_hosts_set_by_the_user_are_not_overridden(monkeypatch):
    monkeypatch.setenv("MLFLOW_SERVER_ALLOWED_HOSTS", "lab.example.org")
    assert "MLFLOW_SERVER_ALLOWED_HOSTS" not in network.server_env("0.0.0.0", 5000)


def search_status(url, **headers):
    """Return the HTTP status of a search for experiments, as the browser requests it."""
    body = json.dumps({"max_results": 1}).encode()
    return response_status(Request(url + SEARCH_PATH, body, {"Content-Type": "application/json", **headers}))


def read_status(url, **headers):
    """Return the HTTP status of a GET request."""
    return response_status(Request(url, headers=headers))


def response_status(request):
    try:
        with urlopen(request, timeout=20) as response:
            return response.status
    except HTTPError as error:
        error.close()
        return error.code


HOST_HEADERS = {  # -> accepted
    "localhost:5000": True,
    "127.0.0.1:5000": True,
    "[::1]:5000": True,
    "localhost:8080": True,  # ssh -L 8080:127.0.0.1:5000
    "localhost:1.evil.com": False,
    "127.0.0.1:5000.evil.com": False,
    "localhost:": False,
    "": False,
}
ORIGIN_HEADERS = {  # of a request to localhost:5000 -> accepted
    None: True,
    "http://localhost:5000": True,
    "http://lab.example.org": True,  # allowed by its name
    "http://localhost:9999": False,
    "http://localhost": False,
    "http://evil.com": False,
    "null": False,
    "": False,
}


def test_a_host_has_a_number_as_port_and_a_page_is_of_the_same_origin():
    async def app(scope, receive, send): ...

    check = RequestCheck(app, ["http://lab.example.org"])
    assert {host: check.is_accepted(host, None) for host in HOST_HEADERS} == HOST_HEADERS
    assert {page: check.is_accepted("localhost:5000", page) for page in ORIGIN_HEADERS} == ORIGIN_HEADERS
    assert check.is_accepted("localhost:8080", "http://localhost:8080")  # a page behind the tunnel


@pytest.mark.slow
def test_a_local_server_cannot_be_read_by_dns_rebinding_or_written_by_other_local_pages(tracking_store):
    with serve_ui(tracking_store) as url:
        port = url.rpartition(":")[2]
        foreign_hosts = ("10.evil.com", "192.168.evil.com", "172.16.evil.com", "localhost:1.evil.com", "10.0.0.1")
        assert {search_status(url, Host=host) for host in foreign_hosts} == {403}
        own_hosts = ("localhost", f"localhost:{port}", f"127.0.0.1:{port}", f"[::1]:{port}", "localhost:8080")
        assert {search_status(url, Host=host) for host in own_hosts} == {200}
        foreign_origins = ("http://localhost:9999", "http://127.0.0.1", "http://evil.com", "null")
        assert {search_status(url, Origin=origin) for origin in foreign_origins} == {403}
        assert search_status(url, Origin=url) == 200
        assert search_status(url, Host="localhost:8080", Origin="http://localhost:8080") == 200
        # reading is refused too: MLflow would let pages of every server on localhost read the response
        default_experiment = f"{url}/ajax-api/2.0/mlflow/experiments/get?experiment_id=0"
        assert read_status(default_experiment, Origin="http://localhost:9999") == 403
        assert read_status(default_experiment) == 200
        assert read_status(url) == 200


@pytest.mark.slow
def test_a_public_server_is_reachable_by_the_address_of_the_machine(tracking_store):
    local_address = next(network.local_addresses(), None)
    if local_address is None:
        pytest.skip("this machine has only a loopback address")
    with serve_ui(tracking_store) as url:
        assert url.startswith("http://127.0.0.1:") and search_status(url) == 200
        with pytest.raises(URLError):
            urlopen(url.replace("127.0.0.1", local_address), timeout=5)
    with serve_ui(tracking_store, host="0.0.0.0") as url:
        assert network.bracket_ipv6(local_address) in url
        assert search_status(url) == 200
        assert search_status(url, Origin=url) == 200  # a request of the page itself
        assert search_status(url, Host="evil.example.org") == 403  # another name that resolves to this machine
        assert search_status(url, Origin="http://evil.example.org") == 403  # a request of another page
