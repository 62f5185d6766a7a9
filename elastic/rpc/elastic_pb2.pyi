from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Tensor(_message.Message):
    __slots__ = ("name", "dtype", "shape", "data")
    NAME_FIELD_NUMBER: _ClassVar[int]
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    name: str
    dtype: str
    shape: _containers.RepeatedScalarFieldContainer[int]
    data: bytes
    def __init__(self, name: _Optional[str] = ..., dtype: _Optional[str] = ..., shape: _Optional[_Iterable[int]] = ..., data: _Optional[bytes] = ...) -> None: ...

class SharedBuffer(_message.Message):
    __slots__ = ("pid", "fd", "size_bytes", "nonce", "calls_at", "calls_port")
    PID_FIELD_NUMBER: _ClassVar[int]
    FD_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    NONCE_FIELD_NUMBER: _ClassVar[int]
    CALLS_AT_FIELD_NUMBER: _ClassVar[int]
    CALLS_PORT_FIELD_NUMBER: _ClassVar[int]
    pid: int
    fd: int
    size_bytes: int
    nonce: bytes
    calls_at: str
    calls_port: int
    def __init__(self, pid: _Optional[int] = ..., fd: _Optional[int] = ..., size_bytes: _Optional[int] = ..., nonce: _Optional[bytes] = ..., calls_at: _Optional[str] = ..., calls_port: _Optional[int] = ...) -> None: ...

class Shard(_message.Message):
    __slots__ = ("name", "start", "end", "offset_bytes", "fingerprint")
    NAME_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    OFFSET_BYTES_FIELD_NUMBER: _ClassVar[int]
    FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    name: str
    start: int
    end: int
    offset_bytes: int
    fingerprint: str
    def __init__(self, name: _Optional[str] = ..., start: _Optional[int] = ..., end: _Optional[int] = ..., offset_bytes: _Optional[int] = ..., fingerprint: _Optional[str] = ...) -> None: ...

class Task(_message.Message):
    __slots__ = ("task_id", "attempt", "kind", "epoch", "shard", "shard_index", "start", "end", "model_version", "skipped", "is_search", "minibatch_size", "picks")
    class Kind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        KIND_UNSPECIFIED: _ClassVar[Task.Kind]
        KIND_TRAINING: _ClassVar[Task.Kind]
        KIND_EVALUATION: _ClassVar[Task.Kind]
        KIND_PREDICTION: _ClassVar[Task.Kind]
    KIND_UNSPECIFIED: Task.Kind
    KIND_TRAINING: Task.Kind
    KIND_EVALUATION: Task.Kind
    KIND_PREDICTION: Task.Kind
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    SHARD_FIELD_NUMBER: _ClassVar[int]
    SHARD_INDEX_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    MODEL_VERSION_FIELD_NUMBER: _ClassVar[int]
    SKIPPED_FIELD_NUMBER: _ClassVar[int]
    IS_SEARCH_FIELD_NUMBER: _ClassVar[int]
    MINIBATCH_SIZE_FIELD_NUMBER: _ClassVar[int]
    PICKS_FIELD_NUMBER: _ClassVar[int]
    task_id: int
    attempt: int
    kind: Task.Kind
    epoch: int
    shard: Shard
    shard_index: int
    start: int
    end: int
    model_version: int
    skipped: _containers.RepeatedScalarFieldContainer[int]
    is_search: bool
    minibatch_size: int
    picks: Picks
    def __init__(self, task_id: _Optional[int] = ..., attempt: _Optional[int] = ..., kind: _Optional[_Union[Task.Kind, str]] = ..., epoch: _Optional[int] = ..., shard: _Optional[_Union[Shard, _Mapping]] = ..., shard_index: _Optional[int] = ..., start: _Optional[int] = ..., end: _Optional[int] = ..., model_version: _Optional[int] = ..., skipped: _Optional[_Iterable[int]] = ..., is_search: bool = ..., minibatch_size: _Optional[int] = ..., picks: _Optional[_Union[Picks, _Mapping]] = ...) -> None: ...

class Picks(_message.Message):
    __slots__ = ("shards", "owners", "indices")
    SHARDS_FIELD_NUMBER: _ClassVar[int]
    OWNERS_FIELD_NUMBER: _ClassVar[int]
    INDICES_FIELD_NUMBER: _ClassVar[int]
    shards: _containers.RepeatedCompositeFieldContainer[Shard]
    owners: bytes
    indices: bytes
    def __init__(self, shards: _Optional[_Iterable[_Union[Shard, _Mapping]]] = ..., owners: _Optional[bytes] = ..., indices: _Optional[bytes] = ...) -> None: ...

