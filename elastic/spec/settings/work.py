"""The settings of what a job does, and how: those that mean the same on every platform."""

import re
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

from elastic.spec.platforms import EVALUATE, METRICS_PORT, PREDICT, TRAIN, JobKind, PlatformName
from elastic.spec.settings import Place, WorkerRange, setting
from elastic.spec.settings.cluster import PodEnvs
from elastic.spec.settings.text_forms import Count, Number, Params, Truth, Whole
from elastic.spec.values import NANO, nanos_of, parse_batch_range, parse_redis_url

MAX_JOB_NAME_LENGTH: Final = 40
"""Pods are named elastic-JOB-worker-N, and their Service must fit a DNS label of 63."""


def _read_workers(value: object) -> object:
    if isinstance(value, (str, int)) and not isinstance(value, bool):
        return WorkerRange.parse(value)
    return value


def _read_log_level(value: object) -> object:
    return value.upper() if isinstance(value, str) and value.upper() in LOG_LEVELS else value


LOG_LEVELS: Final = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
Workers = Annotated[WorkerRange, BeforeValidator(_read_workers, json_schema_input_type=int | str)]
LogLevel = Annotated[
    Literal["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"],
    BeforeValidator(_read_log_level, json_schema_input_type=str),
]


STRATEGIES_ELSEWHERE: Final = {"ParameterServerStrategy": "ps", "Local": "master"}
"""What ElasticDL calls them."""


def _read_strategy(value: object) -> object:
    return STRATEGIES_ELSEWHERE.get(value, value) if isinstance(value, str) else value


StrategyName = Annotated[
    Literal["master", "ps"], BeforeValidator(_read_strategy, json_schema_input_type=str)
]
WireDtypeName = Literal["float32", "bfloat16"]
EmbeddingStoreName = Literal["memory", "redis", "ps"]


def _check_redis_url(url: str) -> str:
    if url:
        parse_redis_url(url)
    return url


RedisUrl = Annotated[str, AfterValidator(_check_redis_url)]


def _check_batch_range(text: str) -> str:
    if text:
        parse_batch_range(text)
    return text


BatchRangeText = Annotated[str, AfterValidator(_check_batch_range)]


