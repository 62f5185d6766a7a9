"""The CustomResourceDefinitions of all kinds: a row each, and what the API server gets of it.

`python -m elastic.controller.resources.definitions manifests/crds` writes them anew.
"""

import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pydantic import BaseModel

from elastic.controller.resources import elastic_job, elastic_train_job, tf_job, training_job
from elastic.controller.resources.common import Fields
from elastic.controller.resources.schema import spec_schema, status_schema
from elastic.errors import ElasticError
from elastic.platforms.kubernetes.api.resources import (
    CUSTOM_RESOURCE_DEFINITIONS,
    Manifest,
    Resource,
)
from elastic.spec.yaml_text import dump_value

CATEGORIES: Final = ("all", "elastic")
"""`kubectl get elastic` shows the jobs of all kinds."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column of `kubectl get`.

    Attributes:
        path: JSONPath of the value in an object; its first match is shown.
        type: Of the value, as OpenAPI has types, or `date`.
        is_wide: Shown with `-o wide` alone.
    """

    name: str
    path: str
    description: str
    type: str = "string"
    is_wide: bool = False


@dataclass(frozen=True, slots=True)
class Scale:
    """Where `kubectl scale` reads and writes how many replicas there are.

    Attributes:
        wanted: Path of the number in the spec.
        there: Path of the number in the status.
        selector: Path of the labels of the replicas' pods in the status, which autoscalers need.
    """

    wanted: str
    there: str
    selector: str | None = None


@dataclass(frozen=True, slots=True)
class Definition:
    """One kind.

    Attributes:
        resource: In the version that is stored, and watched by the controller.
        spec: Of what users write.
        status: Of what the controller writes.
        description: What an object of this kind is, for `kubectl explain`.
        short_names: What `kubectl` takes for the name of the kind.
        columns: Of `kubectl get`, between name and age.
        older_versions: Served as well, with the same schema.
        scale: None where nobody but the controller says how many replicas there are.
    """

    resource: Resource
    spec: type[Fields]
    status: type[BaseModel]
    description: str
    short_names: tuple[str, ...]
    columns: tuple[Column, ...]
    older_versions: tuple[str, ...] = ()
    scale: Scale | None = None


def _workers(path: str, low: str, high: str) -> tuple[Column, ...]:
    """Columns of a kind whose workers are a role with a number and a template."""
    return (
        Column("Replicas", ".status.replicaStatuses.Worker.active", "Workers that run.", "integer"),
        Column("Desired", path, "Workers that there are to be.", "integer"),
        Column("Min", low, "The fewest workers.", "integer"),
        Column("Max", high, "The most workers.", "integer"),
    )


_TRAINING_JOB: Final = Definition(
    training_job.RESOURCE,
    training_job.TrainingJobSpec,
    training_job.TrainingJobStatus,
    "A job of PaddlePaddle, whose trainers and parameter servers fill the room that there is.",
    short_names=("tj",),
    columns=(
        Column("Phase", ".status.phase", "Where it is in its life."),
        Column(
            "Replicas",
            ".status.scale_status.trainer.current",
            "Trainers that run or are about to.",
            "integer",
        ),
        Column(
            "Desired",
            ".status.scale_status.trainer.wanted",
            "Trainers that there are to be.",
            "integer",
        ),
        Column("Min", ".spec.trainer.min-instance", "The fewest trainers.", "integer"),
        Column("Max", ".spec.trainer.max-instance", "The most trainers.", "integer"),
        Column("Reason", ".status.reason", "Why it is in this phase.", is_wide=True),
    ),
    older_versions=training_job.SERVED_VERSIONS[1:],
)
_ELASTIC_JOB: Final = Definition(
    elastic_job.RESOURCE,
    elastic_job.ElasticJobSpec,
    elastic_job.ElasticJobStatus,
    "A job of torchrun, whose workers come and go between a least and a most.",
    short_names=("ej",),
    columns=(
        Column("Phase", ".status.phase", "Where it is in its life."),
        *_workers(".spec.replicaSpecs.Worker.replicas", ".spec.minReplicas", ".spec.maxReplicas"),
    ),
    scale=Scale(
        ".spec.replicaSpecs.Worker.replicas", ".status.replicas", selector=".status.selector"
    ),
)
_TF_JOB: Final = Definition(
    tf_job.RESOURCE,
    tf_job.TFJobSpec,
    tf_job.TFJobStatus,
    "A job of TensorFlow with parameter servers and workers, which its controller places on nodes.",
    short_names=("tfj",),
    columns=(
        Column("Phase", ".status.conditions[-1:].type", "What came to hold last."),
        *_workers(
            ".spec.tfReplicaSpecs.Worker.replicas", ".spec.min-instances", ".spec.max-instances"
        ),
    ),
    scale=Scale(".spec.tfReplicaSpecs.Worker.replicas", ".status.replicas"),
)
_ELASTIC_TRAIN_JOB: Final = Definition(
    elastic_train_job.RESOURCE,
    elastic_train_job.ElasticTrainJobSpec,
    elastic_train_job.ElasticTrainJobStatus,
    "A job of elastic, as `elastic train`, `evaluate` and `predict` submit it.",
    short_names=("etj",),
    columns=(
        Column("Phase", ".status.phase", "Where it is in its life."),
        Column("Desired", ".status.desired_workers", "Workers that there are to be.", "integer"),
        Column("Workers", ".spec.job.num_workers", "Workers that it may have, as MIN:MAX."),
        Column("Epoch", ".status.progress.epoch", "The epoch under way, from 0.", "integer"),
        Column("Loss", ".status.progress.loss", "Of the newest minibatch.", "number"),
        Column("Reason", ".status.reason", "Why it is in this phase.", is_wide=True),
    ),
)

