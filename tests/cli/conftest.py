import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from elastic.cli.main import main

MODULE = """\
import torch


class CustomModel(torch.nn.Module):
    def __init__(self, units=1):
        super().__init__()

    def forward(self, features):
        return features


def loss(labels, predictions):
    return (labels - predictions).mean()


def optimizer(parameters):
    return torch.optim.SGD(parameters, lr=0.1)


def dataset_fn(dataset, mode):
    return dataset


def eval_metrics_fn():
    return {}
"""


@pytest.fixture(autouse=True)
def no_cluster(monkeypatch, tmp_path):
    """Keep the settings of whoever runs the tests out of them."""
    for name in ("ELASTIC_PLATFORM", "NO_COLOR", "ELASTIC_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    # A cluster is meant where no platform is named, and there is none to be asked.
    monkeypatch.setenv("KUBECONFIG", "/none")


@pytest.fixture
def zoo(tmp_path, monkeypatch):
    """A working directory with a model zoo whose module keeps the contract, and with records."""
    (tmp_path / "zoo").mkdir()
    (tmp_path / "zoo" / "mnist.py").write_text(MODULE)
    (tmp_path / "data" / "train").mkdir(parents=True)
    (tmp_path / "data" / "train" / "records.csv").write_text("1,2\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def run(capsys):
    """Run one command; gives its exit code, standard output and standard error."""

    def call(*argv, platform=None):
        code = main([str(part) for part in argv], open_platform=platform)
        captured = capsys.readouterr()
        return int(code), captured.out, captured.err

    return call


@pytest.fixture
def registry_that_answers():
    """Start a registry that gives every request the same answer; None closes its door."""
    servers = []

    def start(answer):
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                self.send_response(answer)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *args):
                return

        server = HTTPServer(("127.0.0.1", 0), Handler)
        host = f"127.0.0.1:{server.server_port}"
        if answer is None:
            server.server_close()
            return host
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        servers.append(server)
        return host

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()