def _read_size(value: object) -> object:
    """`64MiB` and the like as bytes, rounded up.

    Raises:
        ValueError: It is no size.
    """
    if value is None:
        return None
    try:
        return -(-nanos_of(str(value).removesuffix("B")) // NANO)
    except ValueError as error:
        raise ValueError(f"{value!r} is no size like 64MiB or 1000000") from error


Size = Annotated[int, BeforeValidator(_read_size, json_schema_input_type=int | str)]
ShuffleName = Literal["records", "tasks", "none"]


class WorkSettings(BaseModel):
    """What is trained, evaluated or predicted, and how."""

    # -- the job
    kind: JobKind = setting(
        JobKind.TRAIN,
        "what the job does; its command says so, and a job file may repeat it",
        group="Job",
    )
    job_name: str = setting(
        "",
        "name of the job; made from the model_def where none is given",
        group="Job",
        aliases=("name",),
    )
    platform: PlatformName = setting(
        PlatformName.KUBERNETES,
        "where the job runs; local where nobody says it and nothing here names a cluster",
        group="Job",
    )
    log_level: LogLevel = setting("INFO", "how much the replicas log", group="Job")
    envs: PodEnvs = setting({}, "environment of the replicas, as k1=v1,k2=v2", group="Job")
    seed: Whole = setting(
        0, "seeds the shuffle, the initial parameters and dropout", group="Job", ge=0
    )

    # -- the model
    model_zoo: Path = setting(
        ..., "folder that holds the model's module", group="Model", place=Place.PATH
    )
    model_def: str = setting(
        ..., "package.module.Symbol of the model, below --model_zoo", group="Model"
    )
    model: str = setting(
        "",
        "exported model whose parameters the job takes: a .keras file or SavedModel, or torch's "
        ".safetensors",
        group="Model",
        place=Place.PATH,
        kinds=EVALUATE + PREDICT,
    )
    model_params: Params = setting(
        {}, "arguments of the model, as a=1,b=two; values are YAML", group="Model"
    )
    dataset_fn: str = setting(
        "dataset_fn", "symbol that turns raw records into (features, labels)", group="Model"
    )
    batch_fn: str = setting(
        "batch_fn",
        "symbol that turns the columns of a minibatch into (features, labels); used where the "
        "module has it, in place of the dataset_fn",
        group="Model",
    )
    loss: str = setting("loss", "symbol of the loss function", group="Model")
    optimizer: str = setting("optimizer", "symbol that makes the optimizer", group="Model")
    eval_metrics_fn: str = setting(
        "eval_metrics_fn",
        "symbol that names the metrics",
        group="Model",
        kinds=(JobKind.TRAIN, JobKind.EVALUATE),
    )
    callbacks: str = setting(
        "callbacks", "symbol that makes the callbacks", group="Model", kinds=TRAIN
    )
    lr_scheduler: str = setting(
        "lr_scheduler",
        "symbol that makes the learning-rate schedule (torch)",
        group="Model",
        kinds=TRAIN,
    )
    custom_data_reader: str = setting(
        "custom_data_reader", "symbol of the user's own reader", group="Model"
    )
    prediction_outputs_processor: str = setting(
        "PredictionOutputsProcessor",
        "symbol that receives predictions",
        group="Model",
        # Where it is named for every command of a model, as in ElasticDL, training needs no other.
        kinds=TRAIN + PREDICT,
    )

    # -- the data
    training_data_dir: str = setting(
        "",
        "files, folders, globs or addresses of the training records",
        group="Data",
        aliases=("training_data",),
        place=Place.SOURCE,
        kinds=TRAIN,
    )
    evaluation_data_dir: str = setting(
        "",
        "files, folders, globs or addresses of the evaluation records",
        group="Data",
        aliases=("evaluation_data",),
        place=Place.SOURCE,
        kinds=(JobKind.TRAIN, JobKind.EVALUATE),
    )
    prediction_data_dir: str = setting(
        "",
        "files, folders, globs or addresses of the records to predict",
        group="Data",
        aliases=("prediction_data",),
        place=Place.SOURCE,
        kinds=PREDICT,
    )
    data_reader_params: Params = setting({}, "arguments of the reader, as a=1,b=two", group="Data")
    records_per_task: Count | None = setting(
        None,
        "records leased to a worker at a time, at most, in whole minibatches; by default so many "
        "that all workers have work (predictions: 1000)",
        group="Data",
    )
    minibatch_size: Count = setting(..., "records of one gradient", group="Data")
    shrink_minibatches: Truth = setting(
        False,
        "where minibatches fail by their size, such as out of memory, go on with as many records "
        "as run",
        group="Data",
        kinds=TRAIN,
    )
    num_epochs: Count = setting(1, "how often every record counts", group="Data", kinds=TRAIN)
    max_steps: Whole = setting(
        0,
        "updates after which training ends, be it within an epoch; 0 trains all epochs",
        group="Data",
        aliases=("max_step",),
        ge=0,
        kinds=TRAIN,
    )
    shuffle: ShuffleName = setting(
        "records",
        "what comes in another, seeded order in each epoch: records, tasks (ranges of records as "
        "they stand in the files), or none",
        group="Data",
        kinds=TRAIN,
    )
    drop_last: Truth = setting(
        False,
        "leave out the last minibatch of an epoch where it is a short one",
        group="Data",
        kinds=TRAIN,
    )
    skip_bad_records: Whole = setting(
        0, "records that may fail for good before the job does", group="Data", ge=0
    )
    max_task_failures: Count = setting(3, "attempts a failing record gets", group="Data")

    # -- updates
    grads_to_wait: Count | None = setting(
        None,
        "gradients averaged into one synchronous update; the maximum of num_workers by default",
        group="Updates",
        kinds=TRAIN,
    )
    elastic_batch: BatchRangeText = setting(
        "",
        "MIN:MAX, records of one synchronous update, of which the master chooses as many as train "
        "fastest by the noise of the gradients; MIN is the batch that the learning rate is for, "
        "and for a larger one the rate is raised",
        group="Updates",
        kinds=TRAIN,
    )
    use_async: Truth = setting(
        False, "apply each gradient as it comes", group="Updates", kinds=TRAIN
    )
    lr_staleness_modulation: Truth = setting(
        False,
        "divide the learning rate of a late gradient by its staleness (asynchronous)",
        group="Updates",
        kinds=TRAIN,
    )
    max_staleness: Whole | None = setting(
        None,
        "refuse gradients older than this many updates (asynchronous); no bound by default",
        group="Updates",
        ge=0,
        kinds=TRAIN,
    )
    get_model_steps: Count = setting(
        1,
        "pull the model every so many steps and apply own gradients in between",
        group="Updates",
        kinds=TRAIN,
    )

    # -- where the parameters are
    strategy: StrategyName | None = setting(
        None,
        "where the parameters are: in the master, or on parameter servers (ps); ps where num_ps "
        "names any, else master",
        group="Updates",
        aliases=("distribution_strategy",),
        kinds=TRAIN,
    )
    num_ps: Whole = setting(
        0,
        "parameter servers over which the parameters are spread, each with the user's optimizer",
        group="Updates",
        aliases=("num_ps_pods",),
        ge=0,
        kinds=TRAIN,
    )

    wire_dtype: WireDtypeName = setting(
        "float32",
        "what float32 gradients are sent as to another machine; bfloat16 is half the bytes, and "
        "rounds them",
        group="Updates",
        kinds=TRAIN,
    )
    embedding_store: EmbeddingStoreName = setting(
        "memory",
        "where rows of embeddings are: in the master's memory, on the parameter servers (ps), or "
        "in a Redis, that of embedding_redis_url or one that the job brings along",
        group="Updates",
        kinds=TRAIN,
    )
    embedding_redis_url: RedisUrl = setting(
        "",
        "Redis or Redis Cluster that is there already, as redis://USER@HOST:PORT/DATABASE or "
        "rediss://…; its password is read from ELASTIC_REDIS_PASSWORD",
        group="Updates",
        kinds=TRAIN,
    )
    embedding_redis_ca: str = setting(
        "",
        "file, where the master runs, with the certificates of who vouches for the Redis at a "
        "rediss:// address (PEM); else those of the system",
        group="Updates",
        kinds=TRAIN,
    )
    embedding_redis_patience: Number = setting(
        60.0,
        "seconds that the master waits for a Redis which does not answer, before the job goes back "
        "to its newest cut",
        group="Updates",
        gt=0,
        kinds=TRAIN,
    )
    embedding_staleness: Whole = setting(
        0,
        "let workers use a row that they have read for so many updates more, before they read it "
        "again; 0 has them read the rows of each minibatch",
        group="Updates",
        ge=0,
        kinds=TRAIN,
    )

    embedding_threshold: Size | None = setting(
        None,
        "ordinary embedding layers of this size and more become tables of rows, as 64MiB; evaluate "
        "and predict need the one of the training",
        group="Model",
    )

    # -- workers and failures
    num_workers: Workers = setting(
        "1",
        "workers: a number, or MIN:MAX, of which one machine begins with as many as it has cores",
        group="Workers",
        aliases=("workers",),
    )
    max_worker_failures: Whole = setting(
        10,
        "crashes of the user's code before the job fails, of workers or of parameter servers; "
        "kills by the system are free",
        group="Workers",
        ge=0,
    )
    start_timeout: Number = setting(
        600.0,
        "seconds a job may be without any worker, and its preparation or a worker's may take",
        group="Workers",
        gt=0,
    )
    hang_timeout: Number = setting(
        60.0,
        "seconds without progress before a worker or an update can count as hung, at the least",
        group="Workers",
        gt=0,
    )
    master_port: Whole = setting(
        0, "port of the master; 0 takes a free one", group="Workers", ge=0, le=65535
    )
    tls: Truth | None = setting(
        None,
        "encrypt the calls between the processes of the job, by a certificate of its own; on "
        "Kubernetes true, on one machine false by default",
        group="Workers",
    )

    # -- checkpoints and results
    checkpoint_dir: str = setting(
        "",
        "folder for checkpoints that are kept; without it they are in the job's own folder",
        group="Checkpoints",
        place=Place.PATH,
        kinds=TRAIN,
    )
    checkpoint_steps: Whole = setting(
        0,
        "updates between checkpoints; 0 keeps none but the final one",
        group="Checkpoints",
        ge=0,
        kinds=TRAIN,
    )
    keep_checkpoint_max: Whole = setting(
        0, "checkpoints kept; 0 keeps all", group="Checkpoints", ge=0, kinds=TRAIN
    )
    checkpoint_filename_for_init: str = setting(
        "",
        "checkpoint whose parameters the job starts from",
        group="Checkpoints",
        aliases=("init_from",),
        place=Place.PATH,
    )
    recovery_interval: Number = setting(
        30.0,
        "seconds between the cuts that a restarted master goes back to",
        group="Checkpoints",
        gt=0,
        kinds=TRAIN,
    )
    resume: Truth = setting(
        False,
        "go on from the newest checkpoint of this job; where there is none, say so and start",
        group="Checkpoints",
        kinds=(JobKind.TRAIN, JobKind.PREDICT),
    )
    overwrite: Truth = setting(
        False, "start anew where a job of that name has ended", group="Checkpoints"
    )
    output: str = setting(
        "",
        "file or folder that the trained model is exported to; the suffix says in which form",
        group="Checkpoints",
        place=Place.PATH,
        kinds=TRAIN,
    )
    commit_log: str = setting(
        "",
        "file that lists the records behind every update, in order",
        group="Checkpoints",
        place=Place.PATH,
        kinds=TRAIN,
    )

    # -- predictions
    prediction_outputs: str = setting(
        "",
        "folder for the predictions; without it, below the job's own folder on one machine",
        group="Predictions",
        place=Place.PATH,
        kinds=PREDICT,
    )
    prediction_format: Literal["csv", "parquet"] = setting(
        "csv", "form of the files of predictions", group="Predictions", kinds=PREDICT
    )

    # -- evaluation and telemetry
    evaluation_steps: Whole = setting(
        0,
        "updates between evaluations; 0 evaluates at the end",
        group="Evaluation",
        ge=0,
        kinds=TRAIN,
    )
    evaluation_at_epoch_end: Truth = setting(
        False,
        "evaluate the version at the end of each epoch; callbacks that watch a metric imply it",
        group="Evaluation",
        kinds=TRAIN,
    )
    train_metrics: Truth = setting(
        False,
        "compute the metrics of eval_metrics_fn on the training minibatches too, for each epoch",
        group="Evaluation",
        kinds=TRAIN,
    )
    evaluation_throttle_secs: Number = setting(
        0.0, "seconds between evaluations, at the least", group="Evaluation", ge=0, kinds=TRAIN
    )
    evaluation_start_delay_secs: Number = setting(
        100.0, "seconds before the first evaluation", group="Evaluation", ge=0, kinds=TRAIN
    )
    tensorboard_log_dir: str = setting(
        "",
        "folder for TensorBoard event files, one for each job; see `elastic tensorboard`",
        group="Telemetry",
        place=Place.PATH,
        kinds=TRAIN,
    )
    metrics_port: Whole | None = setting(
        None,
        "port of the master's and the workers' metrics for Prometheus, on one machine those of the "
        f"workers follow; 0 for none; {METRICS_PORT} on Kubernetes and none on one machine by "
        "default",
        group="Telemetry",
        ge=0,
        le=65535,
    )

    @field_validator("training_data_dir", "evaluation_data_dir", "prediction_data_dir")
    @classmethod
    def _check_data(cls, value: str, info: ValidationInfo) -> str:
        kind: JobKind | None = info.data.get("kind")
        if not value and kind is not None and info.field_name == kind.data_setting:
            raise PydanticCustomError("missing", "the records of the job are not named")
        return value

    @field_validator("model_def")
    @classmethod
    def _check_model_def(cls, value: str) -> str:
        if not re.fullmatch(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+", value):
            raise ValueError(f"{value!r} is not of the form package.module.Symbol")
        return value

    @field_validator("job_name")
    @classmethod
    def _check_job_name(cls, value: str) -> str:
        if value and not re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", value):
            raise ValueError(
                f"{value!r} must be lower-case letters, digits and '-', and begin with a letter"
            )
        if len(value) > MAX_JOB_NAME_LENGTH:
            raise ValueError(f"{value!r} is longer than {MAX_JOB_NAME_LENGTH} characters")
        return value
