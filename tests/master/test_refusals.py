"""What a peer sends wrongly is refused with its reason, and changes nothing."""

import asyncio
import os

import pytest
from support.served_master import NUM_RECORDS, ServedMaster, data_message, gradient, messages

from elastic.rpc import elastic_pb2 as pb
from elastic.rpc.wire import METHODS

MODEL = "where the model has 'counts' float32[40]"
MAPPING = "the shared memory of the report cannot be mapped, or is too small"


def _tensor(name="counts", dtype="float32", shape=(NUM_RECORDS,)):
    return pb.Tensor(name=name, dtype=dtype, shape=shape)


def _set(**fields):
    """An edit of a right header."""

    def edit(header):
        for name, value in fields.items():
            if isinstance(value, list):
                header.ClearField(name)
                getattr(header, name).extend(value)
            elif name == "shared":
                header.shared.CopyFrom(value)
            else:
                setattr(header, name, value)

    return edit


WRONG_HEADERS = {
    "shape": (
        _set(gradients=[_tensor(shape=(41,))]), f"gradient 'counts' float32[41] {MODEL}"
    ),
    "rank": (
        _set(gradients=[_tensor(shape=(4, 10))]), f"gradient 'counts' float32[4, 10] {MODEL}"
    ),
    "dtype": (
        _set(gradients=[_tensor(dtype="float64")]), f"gradient 'counts' float64[40] {MODEL}"
    ),
    "no-dtype": (
        _set(gradients=[_tensor(dtype="object")]), "tensor 'counts' has the unknown dtype 'object'"
    ),
    "negative-shape": (
        _set(gradients=[_tensor(shape=(-1,))]), "tensor 'counts' has the impossible shape [-1]"
    ),
    "huge-shape": (
        _set(gradients=[_tensor(shape=(1 << 62, 1 << 62))]),
        f"gradient 'counts' float32[{1 << 62}, {1 << 62}] {MODEL}",
    ),
    "name": (_set(gradients=[_tensor("wrong")]), f"gradient 'wrong' float32[40] {MODEL}"),
    "one-too-few": (_set(gradients=[]), "0 gradients where the model has 1"),
    "one-too-many": (
        _set(gradients=[_tensor(), _tensor("more")]), "2 gradients where the model has 1"
    ),
    "state": (
        _set(state=[_tensor("steps", shape=(2,))]),
        "state 'steps' float32[2] where the model has 'steps' float32[]",
    ),
    "range-ahead": (_set(start=8, end=16), "records [8, 16) are not the next of task 0"),
    "range-empty": (_set(end=0), "records [0, 0) are not the next of task 0"),
    "range-backwards": (_set(end=-8), "records [0, -8) are not the next of task 0"),
    "range-beyond-the-task": (_set(end=21), "records [0, 21) are not the next of task 0"),
    "future-version": (
        _set(model_version=7), "gradient of model version 7, but the newest is 0"
    ),
    "negative-version": (
        _set(model_version=-1), "a report with model_version=-1: it begins at 0"
    ),
    "loss": (
        _set(loss=float("nan")), "a report with loss=nan: only finite ones come with a gradient"
    ),
    "time": (_set(step_s=float("nan")), "a report with step_s=nan: it is a time"),
    "sequence-gap": (_set(sequence=3), "report 3 of a session whose last was 0"),
    "sequence-of-the-past": (_set(sequence=0), "report 0 of a session whose last was 0"),
    "memory-that-is-not-there": (
        _set(shared=pb.SharedBuffer(pid=1 << 40, fd=3, size_bytes=1024, nonce=b"0" * 16)), MAPPING
    ),
    "memory-without-nonce": (_set(shared=pb.SharedBuffer(pid=1, fd=0, size_bytes=-1)), MAPPING),
}  # fmt: skip

WRONG_STREAMS = {
    "too-few-bytes": (
        lambda header, data: messages(header, data[:192]),
        "192 bytes where the header announced 256",
    ),
    "no-bytes": (
        lambda header, _: [pb.GradientChunk(header=header)],
        "0 bytes where the header announced 256",
    ),
    "too-many-bytes": (
        lambda header, data: [*messages(header, data), data_message(b"\0")],
        "more bytes than the 256 that the header announced",
    ),
    "second-header": (
        lambda header, data: [*messages(header, data), pb.GradientChunk(header=header)],
        "a second header where data was expected",
    ),
    "data-first": (
        lambda header, data: messages(header, data)[::-1],
        "the first message of ReportGradient must be a header",
    ),
    "nothing": (lambda *_: [], "the first message of ReportGradient must be a header"),
    "empty-message": (
        lambda header, data: [b"", *messages(header, data)],
        "the first message of ReportGradient must be a header",
    ),
    "cut-chunk": (
        lambda header, data: [
            pb.GradientChunk(header=header), data_message(data)[:-1]
        ],
        "a data chunk whose length is wrong",
    ),
}  # fmt: skip