class RegisterRequest(_message.Message):
    __slots__ = ("worker_index", "launch", "host", "pid")
    WORKER_INDEX_FIELD_NUMBER: _ClassVar[int]
    LAUNCH_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    worker_index: int
    launch: int
    host: str
    pid: int
    def __init__(self, worker_index: _Optional[int] = ..., launch: _Optional[int] = ..., host: _Optional[str] = ..., pid: _Optional[int] = ...) -> None: ...

class RegisterReply(_message.Message):
    __slots__ = ("session", "heartbeat_interval_s", "sample", "proof", "prediction_dir", "total_steps", "servers", "era")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_INTERVAL_S_FIELD_NUMBER: _ClassVar[int]
    SAMPLE_FIELD_NUMBER: _ClassVar[int]
    PROOF_FIELD_NUMBER: _ClassVar[int]
    PREDICTION_DIR_FIELD_NUMBER: _ClassVar[int]
    TOTAL_STEPS_FIELD_NUMBER: _ClassVar[int]
    SERVERS_FIELD_NUMBER: _ClassVar[int]
    ERA_FIELD_NUMBER: _ClassVar[int]
    session: str
    heartbeat_interval_s: float
    sample: Task
    proof: SharedBuffer
    prediction_dir: str
    total_steps: int
    servers: _containers.RepeatedCompositeFieldContainer[ServerShare]
    era: str
    def __init__(self, session: _Optional[str] = ..., heartbeat_interval_s: _Optional[float] = ..., sample: _Optional[_Union[Task, _Mapping]] = ..., proof: _Optional[_Union[SharedBuffer, _Mapping]] = ..., prediction_dir: _Optional[str] = ..., total_steps: _Optional[int] = ..., servers: _Optional[_Iterable[_Union[ServerShare, _Mapping]]] = ..., era: _Optional[str] = ...) -> None: ...

class Slice(_message.Message):
    __slots__ = ("name", "start", "end")
    NAME_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    name: str
    start: int
    end: int
    def __init__(self, name: _Optional[str] = ..., start: _Optional[int] = ..., end: _Optional[int] = ...) -> None: ...

class ServerShare(_message.Message):
    __slots__ = ("address", "parameters", "state", "proof")
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    PARAMETERS_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    PROOF_FIELD_NUMBER: _ClassVar[int]
    address: str
    parameters: _containers.RepeatedCompositeFieldContainer[Slice]
    state: _containers.RepeatedCompositeFieldContainer[Slice]
    proof: SharedBuffer
    def __init__(self, address: _Optional[str] = ..., parameters: _Optional[_Iterable[_Union[Slice, _Mapping]]] = ..., state: _Optional[_Iterable[_Union[Slice, _Mapping]]] = ..., proof: _Optional[_Union[SharedBuffer, _Mapping]] = ...) -> None: ...

class RegisterServerRequest(_message.Message):
    __slots__ = ("server_index", "launch", "address", "life", "role")
    SERVER_INDEX_FIELD_NUMBER: _ClassVar[int]
    LAUNCH_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    LIFE_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    server_index: int
    launch: int
    address: str
    life: str
    role: str
    def __init__(self, server_index: _Optional[int] = ..., launch: _Optional[int] = ..., address: _Optional[str] = ..., life: _Optional[str] = ..., role: _Optional[str] = ...) -> None: ...

class RegisterServerReply(_message.Message):
    __slots__ = ("heartbeat_interval_s",)
    HEARTBEAT_INTERVAL_S_FIELD_NUMBER: _ClassVar[int]
    heartbeat_interval_s: float
    def __init__(self, heartbeat_interval_s: _Optional[float] = ...) -> None: ...

class LoadHeader(_message.Message):
    __slots__ = ("era", "version", "model", "parameters", "state", "optimizer", "optimizer_values", "total_steps", "is_synchronous", "tables", "row_rule")
    ERA_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    PARAMETERS_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    OPTIMIZER_FIELD_NUMBER: _ClassVar[int]
    OPTIMIZER_VALUES_FIELD_NUMBER: _ClassVar[int]
    TOTAL_STEPS_FIELD_NUMBER: _ClassVar[int]
    IS_SYNCHRONOUS_FIELD_NUMBER: _ClassVar[int]
    TABLES_FIELD_NUMBER: _ClassVar[int]
    ROW_RULE_FIELD_NUMBER: _ClassVar[int]
    era: str
    version: int
    model: _containers.RepeatedCompositeFieldContainer[Tensor]
    parameters: _containers.RepeatedCompositeFieldContainer[Tensor]
    state: _containers.RepeatedCompositeFieldContainer[Tensor]
    optimizer: _containers.RepeatedCompositeFieldContainer[Tensor]
    optimizer_values: str
    total_steps: int
    is_synchronous: bool
    tables: _containers.RepeatedCompositeFieldContainer[Table]
    row_rule: RowRule
    def __init__(self, era: _Optional[str] = ..., version: _Optional[int] = ..., model: _Optional[_Iterable[_Union[Tensor, _Mapping]]] = ..., parameters: _Optional[_Iterable[_Union[Tensor, _Mapping]]] = ..., state: _Optional[_Iterable[_Union[Tensor, _Mapping]]] = ..., optimizer: _Optional[_Iterable[_Union[Tensor, _Mapping]]] = ..., optimizer_values: _Optional[str] = ..., total_steps: _Optional[int] = ..., is_synchronous: bool = ..., tables: _Optional[_Iterable[_Union[Table, _Mapping]]] = ..., row_rule: _Optional[_Union[RowRule, _Mapping]] = ...) -> None: ...

