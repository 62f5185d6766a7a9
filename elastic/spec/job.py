"""`JobSpec`: every setting of a job, declared once with type, unit, default and reason.

The command line makes its flags from these fields, the job file has them as keys, and every
process of a job receives the whole document serialized, never flag by flag.
"""

import re
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from elastic.spec.cluster_forms import (
    Image,
    Namespace,
    NodeSelector,
    ObjectNames,
    PodEnvs,
    PriorityClass,
    Resources,
    SecretNames,
    Tolerations,
    Volumes,
    WorkerPriority,
)
from elastic.spec.kinds import EVALUATE, EVERY_KIND, PREDICT, TRAIN, JobKind
from elastic.spec.model_def import SymbolNames
from elastic.spec.platforms import METRICS_PORT, PlatformName
from elastic.spec.text_forms import Count, Number, Params, Truth, Whole

MAX_JOB_NAME_LENGTH: Final = 40
"""Pods are named elastic-JOB-worker-N, and their Service must fit a DNS label of 63."""


RECORDS_PER_RANGE: Final = 1000
"""Of a prediction's files, where the user names no number of records."""


class Place(StrEnum):
    """What a text setting says about the file system of whoever submits the job."""

    PATH = "path"
    SOURCE = "source"
    """A path, or a name that means something to the user's own reader only."""