async def _refused_then_right(wrong):
    """Send a wrong report, then the right one under the same number."""
    master = ServedMaster()
    async with master.serve() as peer:
        session = await peer.register()
        task = await peer.get_task(session)
        header, data = gradient(session, task, 0, 8)
        before = master.account()
        refusal = await peer.refusal(peer.report(wrong(session, task)))
        assert master.account() == before
        reply = await peer.report(messages(header, data))
        assert reply.verdict == reply.VERDICT_ACCEPTED
        assert master.counts().tolist() == [1] * 8 + [0] * 32
    return refusal


@pytest.mark.parametrize("case", WRONG_HEADERS)
def test_a_wrong_header_is_refused(case):
    edit, message = WRONG_HEADERS[case]

    def wrong(session, task):
        header, data = gradient(session, task, 0, 8)
        edit(header)
        return messages(header, data)

    assert asyncio.run(_refused_then_right(wrong)) == ("INVALID_ARGUMENT", message)


@pytest.mark.parametrize("case", WRONG_STREAMS)
def test_a_wrong_stream_is_refused(case):
    make, message = WRONG_STREAMS[case]

    def wrong(session, task):
        return make(*gradient(session, task, 0, 8))

    assert asyncio.run(_refused_then_right(wrong)) == ("INVALID_ARGUMENT", message)


@pytest.mark.parametrize("name", METHODS)
def test_bytes_that_are_no_message_are_refused(name):
    async def send():
        master = ServedMaster()
        async with master.serve() as peer:
            before = master.account()
            garbage = b"\xff\xff\xff\xff"
            call = peer.report([garbage]) if METHODS[name].streams_requests else None
            refusal = await peer.refusal(call or peer.call(name, garbage))
            assert master.account() == before
            return refusal

    code, message = asyncio.run(send())
    message_name = "GradientChunk" if name == "ReportGradient" else f"{name}Request"
    assert code == "INVALID_ARGUMENT"
    assert message.startswith(f"{message_name} cannot be parsed: ")


def _requests(session):
    return {
        "Register": pb.RegisterRequest(worker_index=0, launch=1),
        "RegisterServer": pb.RegisterServerRequest(address="127.0.0.1:1"),
        "Heartbeat": pb.HeartbeatRequest(session=session),
        "GetTask": pb.GetTaskRequest(session=session),
        "GetModel": pb.GetModelRequest(session=session),
        "GetRows": pb.GetRowsRequest(session=session, table="items"),
        "ReportTaskResult": pb.ReportTaskResultRequest(session=session, outcome=3),
    }


@pytest.mark.parametrize(
    "name", [name for name in METHODS if name not in ("Register", "RegisterServer")]
)
def test_an_unknown_session_must_register_again(name):
    async def send():
        async with ServedMaster().serve() as peer:
            if name == "ReportGradient":
                header = pb.GradientHeader(session="unknown", sequence=1)
                return await peer.refusal(peer.report([pb.GradientChunk(header=header)]))
            return await peer.refusal(peer.call(name, _requests("unknown")[name]))

    assert asyncio.run(send()) == ("FAILED_PRECONDITION", "unknown session: register again")


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize(
    "metadata",
    [
        pytest.param((), id="none"),
        pytest.param((("authorization", "Bearer the-token-of-another-job"),), id="another-job's"),
        pytest.param((("authorization", "the-token-of-this-job"),), id="without-Bearer"),
        pytest.param((("authorization", "Bearer "),), id="empty"),
        pytest.param((("authorization", "Bearer the-token-of-this-jobX"),), id="longer"),
        pytest.param((("token", "the-token-of-this-job"),), id="under-another-name"),
    ],
)
def test_only_the_jobs_own_token_opens_a_method(name, metadata):
    async def send():
        master = ServedMaster()
        async with master.serve() as peer:
            session = await peer.register()
            task = await peer.get_task(session)
            stranger = peer.with_metadata(*metadata)
            before = master.account()
            if name == "ReportGradient":
                call = stranger.report(messages(*gradient(session, task, 0, 8)))
            else:
                call = stranger.call(name, _requests(session)[name])
            refusal = await peer.refusal(call)
            assert master.account() == before
            assert master.ledger.holds_lease("worker-0/1")
            return refusal

    assert asyncio.run(send()) == (
        "UNAUTHENTICATED",
        "elastic.v1.Master needs this job's token as metadata 'authorization: Bearer TOKEN'",
    )