class Table(_message.Message):
    __slots__ = ("name", "dim", "initializer", "row_dtype", "life")
    NAME_FIELD_NUMBER: _ClassVar[int]
    DIM_FIELD_NUMBER: _ClassVar[int]
    INITIALIZER_FIELD_NUMBER: _ClassVar[int]
    ROW_DTYPE_FIELD_NUMBER: _ClassVar[int]
    LIFE_FIELD_NUMBER: _ClassVar[int]
    name: str
    dim: int
    initializer: str
    row_dtype: str
    life: Life
    def __init__(self, name: _Optional[str] = ..., dim: _Optional[int] = ..., initializer: _Optional[str] = ..., row_dtype: _Optional[str] = ..., life: _Optional[_Union[Life, _Mapping]] = ...) -> None: ...

class Life(_message.Message):
    __slots__ = ("admit_after", "expire_after", "max_rows")
    ADMIT_AFTER_FIELD_NUMBER: _ClassVar[int]
    EXPIRE_AFTER_FIELD_NUMBER: _ClassVar[int]
    MAX_ROWS_FIELD_NUMBER: _ClassVar[int]
    admit_after: int
    expire_after: int
    max_rows: int
    def __init__(self, admit_after: _Optional[int] = ..., expire_after: _Optional[int] = ..., max_rows: _Optional[int] = ...) -> None: ...

class RowRule(_message.Message):
    __slots__ = ("kind", "numbers")
    class NumbersEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    KIND_FIELD_NUMBER: _ClassVar[int]
    NUMBERS_FIELD_NUMBER: _ClassVar[int]
    kind: str
    numbers: _containers.ScalarMap[str, float]
    def __init__(self, kind: _Optional[str] = ..., numbers: _Optional[_Mapping[str, float]] = ...) -> None: ...

class LoadChunk(_message.Message):
    __slots__ = ("header", "data")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    header: LoadHeader
    data: bytes
    def __init__(self, header: _Optional[_Union[LoadHeader, _Mapping]] = ..., data: _Optional[bytes] = ...) -> None: ...

class LoadReply(_message.Message):
    __slots__ = ("proof", "failure")
    PROOF_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    proof: SharedBuffer
    failure: str
    def __init__(self, proof: _Optional[_Union[SharedBuffer, _Mapping]] = ..., failure: _Optional[str] = ...) -> None: ...

class StageHeader(_message.Message):
    __slots__ = ("era", "session", "sequence", "model_version", "num_records", "gradients", "state", "shared", "drop", "rows", "shared_rows")
    ERA_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    MODEL_VERSION_FIELD_NUMBER: _ClassVar[int]
    NUM_RECORDS_FIELD_NUMBER: _ClassVar[int]
    GRADIENTS_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    SHARED_FIELD_NUMBER: _ClassVar[int]
    DROP_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    SHARED_ROWS_FIELD_NUMBER: _ClassVar[int]
    era: str
    session: str
    sequence: int
    model_version: int
    num_records: int
    gradients: _containers.RepeatedCompositeFieldContainer[Tensor]
    state: _containers.RepeatedCompositeFieldContainer[Tensor]
    shared: SharedBuffer
    drop: _containers.RepeatedScalarFieldContainer[int]
    rows: _containers.RepeatedCompositeFieldContainer[RowGradient]
    shared_rows: SharedRows
    def __init__(self, era: _Optional[str] = ..., session: _Optional[str] = ..., sequence: _Optional[int] = ..., model_version: _Optional[int] = ..., num_records: _Optional[int] = ..., gradients: _Optional[_Iterable[_Union[Tensor, _Mapping]]] = ..., state: _Optional[_Iterable[_Union[Tensor, _Mapping]]] = ..., shared: _Optional[_Union[SharedBuffer, _Mapping]] = ..., drop: _Optional[_Iterable[int]] = ..., rows: _Optional[_Iterable[_Union[RowGradient, _Mapping]]] = ..., shared_rows: _Optional[_Union[SharedRows, _Mapping]] = ...) -> None: ...

