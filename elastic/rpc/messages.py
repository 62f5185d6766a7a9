"""Protobuf messages as the dataclasses that the rest of the project speaks, and back."""

from collections.abc import Iterable, Mapping

import numpy as np

from elastic.policy.tasks.records import Picks, RecordRange, Shard, Task, TaskKind
from elastic.policy.updates.server_shares import Share, Slice
from elastic.rpc import elastic_pb2 as pb
from elastic.rpc.layout import (
    DTYPES,
    MAX_TENSORS,
    Array,
    Layout,
    LayoutError,
    TensorSpec,
    checked_spec,
    wire_order,
)

_KINDS = {
    TaskKind.TRAINING: pb.Task.KIND_TRAINING,
    TaskKind.EVALUATION: pb.Task.KIND_EVALUATION,
    TaskKind.PREDICTION: pb.Task.KIND_PREDICTION,
}
_KINDS_BACK = {number: kind for kind, number in _KINDS.items()}


def task_to_proto(task: Task) -> pb.Task:
    """Encode a task with its shards."""
    message = pb.Task(
        task_id=task.task_id,
        attempt=task.attempt,
        kind=_KINDS[task.kind],
        epoch=task.epoch,
        shard=_shard_to_proto(task.shard),
        shard_index=task.records.shard_index,
        start=task.records.start,
        end=task.records.end,
        skipped=task.skipped,
        is_search=task.is_search,
        minibatch_size=task.minibatch_size,
    )
    if task.model_version is not None:
        message.model_version = task.model_version
    if task.picks is not None:
        message.picks.shards.extend(map(_shard_to_proto, task.picks.shards))
        message.picks.owners = task.picks.owners.astype("<i4").tobytes()
        message.picks.indices = task.picks.indices.astype("<i8").tobytes()
    return message


def task_from_proto(message: pb.Task) -> Task:
    """Decode a task with its shards."""
    return Task(
        task_id=message.task_id,
        attempt=message.attempt,
        kind=_KINDS_BACK[message.kind],
        epoch=message.epoch,
        records=RecordRange(message.shard_index, message.start, message.end),
        shard=_shard_from_proto(message.shard),
        model_version=message.model_version if message.HasField("model_version") else None,
        skipped=tuple(message.skipped),
        is_search=message.is_search,
        minibatch_size=message.minibatch_size if message.HasField("minibatch_size") else None,
        picks=_picks_from_proto(message.picks) if message.HasField("picks") else None,
    )


def _shard_to_proto(shard: Shard) -> pb.Shard:
    return pb.Shard(
        name=shard.name,
        start=shard.start,
        end=shard.end,
        offset_bytes=shard.offset_bytes,
        fingerprint=shard.fingerprint,
    )


def _shard_from_proto(shard: pb.Shard) -> Shard:
    offset = shard.offset_bytes if shard.HasField("offset_bytes") else None
    return Shard(shard.name, shard.start, shard.end, offset, shard.fingerprint)


def _picks_from_proto(picks: pb.Picks) -> Picks:
    return Picks(
        tuple(map(_shard_from_proto, picks.shards)),
        np.frombuffer(picks.owners, "<i4"),
        np.frombuffer(picks.indices, "<i8"),
    )


def share_to_proto(share: Share, address: str, proof: pb.SharedBuffer | None) -> pb.ServerShare:
    """Encode what a server has, and how it is reached."""
    return pb.ServerShare(
        address=address,
        parameters=_slices_to_proto(share.parameters),
        state=_slices_to_proto(share.state),
        proof=proof,
    )


def share_from_proto(message: pb.ServerShare) -> Share:
    """Decode what a server has."""
    return Share(
        tuple(Slice(each.name, each.start, each.end) for each in message.parameters),
        tuple(Slice(each.name, each.start, each.end) for each in message.state),
    )


def _slices_to_proto(slices: Iterable[Slice]) -> list[pb.Slice]:
    return [pb.Slice(name=each.name, start=each.start, end=each.end) for each in slices]


def specs_to_proto(specs: Iterable[TensorSpec]) -> list[pb.Tensor]:
    """Encode descriptions; the bytes travel apart."""
    return [pb.Tensor(name=s.name, dtype=s.dtype, shape=s.shape) for s in specs]


def layout_from_proto(*groups: Iterable[pb.Tensor]) -> Layout:
    """Decode the descriptions of tensors that follow a header.

    Raises:
        LayoutError: They describe no possible tensors.
    """
    specs = tuple(checked_spec(t.name, t.dtype, t.shape) for group in groups for t in group)
    if len(specs) > MAX_TENSORS:
        raise LayoutError(f"{len(specs)} tensors, more than {MAX_TENSORS}")
    return Layout(specs)


def tensors_to_proto(arrays: Iterable[Array]) -> list[pb.Tensor]:
    """Encode a few small arrays whole, such as the state of a metric."""
    return [
        pb.Tensor(dtype=a.dtype.name, shape=a.shape, data=wire_order(a).tobytes()) for a in arrays
    ]


def metrics_to_proto(metrics: Iterable[tuple[str, Iterable[Array]]]) -> list[pb.Metric]:
    """Encode the sums of metrics."""
    return [pb.Metric(name=name, values=tensors_to_proto(values)) for name, values in metrics]


def tensors_from_proto(messages: Iterable[pb.Tensor]) -> tuple[Array, ...]:
    """Decode small arrays.

    Raises:
        LayoutError: The bytes do not fit dtype and shape.
    """
    return tuple(_tensor_from_proto(message) for message in messages)


def _tensor_from_proto(message: pb.Tensor) -> Array:
    spec = checked_spec(message.name, message.dtype, message.shape)
    if len(message.data) != spec.size_bytes:
        raise LayoutError(f"{len(message.data)} bytes for {spec}, which has {spec.size_bytes}")
    flat = np.frombuffer(message.data, np.uint8).view(DTYPES[spec.dtype])
    return flat.reshape(spec.shape).copy()


def by_name(names: Iterable[TensorSpec], arrays: Iterable[Array]) -> Mapping[str, Array]:
    """Pair descriptions with their arrays."""
    return {spec.name: array for spec, array in zip(names, arrays, strict=True)}
