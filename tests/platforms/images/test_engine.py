"""Ways to a Docker engine, and what is said where there is none."""

import http.server
import json
import os
import shutil
import socket
from contextlib import closing
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from support.docker_doors import Certificates, http_server, tcp_engine

from elastic.errors import ImageError, PlatformError
from elastic.platforms.images.build import DockerEngine, build, push
from elastic.platforms.images.context import ImageRequest

DEFAULT = "unix://var/run/docker.sock"
DIGEST = f"sha256:{'a' * 64}"


def ignore(_progress):
    pass


@pytest.fixture(autouse=True)
def no_docker_settings(monkeypatch, tmp_path):
    for name in ("DOCKER_HOST", "DOCKER_TLS_VERIFY", "DOCKER_CERT_PATH", "DOCKER_CONTEXT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "docker"))


def connect(**settings):
    DockerEngine.connect(ImageRequest(Path(), **settings)).close()


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def test_no_engine_is_said_before_anything_is_done(zoo):
    with pytest.raises(PlatformError) as caught:
        build(ImageRequest(zoo, docker_base_url="unix:///no/such.sock"), ignore)
    text = str(caught.value)
    assert text.startswith("no Docker engine can be used at unix:///no/such.sock: ")
    assert "No such file" in text
    assert text.endswith(
        "\nstart it, or name another with --docker_base_url or DOCKER_HOST; "
        "a ready image runs without an engine: --image"
    )


def test_an_address_that_nobody_listens_at():
    url = f"tcp://127.0.0.1:{free_port()}"
    with pytest.raises(PlatformError, match=f"no Docker engine can be used at {url}: "):
        connect(docker_base_url=url)


def test_something_else_that_answers():
    class Other(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, *_):
            pass

    answer = "what answers there is no Docker engine"
    with http_server(Other) as address, pytest.raises(PlatformError, match=answer):
        connect(docker_base_url=f"tcp://{address}")


def test_an_address_that_is_none():
    with pytest.raises(PlatformError, match="no Docker engine can be used at nonsense://x: "):
        connect(docker_base_url="nonsense://x")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may use every socket")
def test_an_engine_of_somebody_else(tmp_path):
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "engine.sock"))
        (tmp_path / "engine.sock").chmod(0)
        with pytest.raises(PlatformError, match="ask to become a member of its group"):
            connect(docker_base_url=f"unix://{tmp_path}/engine.sock")


class PullingEngine(http.server.BaseHTTPRequestHandler):
    """Pulls nothing, and answers with what it was asked for."""

    def do_GET(self):
        self._answer(b'{"ApiVersion": "1.44"}')

    def do_POST(self):
        asked = {key: value for key, (value,) in parse_qs(urlsplit(self.path).query).items()}
        self._answer(json.dumps({"error": f"{asked['fromImage']} {asked['tag']}"}).encode())

    def _answer(self, body):
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@pytest.mark.parametrize(
    ("reference", "asked"),
    [
        ("python", "python latest"),
        ("python:3.11-slim", "python 3.11-slim"),
        ("r.io:5000/t/base", "r.io:5000/t/base latest"),
        (f"python@{DIGEST}", f"python {DIGEST}"),
        (f"python:3.11-slim@{DIGEST}", f"python {DIGEST}"),
        (f"r.io:5000/t/base@{DIGEST}", f"r.io:5000/t/base {DIGEST}"),
        (f"r.io:5000/t/base:2@{DIGEST}", f"r.io:5000/t/base {DIGEST}"),
    ],
)
def test_an_engine_is_asked_for_the_tag_or_the_digest_of_an_image(reference, asked):
    with http_server(PullingEngine) as address:
        request = ImageRequest(Path(), docker_base_url=f"tcp://{address}")
        engine = DockerEngine.connect(request)
        with closing(engine), pytest.raises(ImageError) as caught:
            engine.pull(reference, ignore)
    assert str(caught.value).startswith(f"{reference} cannot be pulled: {asked}\n")