class StageChunk(_message.Message):
    __slots__ = ("header", "data")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    header: StageHeader
    data: bytes
    def __init__(self, header: _Optional[_Union[StageHeader, _Mapping]] = ..., data: _Optional[bytes] = ...) -> None: ...

class StageReply(_message.Message):
    __slots__ = ("is_stale",)
    IS_STALE_FIELD_NUMBER: _ClassVar[int]
    is_stale: bool
    def __init__(self, is_stale: bool = ...) -> None: ...

class PullRequest(_message.Message):
    __slots__ = ("era", "session", "have_version", "at_least", "shares_memory", "rows_ahead")
    ERA_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    HAVE_VERSION_FIELD_NUMBER: _ClassVar[int]
    AT_LEAST_FIELD_NUMBER: _ClassVar[int]
    SHARES_MEMORY_FIELD_NUMBER: _ClassVar[int]
    ROWS_AHEAD_FIELD_NUMBER: _ClassVar[int]
    era: str
    session: str
    have_version: int
    at_least: int
    shares_memory: bool
    rows_ahead: RowsAhead
    def __init__(self, era: _Optional[str] = ..., session: _Optional[str] = ..., have_version: _Optional[int] = ..., at_least: _Optional[int] = ..., shares_memory: bool = ..., rows_ahead: _Optional[_Union[RowsAhead, _Mapping]] = ...) -> None: ...

class CommitId(_message.Message):
    __slots__ = ("session", "sequence", "num_records", "learning_rate_scale")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    NUM_RECORDS_FIELD_NUMBER: _ClassVar[int]
    LEARNING_RATE_SCALE_FIELD_NUMBER: _ClassVar[int]
    session: str
    sequence: int
    num_records: int
    learning_rate_scale: float
    def __init__(self, session: _Optional[str] = ..., sequence: _Optional[int] = ..., num_records: _Optional[int] = ..., learning_rate_scale: _Optional[float] = ...) -> None: ...

class CommitRequest(_message.Message):
    __slots__ = ("era", "version", "ids", "state_share", "num_epochs", "ended_sessions", "held_rows")
    ERA_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    IDS_FIELD_NUMBER: _ClassVar[int]
    STATE_SHARE_FIELD_NUMBER: _ClassVar[int]
    NUM_EPOCHS_FIELD_NUMBER: _ClassVar[int]
    ENDED_SESSIONS_FIELD_NUMBER: _ClassVar[int]
    HELD_ROWS_FIELD_NUMBER: _ClassVar[int]
    era: str
    version: int
    ids: _containers.RepeatedCompositeFieldContainer[CommitId]
    state_share: float
    num_epochs: int
    ended_sessions: _containers.RepeatedScalarFieldContainer[str]
    held_rows: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, era: _Optional[str] = ..., version: _Optional[int] = ..., ids: _Optional[_Iterable[_Union[CommitId, _Mapping]]] = ..., state_share: _Optional[float] = ..., num_epochs: _Optional[int] = ..., ended_sessions: _Optional[_Iterable[str]] = ..., held_rows: _Optional[_Iterable[int]] = ...) -> None: ...

class CommitReply(_message.Message):
    __slots__ = ("learning_rate", "failure", "applied_learning_rate", "num_rows", "gone")
    LEARNING_RATE_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    APPLIED_LEARNING_RATE_FIELD_NUMBER: _ClassVar[int]
    NUM_ROWS_FIELD_NUMBER: _ClassVar[int]
    GONE_FIELD_NUMBER: _ClassVar[int]
    learning_rate: float
    failure: str
    applied_learning_rate: float
    num_rows: _containers.RepeatedScalarFieldContainer[int]
    gone: _containers.RepeatedCompositeFieldContainer[GoneRows]
    def __init__(self, learning_rate: _Optional[float] = ..., failure: _Optional[str] = ..., applied_learning_rate: _Optional[float] = ..., num_rows: _Optional[_Iterable[int]] = ..., gone: _Optional[_Iterable[_Union[GoneRows, _Mapping]]] = ...) -> None: ...

class GoneRows(_message.Message):
    __slots__ = ("expired", "evicted")
    EXPIRED_FIELD_NUMBER: _ClassVar[int]
    EVICTED_FIELD_NUMBER: _ClassVar[int]
    expired: int
    evicted: int
    def __init__(self, expired: _Optional[int] = ..., evicted: _Optional[int] = ...) -> None: ...

