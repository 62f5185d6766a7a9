"""What a job exports, read as Prometheus reads it."""

import socket
import urllib.request

from prometheus_client.parser import text_string_to_metric_families

_GIVEN = set()
"""Ports that somebody here is about to listen at, though nobody does yet."""


def free_ports(count=1):
    """The first of so many ports in a row that nobody listens at, nor was told to."""
    while True:
        with socket.create_server(("127.0.0.1", 0)) as first:
            port = first.getsockname()[1]
            try:
                for number in range(port + 1, port + count):
                    socket.create_server(("127.0.0.1", number)).close()
            except (OSError, OverflowError):
                continue
            ports = set(range(port, port + count))
            if ports & _GIVEN:
                continue
            _GIVEN.update(ports)
            return port


def scrape(port):
    """Samples by name: of each, its labels and its value."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
        text = answer.read().decode()
    samples = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            samples.setdefault(sample.name, []).append((sample.labels, sample.value))
    return samples


def value(samples, name, **labels):
    """The value of the one sample that has these labels."""
    found = [v for have, v in samples.get(name, []) if labels.items() <= have.items()]
    assert len(found) == 1, (name, labels, samples.get(name))
    return found[0]