def test_missing_certificates_are_named():
    with pytest.raises(PlatformError, match="check --docker_tlscacert, --docker_tlscert and"):
        connect(docker_base_url="tcp://127.0.0.1:1", docker_tlscert="/no/cert", docker_tlskey="k")


@pytest.mark.cluster
def test_the_address_of_docker_replaces_the_default(lab, monkeypatch):
    with tcp_engine() as (host, port):
        monkeypatch.setenv("DOCKER_HOST", f"tcp://{host}:{port}")
        connect(docker_base_url=DEFAULT)
    monkeypatch.setenv("DOCKER_HOST", "unix:///no/such.sock")
    with pytest.raises(PlatformError, match=r"at unix:///no/such\.sock: "):
        connect(docker_base_url=DEFAULT)
    with tcp_engine() as (host, port):
        connect(docker_base_url=f"tcp://{host}:{port}")


@pytest.mark.cluster
def test_the_context_of_docker_replaces_the_default(lab, tmp_path, monkeypatch):
    from docker.context import ContextAPI

    (tmp_path / "docker").mkdir()
    # Contexts are kept beside the configuration.
    (tmp_path / "docker" / "config.json").write_text("{}")
    ContextAPI.create_context("elsewhere", host="unix:///no/such.sock")
    connect(docker_base_url=DEFAULT)
    config = {"currentContext": "elsewhere"}
    (tmp_path / "docker" / "config.json").write_text(json.dumps(config))
    with pytest.raises(PlatformError, match=r"at unix:///no/such\.sock: "):
        connect(docker_base_url=DEFAULT)
    monkeypatch.setenv("DOCKER_CONTEXT", "default")
    connect(docker_base_url=DEFAULT)
    monkeypatch.setenv("DOCKER_CONTEXT", "none-such")
    with pytest.raises(PlatformError, match="there is no Docker context 'none-such'"):
        connect(docker_base_url=DEFAULT)


@pytest.mark.cluster
@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl to make certificates")
def test_tls_proves_both_sides(lab, tmp_path, monkeypatch):
    keys = Certificates(tmp_path)
    certificate, key = map(str, keys.client)
    with tcp_engine(keys.server_tls()) as (host, port):
        url = f"tcp://{host}:{port}"
        connect(
            docker_base_url=url,
            docker_tlscacert=str(keys.ca),
            docker_tlscert=certificate,
            docker_tlskey=key,
        )
        # The engine refuses a client without a certificate …
        with pytest.raises(PlatformError, match="check --docker_tlscacert"):
            connect(docker_base_url=url, docker_tlscacert=str(keys.ca))
        # … and the client an engine that no authority it knows has signed for.
        with pytest.raises(PlatformError, match="certificate verify failed"):
            connect(docker_base_url=url, docker_tlscert=certificate, docker_tlskey=key)
        for name, value in (("HOST", url), ("TLS_VERIFY", "1"), ("CERT_PATH", str(tmp_path))):
            monkeypatch.setenv(f"DOCKER_{name}", value)
        connect(docker_base_url=DEFAULT)


@pytest.mark.cluster
def test_an_engine_that_goes_away(lab):
    with tcp_engine() as (host, port):
        url = f"tcp://{host}:{port}"
        engine = DockerEngine.connect(ImageRequest(Path(), docker_base_url=url))
        assert engine.image_id(lab.base) is not None
    with pytest.raises(PlatformError) as caught:
        engine.image_id(lab.base)
    engine.close()
    assert str(caught.value).startswith(f"the Docker engine at {url} failed: ")
    assert str(caught.value).endswith("; try again, or run a ready image with --image")


@pytest.mark.cluster
def test_an_image_that_is_not_there_cannot_be_pushed(lab):
    with pytest.raises(ImageError, match="has no image no/such:1: build it with elastic zoo build"):
        push(ImageRequest(Path()), "no/such:1", ignore)


@pytest.mark.cluster
def test_a_name_that_no_image_can_have(lab, small_zoo):
    with pytest.raises(ImageError, match=r"X Y cannot name an image: .*; write REGISTRY/NAME:TAG"):
        build(ImageRequest(small_zoo), ignore, name="X Y")