class WorkerRange(BaseModel):
    """How many workers a job may have: `2` is exactly two, `2:8` two to eight."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    minimum: int = Field(ge=0)
    maximum: int = Field(ge=0)

    @classmethod
    def parse(cls, text: str | int) -> "WorkerRange":
        """Read `N` or `MIN:MAX`.

        Raises:
            ValueError: The text is neither, or the minimum is above the maximum.
        """
        match = re.fullmatch(r"\s*(\d+)\s*(?::\s*(\d+)\s*)?", str(text))
        if match is None:
            raise ValueError(f"{text!r} is neither a number like 2 nor a range like 2:8")
        low = int(match[1])
        high = int(match[2]) if match[2] is not None else low
        if low > high:
            raise ValueError(f"{text!r} has a minimum above its maximum: swap them")
        return cls(minimum=low, maximum=high)

    def __str__(self) -> str:
        if self.minimum == self.maximum:
            return str(self.minimum)
        return f"{self.minimum}:{self.maximum}"


def setting(
    default: Any,
    help: str,
    *,
    group: str,
    only: PlatformName | None = None,
    kinds: tuple[JobKind, ...] = EVERY_KIND,
    aliases: tuple[str, ...] = (),
    place: Place | None = None,
    **limits: Any,
) -> Any:
    """Declare one setting: a pydantic field that the command line can also describe.

    Args:
        default: The default; `...` for a required setting.
        help: One sentence for people, with the unit.
        group: Heading it stands under in `elastic train --help` and in the docs.
        kinds: The jobs that it has a meaning for; the commands of others refuse it.
        only: The platform that uses it; elsewhere it is accepted and said to be unused.
        aliases: Other names that flags and job files may use.
        place: Set where the value names a place in the file system; it is made absolute for the
            local platform, whose replicas have another working directory than the user.
        limits: Passed to `pydantic.Field` (ge, gt, le, …).
    """
    extra: dict[str, Any] = {"group": group, "aliases": list(aliases), "kinds": list(kinds)}
    if place is not None:
        extra["place"] = place.value
    if only is not None:
        extra["only"] = only.value
    return Field(default, description=help, json_schema_extra=extra, **limits)


def _read_workers(value: object) -> object:
    if isinstance(value, (str, int)) and not isinstance(value, bool):
        return WorkerRange.parse(value)
    return value


def _read_log_level(value: object) -> object:
    return value.upper() if isinstance(value, str) and value.upper() in LOG_LEVELS else value


LOG_LEVELS: Final = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
K8S: Final = PlatformName.KUBERNETES
Workers = Annotated[WorkerRange, BeforeValidator(_read_workers)]
LogLevel = Annotated[
    Literal["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"], BeforeValidator(_read_log_level)
]


ShuffleName = Literal["records", "tasks", "none"]


class JobSpec(BaseModel):
    """One job, validated. Frozen: what a process got is what it works by."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", validate_default=True, ser_json_inf_nan="constants"
    )

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

    # -- workers and failures
    num_workers: Workers = setting(
        "1",
        "workers: a number, or MIN:MAX, of which one machine begins with as many as it has cores",
        group="Workers",
        aliases=("workers",),
    )
    max_worker_failures: Whole = setting(
        10,
        "crashes of the user's code before the job fails; kills by the system are free",
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
        f"port of the master's and the workers' metrics for Prometheus, on one machine those of the workers follow; 0 for none; {METRICS_PORT} on Kubernetes and none on one machine by default",
        group="Telemetry",
        ge=0,
        le=65535,
    )

    # -- Kubernetes
    image: Image = setting(
        "",
        "ready image that holds the model_zoo at /model_zoo; nothing is built then",
        group="Kubernetes",
        only=K8S,
    )
    docker_image_repository: str = setting(
        "",
        "repository the image is pushed to; empty: no push",
        group="Kubernetes",
        only=K8S,
        aliases=("docker_image_prefix",),
    )
    image_base: Image = setting(
        "", "image that the model_zoo is added to", group="Kubernetes", only=K8S
    )
    extra_pypi_index: str = setting(
        "", "further package index for the image's requirements", group="Kubernetes", only=K8S
    )
    docker_base_url: str = setting(
        "unix://var/run/docker.sock",
        "address of the Docker engine; DOCKER_HOST or the Docker context replace the default",
        group="Kubernetes",
        only=K8S,
    )
    docker_tlscacert: str = setting(
        "", "authority that signed the Docker engine's certificate", group="Kubernetes", only=K8S
    )
    docker_tlscert: str = setting(
        "", "client certificate for the Docker engine", group="Kubernetes", only=K8S
    )
    docker_tlskey: str = setting(
        "", "client key for the Docker engine", group="Kubernetes", only=K8S
    )
    namespace: Namespace = setting(
        "",
        "namespace of the pods; that of the kubeconfig's context by default",
        group="Kubernetes",
        only=K8S,
    )
    service_account: ObjectNames = setting(
        "elastic-master",
        "service account of the master; `elastic install` makes it",
        group="Kubernetes",
        only=K8S,
    )
    master_resource_request: Resources = setting(
        "cpu=0.1,memory=1024Mi", "what the master asks for", group="Kubernetes", only=K8S
    )
    master_resource_limit: Resources = setting(
        "", "what the master may use; the request by default", group="Kubernetes", only=K8S
    )
    worker_resource_request: Resources = setting(
        "cpu=1,memory=4096Mi", "what a worker asks for", group="Kubernetes", only=K8S
    )
    worker_resource_limit: Resources = setting(
        "", "what a worker may use; the request by default", group="Kubernetes", only=K8S
    )
    master_pod_priority: PriorityClass = setting(
        "", "priority class of the master", group="Kubernetes", only=K8S
    )
    worker_pod_priority: WorkerPriority = setting(
        "",
        "priority class of the workers, or the fraction of them that is high",
        group="Kubernetes",
        only=K8S,
    )
    volume: Volumes = setting(
        "",
        "volumes, as claim_name=…,mount_path=…;host_path=…,mount_path=…",
        group="Kubernetes",
        only=K8S,
    )
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] = setting(
        "Always", "when nodes pull the image", group="Kubernetes", only=K8S
    )
    image_pull_secrets: ObjectNames = setting(
        "", "secrets that the image is pulled with, as a,b", group="Kubernetes", only=K8S
    )
    env_secret: SecretNames = setting(
        (),
        "Secrets whose every key is a variable of the replicas' environment; may be given again",
        group="Kubernetes",
        only=K8S,
    )
    node_selector: NodeSelector = setting(
        "", "labels of the nodes that pods may run on, as k1=v1,k2=v2", group="Kubernetes", only=K8S
    )
    tolerations: Tolerations = setting(
        "",
        "taints that the pods put up with, as key=value:effect,key:effect",
        group="Kubernetes",
        only=K8S,
    )
    restart_policy: Literal["Never", "OnFailure", "Always"] = setting(
        "Never",
        "of the workers' pods, as ElasticDL has it; only Never is taken, since the master replaces workers",
        group="Kubernetes",
        only=K8S,
    )
    cluster_spec: str = setting(
        "",
        "Python file whose `cluster` object edits pods and services, or YAML merged into the pods",
        group="Kubernetes",
        only=K8S,
    )

    @field_validator("training_data_dir", "evaluation_data_dir", "prediction_data_dir")
    @classmethod
    def _check_data(cls, value: str, info: ValidationInfo) -> str:
        kind: JobKind | None = info.data.get("kind")
        if not value and kind is not None and info.field_name == kind.data_setting:
            raise PydanticCustomError("missing", "the records of the job are not named")
        return value

    @field_validator("restart_policy")
    @classmethod
    def _check_restart_policy(cls, value: str) -> str:
        if value != "Never":
            # In place nobody would count its crashes, and its records would stay leased to it.
            raise ValueError(
                f"{value!r} would restart failed workers in their pods, unseen by the master, which "
                "replaces and counts them: leave it out, and see max_worker_failures"
            )
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

    @model_validator(mode="after")
    def _check_together(self) -> "JobSpec":
        problems = [] if self.kind is JobKind.TRAIN else self._source_problems()
        if self.num_workers.maximum < 1:
            problems.append(f"--num_workers is {self.num_workers}: allow at least one worker")
        if self.master_port and self.master_port == self.served_metrics_port:
            problems.append(
                f"--master_port={self.master_port} is the port of the metrics too: choose another, or another --metrics_port"
            )
        if self.resume and self.overwrite:
            problems.append(
                "--resume goes on from the job of that name, --overwrite removes it: "
                "leave one of them out"
            )
        if self.env_secret and not self.platform.traits.has_secrets:
            problems.append(
                f"--env_secret={','.join(self.env_secret)} names Secrets of a cluster, and on this "
                "machine a job has the environment of the command that starts it: leave it out, "
                "and export the variables"
            )
        suffix = Path(self.prediction_outputs).suffix.lower()
        if suffix in {".csv", ".parquet"} - {f".{self.prediction_format}"}:
            problems.append(
                f"--prediction_outputs={self.prediction_outputs} is a folder, for files of "
                f"--prediction_format={self.prediction_format}: choose --prediction_format={suffix[1:]}, or "
                "another name"
            )
        if self.is_async and (self.grads_to_wait or 1) > 1:
            cause = "use_async" if self.use_async else f"get_model_steps={self.get_model_steps}"
            problems.append(
                f"grads_to_wait={self.grads_to_wait} has no meaning with {cause}: leave one of them out"
            )
        if problems:
            raise ValueError("\n".join(problems))
        return self

    def _source_problems(self) -> list[str]:
        """What is wrong with where a job that does not train takes its parameters from."""
        sources = (self.model, self.checkpoint_filename_for_init)
        if all(sources):
            return ["--model and --init_from both name parameters: leave one out"]
        if any(sources):
            return []
        return [
            f"nothing says which parameters to {self.kind} with: name a checkpoint with "
            "--init_from, or an exported model with --model"
        ]

    @property
    def data_origin(self) -> str:
        """The records that the job goes through."""
        return str(getattr(self, self.kind.data_setting))

    @property
    def records_per_range(self) -> int:
        """Records of a task of a prediction, and what readers are told."""
        return self.records_per_task or RECORDS_PER_RANGE

    @property
    def is_async(self) -> bool:
        """Whether gradients are applied as they come: asked for, or local updates do it."""
        return self.use_async or self.get_model_steps > 1

    @property
    def gradients_per_update(self) -> int:
        """Gradients averaged into one update; by default of as many as there can be workers.

        So the records behind an update stay the same however many of them there are just now, and
        no gradient comes too late.
        """
        if self.is_async:
            return 1
        return self.grads_to_wait or self.num_workers.maximum

    @property
    def served_metrics_port(self) -> int:
        """Where `/metrics` is served; 0 for nowhere."""
        if self.metrics_port is not None:
            return self.metrics_port
        return self.platform.traits.metrics_port

    def symbol_names(self) -> SymbolNames:
        """What the contract's symbols are called in this job's module."""
        return SymbolNames(**{name: getattr(self, name) for name in SymbolNames.__slots__})
