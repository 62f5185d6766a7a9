"""Which registry `elastic doctor` asks."""

import http.server
import urllib.request

import pytest
from support.docker_doors import http_server

from elastic.platforms.kubernetes.job.installing import check_registry
from elastic.platforms.registry import Outcome


@pytest.fixture
def asked(monkeypatch):
    """Whom this process wants to reach by TLS, through a proxy that lets it reach nobody."""
    hosts = []

    class Proxy(http.server.BaseHTTPRequestHandler):
        def do_CONNECT(self):
            hosts.append(self.path)
            self.send_error(403)

        def log_message(self, *_):
            pass

    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with http_server(Proxy) as address:
        monkeypatch.setenv("https_proxy", f"http://{address}")
        # The opener of a process keeps the proxies that it has found first.
        urllib.request.install_opener(None)
        yield hosts
        urllib.request.install_opener(None)


@pytest.mark.parametrize(
    ("repository", "name", "address"),
    [
        ("team", "docker.io", "registry-1.docker.io"),
        ("docker.io/team", "docker.io", "registry-1.docker.io"),
        ("index.docker.io/team/x", "docker.io", "registry-1.docker.io"),
        ("r.example.com/team", "r.example.com", "r.example.com"),
        ("Registry/team", "Registry", "Registry"),
    ],
)
def test_docker_hub_is_asked_where_it_answers_and_told_by_its_name(
    asked, repository, name, address
):
    check = check_registry(repository)
    assert asked == [f"{address}:443"]
    assert check.outcome is Outcome.FAILURE
    assert check.text.startswith(f"{name} does not answer: ")