@pytest.mark.parametrize(
    ("request_fields", "message"),
    [
        ({"table": "items"}, "the model has no table 'items'"),
        ({"table": "items", "ids": bytes(9)}, "9 bytes are no ids of 8 bytes each"),
        ({"table": "items", "ids": bytes(16)}, "ids that do not ascend strictly"),
    ],
    ids=["table", "bytes", "order"],
)
def test_rows_that_cannot_be_asked_for_are_refused(request_fields, message):
    async def send():
        async with ServedMaster().serve() as peer:
            request = pb.GetRowsRequest(session=await peer.register(), **request_fields)
            return await peer.refusal(peer.call("GetRows", request))

    assert asyncio.run(send()) == ("INVALID_ARGUMENT", message)


NOWHERE = pb.SharedBuffer(pid=os.getpid(), fd=0, size_bytes=200, nonce=bytes(16))
ROWS_MESSAGES = {
    "table": (
        {"rows": [pb.RowGradient(table="items")]},
        "rows of items, and the model has no such table",
    ),
    "bytes": (
        {"rows": [pb.RowGradient(table="items", ids=bytes(9))]},
        "9 bytes are no ids of 8 bytes each",
    ),
    "memory": (
        {"shared_rows": pb.SharedRows(buffer=NOWHERE)},
        "the shared memory of rows cannot be mapped, or is too small",
    ),
}


@pytest.mark.parametrize("case", ROWS_MESSAGES)
def test_a_gradient_with_rows_that_cannot_be_is_refused(case):
    fields, message = ROWS_MESSAGES[case]

    async def send():
        master = ServedMaster()
        async with master.serve() as peer:
            session = await peer.register()
            task = await peer.get_task(session)
            before = master.account()
            header, data = gradient(session, task, 0, 1)
            header.MergeFrom(pb.GradientHeader(**fields))
            refusal = await peer.refusal(peer.report(messages(header, data)))
            assert master.account() == before
            return refusal

    assert asyncio.run(send()) == ("INVALID_ARGUMENT", message)


def test_an_outcome_that_is_none_is_refused():
    async def send(outcome):
        async with ServedMaster().serve() as peer:
            session = await peer.register()
            request = pb.ReportTaskResultRequest(session=session, outcome=outcome)
            return await peer.refusal(peer.call("ReportTaskResult", request))

    for outcome in (0, 77):
        expected = ("INVALID_ARGUMENT", f"outcome {outcome} is none of the protocol's")
        assert asyncio.run(send(outcome)) == expected


def _metric(name="loss", dtype="float64", shape=(2,), data=bytes(16)):
    values = [pb.Tensor(dtype=dtype, shape=shape, data=data)]
    return pb.Metric(name=name, values=values)


WRONG_METRICS = {
    "shape": (
        [_metric(shape=(1,), data=bytes(8))],
        "metric 'loss' is float64[1] where others had float64[2]",
    ),
    "dtype": (
        [_metric(dtype="int32", data=bytes(8))],
        "metric 'loss' is int32[2] where others had float64[2]",
    ),
    "bytes": ([_metric(data=bytes(15))], "15 bytes for '' float64[2], which has 16"),
    "name": ([_metric("other")], "metrics ['other'] where others had ['loss']"),
    "number-of-values": (
        [pb.Metric(name="loss", values=[*_metric().values, *_metric().values])],
        "metric 'loss' is float64[2] float64[2] where others had float64[2]",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG_METRICS)
def test_metrics_that_do_not_add_up_are_refused(case):
    metrics, message = WRONG_METRICS[case]

    async def send():
        master = ServedMaster(num_epochs=1)
        async with master.serve() as peer:
            session = await peer.register()
            for sequence, start in enumerate((0, 20), start=1):
                task = await peer.get_task(session)
                sent = gradient(session, task, start, start + 20, sequence, sequence - 1)
                await peer.report(messages(*sent))
            evaluation = master.begin_evaluation()
            task = await peer.get_task(session)
            request = pb.ReportTaskResultRequest(
                session=session, task_id=task.task_id, attempt=task.attempt, start=0, end=8,
                outcome=pb.ReportTaskResultRequest.OUTCOME_EVALUATED, metrics=[_metric()],
            )  # fmt: skip
            assert (await peer.call("ReportTaskResult", request)).accepted
            before = evaluation.ledger.snapshot()
            request.start, request.end = 8, 16
            del request.metrics[:]
            request.metrics.extend(metrics)
            refusal = await peer.refusal(peer.call("ReportTaskResult", request))
            assert evaluation.ledger.snapshot() == before
            return refusal

    assert asyncio.run(send()) == ("INVALID_ARGUMENT", message)