DEFINITIONS: Final[Mapping[str, Definition]] = {
    each.resource.kind: each for each in (_TRAINING_JOB, _ELASTIC_JOB, _TF_JOB, _ELASTIC_TRAIN_JOB)
}
"""By kind."""


def definitions(kinds: Collection[str] = tuple(DEFINITIONS)) -> list[Manifest]:
    """The definitions of some kinds, as the API server takes them.

    Raises:
        ElasticError: One of the kinds is none of ours.
    """
    for kind in kinds:
        if kind not in DEFINITIONS:
            raise ElasticError(f"there is no kind {kind!r}: use {', '.join(DEFINITIONS)}")
    return [_manifest(each) for kind, each in DEFINITIONS.items() if kind in kinds]


def _manifest(definition: Definition) -> Manifest:
    resource = definition.resource
    schema = _schema(definition)
    return {
        "apiVersion": CUSTOM_RESOURCE_DEFINITIONS.api_version,
        "kind": CUSTOM_RESOURCE_DEFINITIONS.kind,
        "metadata": {
            "name": f"{resource.plural}.{resource.group}",
            "labels": {"app": "elastic"},
        },
        "spec": {
            "group": resource.group,
            "scope": "Namespaced" if resource.namespaced else "Cluster",
            "names": {
                "kind": resource.kind,
                "listKind": f"{resource.kind}List",
                "plural": resource.plural,
                "singular": resource.kind.lower(),
                "shortNames": list(definition.short_names),
                "categories": list(CATEGORIES),
            },
            "conversion": {"strategy": "None"},
            "versions": [
                _version(definition, version, schema)
                for version in (resource.version, *definition.older_versions)
            ],
        },
    }


def _version(definition: Definition, version: str, schema: Manifest) -> Manifest:
    subresources: Manifest = {"status": {}}
    if (scale := definition.scale) is not None:
        subresources["scale"] = {
            "specReplicasPath": scale.wanted,
            "statusReplicasPath": scale.there,
            **({"labelSelectorPath": scale.selector} if scale.selector is not None else {}),
        }
    age = Column("Age", ".metadata.creationTimestamp", "Since it was created.", "date")
    return {
        "name": version,
        "served": True,
        "storage": version == definition.resource.version,
        "additionalPrinterColumns": [_column(each) for each in (*definition.columns, age)],
        "subresources": subresources,
        "schema": {"openAPIV3Schema": schema},
    }


def _column(column: Column) -> Manifest:
    return {
        "name": column.name,
        "type": column.type,
        "jsonPath": column.path,
        "description": column.description,
        **({"priority": 1} if column.is_wide else {}),
    }


def _schema(definition: Definition) -> Manifest:
    return {
        "type": "object",
        "description": definition.description,
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": _with_fields_told(spec_schema(definition.spec)),
            "status": status_schema(definition.status),
        },
    }


def _with_fields_told(spec: Manifest) -> Manifest:
    """The schema of a spec with a line about each field in its own description.

    API servers before 1.24 publish nothing of the fields within an object that keeps unknown ones,
    so that `kubectl explain` has no other place to find them.
    """
    lines = [
        f"{name}: {field['description']}" if "description" in field else name
        for name, field in spec["properties"].items()
    ]
    return {**spec, "description": "\n\n".join([spec.get("description", ""), *lines]).strip()}


def write(folder: Path) -> None:
    """Write a file for each kind, named by its plural."""
    folder.mkdir(parents=True, exist_ok=True)
    for manifest in definitions():
        plural = manifest["spec"]["names"]["plural"]
        (folder / f"{plural}.yaml").write_text(file_text(manifest), encoding="utf-8")


def file_text(manifest: Manifest) -> str:
    """A definition as it stands in `manifests/crds`."""
    kind = manifest["spec"]["names"]["kind"]
    return f"# What a {kind} is to the API server, made from the types of the controller.\n" + (
        dump_value(manifest)
    )


if __name__ == "__main__":
    write(Path(sys.argv[1]))