class CopyRequest(_message.Message):
    __slots__ = ("era", "version", "num_epochs", "with_optimizer")
    ERA_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    NUM_EPOCHS_FIELD_NUMBER: _ClassVar[int]
    WITH_OPTIMIZER_FIELD_NUMBER: _ClassVar[int]
    era: str
    version: int
    num_epochs: int
    with_optimizer: bool
    def __init__(self, era: _Optional[str] = ..., version: _Optional[int] = ..., num_epochs: _Optional[int] = ..., with_optimizer: bool = ...) -> None: ...

class CopyHeader(_message.Message):
    __slots__ = ("parameters", "state", "optimizer", "optimizer_values")
    PARAMETERS_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    OPTIMIZER_FIELD_NUMBER: _ClassVar[int]
    OPTIMIZER_VALUES_FIELD_NUMBER: _ClassVar[int]
    parameters: _containers.RepeatedCompositeFieldContainer[Tensor]
    state: _containers.RepeatedCompositeFieldContainer[Tensor]
    optimizer: _containers.RepeatedCompositeFieldContainer[Tensor]
    optimizer_values: str
    def __init__(self, parameters: _Optional[_Iterable[_Union[Tensor, _Mapping]]] = ..., state: _Optional[_Iterable[_Union[Tensor, _Mapping]]] = ..., optimizer: _Optional[_Iterable[_Union[Tensor, _Mapping]]] = ..., optimizer_values: _Optional[str] = ...) -> None: ...

class CopyChunk(_message.Message):
    __slots__ = ("header", "data")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    header: CopyHeader
    data: bytes
    def __init__(self, header: _Optional[_Union[CopyHeader, _Mapping]] = ..., data: _Optional[bytes] = ...) -> None: ...

class PutRowsRequest(_message.Message):
    __slots__ = ("era", "table", "ids", "values", "old_version")
    ERA_FIELD_NUMBER: _ClassVar[int]
    TABLE_FIELD_NUMBER: _ClassVar[int]
    IDS_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    OLD_VERSION_FIELD_NUMBER: _ClassVar[int]
    era: str
    table: str
    ids: bytes
    values: bytes
    old_version: int
    def __init__(self, era: _Optional[str] = ..., table: _Optional[str] = ..., ids: _Optional[bytes] = ..., values: _Optional[bytes] = ..., old_version: _Optional[int] = ...) -> None: ...

class PutRowsReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ReadRowsRequest(_message.Message):
    __slots__ = ("era", "table", "ids", "version", "as_stored", "buffer", "session")
    ERA_FIELD_NUMBER: _ClassVar[int]
    TABLE_FIELD_NUMBER: _ClassVar[int]
    IDS_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    AS_STORED_FIELD_NUMBER: _ClassVar[int]
    BUFFER_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    era: str
    table: str
    ids: bytes
    version: int
    as_stored: bool
    buffer: SharedBuffer
    session: str
    def __init__(self, era: _Optional[str] = ..., table: _Optional[str] = ..., ids: _Optional[bytes] = ..., version: _Optional[int] = ..., as_stored: bool = ..., buffer: _Optional[_Union[SharedBuffer, _Mapping]] = ..., session: _Optional[str] = ...) -> None: ...

class ReadRowsReply(_message.Message):
    __slots__ = ("is_there", "values")
    IS_THERE_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    is_there: bytes
    values: bytes
    def __init__(self, is_there: _Optional[bytes] = ..., values: _Optional[bytes] = ...) -> None: ...

class ScanRowsRequest(_message.Message):
    __slots__ = ("era", "table", "version", "start")
    ERA_FIELD_NUMBER: _ClassVar[int]
    TABLE_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    era: str
    table: str
    version: int
    start: int
    def __init__(self, era: _Optional[str] = ..., table: _Optional[str] = ..., version: _Optional[int] = ..., start: _Optional[int] = ...) -> None: ...

class ScanRowsReply(_message.Message):
    __slots__ = ("ids", "values", "next")
    IDS_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    NEXT_FIELD_NUMBER: _ClassVar[int]
    ids: bytes
    values: bytes
    next: int
    def __init__(self, ids: _Optional[bytes] = ..., values: _Optional[bytes] = ..., next: _Optional[int] = ...) -> None: ...

class HeartbeatRequest(_message.Message):
    __slots__ = ("session",)
    SESSION_FIELD_NUMBER: _ClassVar[int]
    session: str
    def __init__(self, session: _Optional[str] = ...) -> None: ...

class HeartbeatReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetTaskRequest(_message.Message):
    __slots__ = ("session", "working_on")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    WORKING_ON_FIELD_NUMBER: _ClassVar[int]
    session: str
    working_on: int
    def __init__(self, session: _Optional[str] = ..., working_on: _Optional[int] = ...) -> None: ...

class GetTaskReply(_message.Message):
    __slots__ = ("task", "wait_s", "finished")
    TASK_FIELD_NUMBER: _ClassVar[int]
    WAIT_S_FIELD_NUMBER: _ClassVar[int]
    FINISHED_FIELD_NUMBER: _ClassVar[int]
    task: Task
    wait_s: float
    finished: bool
    def __init__(self, task: _Optional[_Union[Task, _Mapping]] = ..., wait_s: _Optional[float] = ..., finished: bool = ...) -> None: ...

class GetModelRequest(_message.Message):
    __slots__ = ("session", "have_version", "shares_memory", "version", "frozen")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    HAVE_VERSION_FIELD_NUMBER: _ClassVar[int]
    SHARES_MEMORY_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    FROZEN_FIELD_NUMBER: _ClassVar[int]
    session: str
    have_version: int
    shares_memory: bool
    version: int
    frozen: bool
    def __init__(self, session: _Optional[str] = ..., have_version: _Optional[int] = ..., shares_memory: bool = ..., version: _Optional[int] = ..., frozen: bool = ...) -> None: ...

class ModelHeader(_message.Message):
    __slots__ = ("model_version", "unchanged", "parameters", "state", "shared", "has_rows")
    MODEL_VERSION_FIELD_NUMBER: _ClassVar[int]
    UNCHANGED_FIELD_NUMBER: _ClassVar[int]
    PARAMETERS_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    SHARED_FIELD_NUMBER: _ClassVar[int]
    HAS_ROWS_FIELD_NUMBER: _ClassVar[int]
    model_version: int
    unchanged: bool
    parameters: _containers.RepeatedCompositeFieldContainer[Tensor]
    state: _containers.RepeatedCompositeFieldContainer[Tensor]
    shared: SharedBuffer
    has_rows: bool
    def __init__(self, model_version: _Optional[int] = ..., unchanged: bool = ..., parameters: _Optional[_Iterable[_Union[Tensor, _Mapping]]] = ..., state: _Optional[_Iterable[_Union[Tensor, _Mapping]]] = ..., shared: _Optional[_Union[SharedBuffer, _Mapping]] = ..., has_rows: bool = ...) -> None: ...

class ModelChunk(_message.Message):
    __slots__ = ("header", "data")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    header: ModelHeader
    data: bytes
    def __init__(self, header: _Optional[_Union[ModelHeader, _Mapping]] = ..., data: _Optional[bytes] = ...) -> None: ...

class GetRowsRequest(_message.Message):
    __slots__ = ("session", "table", "ids", "version", "buffer")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    TABLE_FIELD_NUMBER: _ClassVar[int]
    IDS_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    BUFFER_FIELD_NUMBER: _ClassVar[int]
    session: str
    table: str
    ids: bytes
    version: int
    buffer: SharedBuffer
    def __init__(self, session: _Optional[str] = ..., table: _Optional[str] = ..., ids: _Optional[bytes] = ..., version: _Optional[int] = ..., buffer: _Optional[_Union[SharedBuffer, _Mapping]] = ...) -> None: ...

class RowsChunk(_message.Message):
    __slots__ = ("data",)
    DATA_FIELD_NUMBER: _ClassVar[int]
    data: bytes
    def __init__(self, data: _Optional[bytes] = ...) -> None: ...

class RowsAhead(_message.Message):
    __slots__ = ("tables", "buffer")
    class Ids(_message.Message):
        __slots__ = ("table", "ids")
        TABLE_FIELD_NUMBER: _ClassVar[int]
        IDS_FIELD_NUMBER: _ClassVar[int]
        table: str
        ids: bytes
        def __init__(self, table: _Optional[str] = ..., ids: _Optional[bytes] = ...) -> None: ...
    TABLES_FIELD_NUMBER: _ClassVar[int]
    BUFFER_FIELD_NUMBER: _ClassVar[int]
    tables: _containers.RepeatedCompositeFieldContainer[RowsAhead.Ids]
    buffer: SharedBuffer
    def __init__(self, tables: _Optional[_Iterable[_Union[RowsAhead.Ids, _Mapping]]] = ..., buffer: _Optional[_Union[SharedBuffer, _Mapping]] = ...) -> None: ...

