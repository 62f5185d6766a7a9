"""Which layout a file has, told by its columns or keys; and the file, read by that layout. Pure."""

import csv
import io
import json
from collections.abc import Mapping
from pathlib import PurePath
from types import MappingProxyType
from typing import Final

from elastic.planning.forms import load_document
from elastic.policy.cluster import Node
from elastic.simulation import forms
from elastic.simulation.traces import alibaba_2023, alibaba_pai, helios, philly, pollux
from elastic.simulation.traces.common import Elasticity
from elastic.simulation.workload import Workload

_TASKS: Final = "pai_task_table"
_MACHINES: Final = "pai_machine_spec"
RIGID: Final = Elasticity()
_NO_PROFILES: Final[Mapping[str, str]] = MappingProxyType({})


def read_workload(
    text: str,
    name: str,
    elasticity: Elasticity = RIGID,
    profiles: Mapping[str, str] = _NO_PROFILES,
) -> Workload:
    """A workload in our own form, or a public trace.

    Args:
        text: All of the file.
        name: Of the file: for errors, and since some layouts have no names of columns.
        elasticity: What is assumed of the jobs of traces.
        profiles: Measured profiles of applications, texts by `APPLICATION/FILE`.

    Raises:
        DescriptionError: It is none that is known, or has a cell that makes no sense.
    """
    if text.lstrip()[:1] == "[":
        document = load_document(text, name)
        if philly.is_log(document):
            return philly.read_workload(document, name, elasticity)
        return forms.read_workload(json.dumps({"jobs": document}), name)
    columns = _columns(text)
    if columns >= set(alibaba_pai.COLUMNS) or PurePath(name).name.startswith(_TASKS):
        has_names = columns >= set(alibaba_pai.COLUMNS)
        return alibaba_pai.read_workload(text, name, elasticity, has_names)
    if columns >= helios.COLUMNS:
        return helios.read_workload(text, name, elasticity)
    if columns >= alibaba_2023.COLUMNS:
        return alibaba_2023.read_workload(text, name, elasticity)
    if columns >= pollux.COLUMNS:
        return pollux.read_workload(text, name, elasticity, profiles)
    return forms.read_workload(text, name)


def read_nodes(text: str, name: str) -> tuple[Node, ...]:
    """Nodes in our own form, those of a snapshot, or those of a public trace.

    Raises:
        DescriptionError: They are none of these.
    """
    columns = _columns(text)
    if columns >= set(alibaba_pai.NODE_COLUMNS) or PurePath(name).name.startswith(_MACHINES):
        return alibaba_pai.read_nodes(text, name, columns >= set(alibaba_pai.NODE_COLUMNS))
    if columns >= alibaba_2023.NODE_COLUMNS:
        return alibaba_2023.read_nodes(text, name)
    if columns >= helios.NODE_COLUMNS:
        return helios.read_nodes(text, name)
    if philly.NODE_COLUMNS[0] in columns:
        return philly.read_nodes(text, name)
    return forms.read_nodes(text, name)


def _columns(text: str) -> set[str]:
    """The cells of the first line."""
    first = text.lstrip("\ufeff").partition("\n")[0]
    return {cell.strip() for row in csv.reader(io.StringIO(first)) for cell in row}
