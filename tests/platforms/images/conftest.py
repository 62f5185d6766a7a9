import io
import ipaddress
import os
import uuid
from collections import namedtuple
from contextlib import closing, contextmanager
from pathlib import Path

# Loaded while it can be: in a test as nobody, who may not read an interpreter below /root.
import docker.utils.build  # noqa: F401
import pytest

from elastic.platforms.images.build import DockerEngine
from elastic.platforms.images.context import ImageRequest

BASE = "elastic-base:ci"
"""Has both frameworks and nearly all that elastic needs."""

Lab = namedtuple("Lab", "client registry base repository label")
"""A Docker client and a registry; a base, a repository and a label that only one module uses."""


@pytest.fixture(scope="module")
def lab():
    """The engine and the registry of the test cluster; what a module builds is removed after it."""
    registry = os.environ.get("ELASTIC_TEST_REGISTRY")
    if not registry:
        pytest.skip("needs a Docker engine and a registry: set ELASTIC_TEST_REGISTRY")
    from docker import APIClient

    client = APIClient(timeout=600)
    with closing(client):
        mark = uuid.uuid4().hex
        base = f"elastic-test:{mark}"
        trusted = f"ENV PIP_TRUSTED_HOST={gateway(client)}"
        build(client, f"FROM {BASE}\nLABEL elastic-test={mark}\n{trusted}\n", base)
        label = f"elastic-test={mark}"
        yield Lab(client, registry, base, f"{registry}/elastic-test/{mark}", label)
        # Images inherit the labels of their base.
        remove_images(client, label)


def remove_images(client, label):
    for image in client.images(filters={"label": label}):
        for name in image["RepoTags"] or []:
            if name != "<none>:<none>":
                client.remove_image(name, force=True)
    # What failed builds have left.
    client.prune_images(filters={"dangling": True, "label": [label]})


def gateway(client):
    """The address of this machine as seen by a step of a build."""
    (config, *_) = client.inspect_network("bridge")["IPAM"]["Config"]
    return config.get("Gateway") or str(next(ipaddress.ip_network(config["Subnet"]).hosts()))


def build(client, recipe, name):
    """Build an image from a Dockerfile alone."""
    for message in client.build(
        fileobj=io.BytesIO(recipe.encode()), tag=name, rm=True, forcerm=True, decode=True
    ):
        assert "error" not in message, message


def has(client, reference):
    from docker.errors import ImageNotFound

    try:
        client.inspect_image(reference)
    except ImageNotFound:
        return False
    return True


@pytest.fixture
def zoo(tmp_path):
    """A model_zoo with one model that trains in a moment."""
    folder = tmp_path / "zoo"
    (folder / "tiny").mkdir(parents=True)
    (folder / "tiny" / "__init__.py").write_text("")
    (folder / "tiny" / "model.py").write_text(MODEL)
    return folder


@pytest.fixture
def as_nobody(monkeypatch):
    """Do something in a folder as one who may not read everything; root may."""

    @contextmanager
    def act(folder):
        # Whatever is above it, which the tests' own user alone may enter, is not looked at.
        monkeypatch.chdir(folder)
        folder.chmod(0o755)
        user = os.geteuid()
        if user == 0:
            os.seteuid(65534)
        try:
            yield
        finally:
            os.seteuid(user)

    return act


@pytest.fixture
def small_zoo(zoo, lab):
    """The same with a recipe that makes images of a few kilobytes, to push them in a moment."""
    recipe = f"FROM scratch\nLABEL {lab.label}\nCOPY model_zoo/ /model_zoo/\n"
    (zoo / "elastic.Dockerfile").write_text(recipe)
    return zoo


@pytest.fixture
def engine(lab):
    engine = DockerEngine.connect(ImageRequest(Path()))
    yield engine
    engine.close()


MODEL = """\
import torch


class CustomModel(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)

    def forward(self, features):
        return self.layer(features)


def loss(labels, predictions):
    return ((labels - predictions) ** 2).mean()


def optimizer(parameters):
    return torch.optim.SGD(parameters, lr=0.1)


def dataset_fn(dataset, mode):
    for record in dataset:
        x = torch.as_tensor(record["x"])
        yield x, 2 * x + 1


def eval_metrics_fn():
    return {"mse": loss}
"""