class SharedRows(_message.Message):
    __slots__ = ("tensors", "buffer")
    TENSORS_FIELD_NUMBER: _ClassVar[int]
    BUFFER_FIELD_NUMBER: _ClassVar[int]
    tensors: _containers.RepeatedCompositeFieldContainer[Tensor]
    buffer: SharedBuffer
    def __init__(self, tensors: _Optional[_Iterable[_Union[Tensor, _Mapping]]] = ..., buffer: _Optional[_Union[SharedBuffer, _Mapping]] = ...) -> None: ...

class RowGradient(_message.Message):
    __slots__ = ("table", "ids", "values", "dtype")
    TABLE_FIELD_NUMBER: _ClassVar[int]
    IDS_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    table: str
    ids: bytes
    values: bytes
    dtype: str
    def __init__(self, table: _Optional[str] = ..., ids: _Optional[bytes] = ..., values: _Optional[bytes] = ..., dtype: _Optional[str] = ...) -> None: ...

class GradientHeader(_message.Message):
    __slots__ = ("session", "sequence", "task_id", "attempt", "start", "end", "model_version", "loss", "step_s", "gradients", "state", "shared", "wants_model", "oddity", "metrics", "is_staged", "rows", "shared_rows", "rows_ahead")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    MODEL_VERSION_FIELD_NUMBER: _ClassVar[int]
    LOSS_FIELD_NUMBER: _ClassVar[int]
    STEP_S_FIELD_NUMBER: _ClassVar[int]
    GRADIENTS_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    SHARED_FIELD_NUMBER: _ClassVar[int]
    WANTS_MODEL_FIELD_NUMBER: _ClassVar[int]
    ODDITY_FIELD_NUMBER: _ClassVar[int]
    METRICS_FIELD_NUMBER: _ClassVar[int]
    IS_STAGED_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    SHARED_ROWS_FIELD_NUMBER: _ClassVar[int]
    ROWS_AHEAD_FIELD_NUMBER: _ClassVar[int]
    session: str
    sequence: int
    task_id: int
    attempt: int
    start: int
    end: int
    model_version: int
    loss: float
    step_s: float
    gradients: _containers.RepeatedCompositeFieldContainer[Tensor]
    state: _containers.RepeatedCompositeFieldContainer[Tensor]
    shared: SharedBuffer
    wants_model: bool
    oddity: str
    metrics: _containers.RepeatedCompositeFieldContainer[Metric]
    is_staged: bool
    rows: _containers.RepeatedCompositeFieldContainer[RowGradient]
    shared_rows: SharedRows
    rows_ahead: RowsAhead
    def __init__(self, session: _Optional[str] = ..., sequence: _Optional[int] = ..., task_id: _Optional[int] = ..., attempt: _Optional[int] = ..., start: _Optional[int] = ..., end: _Optional[int] = ..., model_version: _Optional[int] = ..., loss: _Optional[float] = ..., step_s: _Optional[float] = ..., gradients: _Optional[_Iterable[_Union[Tensor, _Mapping]]] = ..., state: _Optional[_Iterable[_Union[Tensor, _Mapping]]] = ..., shared: _Optional[_Union[SharedBuffer, _Mapping]] = ..., wants_model: bool = ..., oddity: _Optional[str] = ..., metrics: _Optional[_Iterable[_Union[Metric, _Mapping]]] = ..., is_staged: bool = ..., rows: _Optional[_Iterable[_Union[RowGradient, _Mapping]]] = ..., shared_rows: _Optional[_Union[SharedRows, _Mapping]] = ..., rows_ahead: _Optional[_Union[RowsAhead, _Mapping]] = ...) -> None: ...

class GradientChunk(_message.Message):
    __slots__ = ("header", "data")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    header: GradientHeader
    data: bytes
    def __init__(self, header: _Optional[_Union[GradientHeader, _Mapping]] = ..., data: _Optional[bytes] = ...) -> None: ...

class SharedModel(_message.Message):
    __slots__ = ("model_version", "buffer")
    MODEL_VERSION_FIELD_NUMBER: _ClassVar[int]
    BUFFER_FIELD_NUMBER: _ClassVar[int]
    model_version: int
    buffer: SharedBuffer
    def __init__(self, model_version: _Optional[int] = ..., buffer: _Optional[_Union[SharedBuffer, _Mapping]] = ...) -> None: ...

class ReportGradientReply(_message.Message):
    __slots__ = ("verdict", "model_version", "model", "rows_version")
    class Verdict(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        VERDICT_UNSPECIFIED: _ClassVar[ReportGradientReply.Verdict]
        VERDICT_ACCEPTED: _ClassVar[ReportGradientReply.Verdict]
        VERDICT_STALE: _ClassVar[ReportGradientReply.Verdict]
        VERDICT_LEASE_LOST: _ClassVar[ReportGradientReply.Verdict]
    VERDICT_UNSPECIFIED: ReportGradientReply.Verdict
    VERDICT_ACCEPTED: ReportGradientReply.Verdict
    VERDICT_STALE: ReportGradientReply.Verdict
    VERDICT_LEASE_LOST: ReportGradientReply.Verdict
    VERDICT_FIELD_NUMBER: _ClassVar[int]
    MODEL_VERSION_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    ROWS_VERSION_FIELD_NUMBER: _ClassVar[int]
    verdict: ReportGradientReply.Verdict
    model_version: int
    model: SharedModel
    rows_version: int
    def __init__(self, verdict: _Optional[_Union[ReportGradientReply.Verdict, str]] = ..., model_version: _Optional[int] = ..., model: _Optional[_Union[SharedModel, _Mapping]] = ..., rows_version: _Optional[int] = ...) -> None: ...

class ReportTaskResultRequest(_message.Message):
    __slots__ = ("session", "sequence", "task_id", "attempt", "outcome", "start", "end", "message", "traceback", "metrics", "model_version", "num_predictions", "step_s", "runs_at")
    class Outcome(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        OUTCOME_UNSPECIFIED: _ClassVar[ReportTaskResultRequest.Outcome]
        OUTCOME_EVALUATED: _ClassVar[ReportTaskResultRequest.Outcome]
        OUTCOME_FAILED: _ClassVar[ReportTaskResultRequest.Outcome]
        OUTCOME_RELEASED: _ClassVar[ReportTaskResultRequest.Outcome]
        OUTCOME_HOPELESS: _ClassVar[ReportTaskResultRequest.Outcome]
        OUTCOME_EMPTY: _ClassVar[ReportTaskResultRequest.Outcome]
        OUTCOME_PREDICTING: _ClassVar[ReportTaskResultRequest.Outcome]
        OUTCOME_PREDICTED: _ClassVar[ReportTaskResultRequest.Outcome]
        OUTCOME_SEARCHING: _ClassVar[ReportTaskResultRequest.Outcome]
    OUTCOME_UNSPECIFIED: ReportTaskResultRequest.Outcome
    OUTCOME_EVALUATED: ReportTaskResultRequest.Outcome
    OUTCOME_FAILED: ReportTaskResultRequest.Outcome
    OUTCOME_RELEASED: ReportTaskResultRequest.Outcome
    OUTCOME_HOPELESS: ReportTaskResultRequest.Outcome
    OUTCOME_EMPTY: ReportTaskResultRequest.Outcome
    OUTCOME_PREDICTING: ReportTaskResultRequest.Outcome
    OUTCOME_PREDICTED: ReportTaskResultRequest.Outcome
    OUTCOME_SEARCHING: ReportTaskResultRequest.Outcome
    SESSION_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    TRACEBACK_FIELD_NUMBER: _ClassVar[int]
    METRICS_FIELD_NUMBER: _ClassVar[int]
    MODEL_VERSION_FIELD_NUMBER: _ClassVar[int]
    NUM_PREDICTIONS_FIELD_NUMBER: _ClassVar[int]
    STEP_S_FIELD_NUMBER: _ClassVar[int]
    RUNS_AT_FIELD_NUMBER: _ClassVar[int]
    session: str
    sequence: int
    task_id: int
    attempt: int
    outcome: ReportTaskResultRequest.Outcome
    start: int
    end: int
    message: str
    traceback: str
    metrics: _containers.RepeatedCompositeFieldContainer[Metric]
    model_version: int
    num_predictions: int
    step_s: float
    runs_at: int
    def __init__(self, session: _Optional[str] = ..., sequence: _Optional[int] = ..., task_id: _Optional[int] = ..., attempt: _Optional[int] = ..., outcome: _Optional[_Union[ReportTaskResultRequest.Outcome, str]] = ..., start: _Optional[int] = ..., end: _Optional[int] = ..., message: _Optional[str] = ..., traceback: _Optional[str] = ..., metrics: _Optional[_Iterable[_Union[Metric, _Mapping]]] = ..., model_version: _Optional[int] = ..., num_predictions: _Optional[int] = ..., step_s: _Optional[float] = ..., runs_at: _Optional[int] = ...) -> None: ...

class Metric(_message.Message):
    __slots__ = ("name", "values")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    name: str
    values: _containers.RepeatedCompositeFieldContainer[Tensor]
    def __init__(self, name: _Optional[str] = ..., values: _Optional[_Iterable[_Union[Tensor, _Mapping]]] = ...) -> None: ...

class ReportTaskResultReply(_message.Message):
    __slots__ = ("accepted",)
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    accepted: bool
    def __init__(self, accepted: bool = ...) -> None: ...

class LeaveRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class LeaveReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
