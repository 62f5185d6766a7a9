"""`JobSpec`: every setting of a job, and what they mean together.

The command line makes its flags from these fields, the job file has them as keys, and every
process of a job receives the whole document serialized, never flag by flag.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from pydantic import ConfigDict, model_validator

from elastic.spec.kinds import JobKind
from elastic.spec.model_def import SymbolNames
from elastic.spec.settings import WorkerRange
from elastic.spec.settings.cluster import ClusterSettings
from elastic.spec.settings.work import WorkSettings
from elastic.spec.values.batch_range import BatchRange, parse_batch_range

__all__ = ["JobSpec", "WorkerRange"]

RECORDS_PER_RANGE: Final = 1000
"""Of a prediction's files, where the user names no number of records."""


# The fields of the last base come first, in flags, job files and documents.
class JobSpec(ClusterSettings, WorkSettings):
    """One job, validated. Frozen: what a process got is what it works by."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", validate_default=True, ser_json_inf_nan="constants"
    )

    @model_validator(mode="after")
    def _check_together(self) -> "JobSpec":
        problems = [] if self.kind is JobKind.TRAIN else self._source_problems()
        if self.num_workers.maximum < 1:
            problems.append(f"--num_workers is {self.num_workers}: allow at least one worker")
        if self.autoscale and self.num_workers.minimum == self.num_workers.maximum:
            problems.append(
                f"--autoscale has nothing to choose from with --num_workers={self.num_workers}: "
                "give a range such as 2:8, or leave it out"
            )
        if self.autoscale and self.queue:
            problems.append(
                f"--autoscale and --queue={self.queue} would both decide when there are more "
                "workers: leave one of them out"
            )
        if self.master_port and self.master_port == self.served_metrics_port:
            problems.append(
                f"--master_port={self.master_port} is the port of the metrics too: choose another, "
                "or another --metrics_port"
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
                f"--prediction_format={self.prediction_format}: choose "
                f"--prediction_format={suffix[1:]}, or another name"
            )
        if self.is_async and (self.grads_to_wait or 1) > 1:
            cause = "use_async" if self.use_async else f"get_model_steps={self.get_model_steps}"
            problems.append(
                f"grads_to_wait={self.grads_to_wait} has no meaning with {cause}: leave one of "
                "them out"
            )
        problems.extend(self._batch_problems())
        problems.extend(self._place_problems())
        if problems:
            raise ValueError("\n".join(problems))
        return self

    def _place_problems(self) -> Iterator[str]:
        """What is said of servers and stores, and has no meaning with where parameters are kept."""
        if self.strategy == "ps" and not self.num_ps:
            yield "--strategy ps needs servers: give --num_ps 1 or more"
        if self.strategy == "master" and self.num_ps:
            yield (
                f"--strategy master has no parameter servers, and --num_ps={self.num_ps} asks for "
                "some: leave one of them out"
            )
        if self.embedding_store == "ps" and not self.num_ps:
            yield (
                "--embedding_store ps has the rows of embeddings on parameter servers, and there "
                "are none: give --num_ps 1 or more"
            )
        if self.embedding_redis_url and self.embedding_store != "redis":
            yield (
                f"--embedding_redis_url={self.embedding_redis_url} has no meaning with "
                f"--embedding_store={self.embedding_store}: give --embedding_store redis, or leave "
                "it out"
            )
        if self.embedding_redis_ca and not self.embedding_redis_url.startswith("rediss:"):
            yield (
                f"--embedding_redis_ca={self.embedding_redis_ca} has no meaning without TLS: begin "
                "--embedding_redis_url with rediss://, or leave it out"
            )

    def _batch_problems(self) -> Iterator[str]:
        """What keeps the master from choosing the batch: what it goes with, else its size."""
        batch = self.batch_range
        if batch is None:
            return
        conflicts = list(self._batch_conflicts(f"--elastic_batch={batch}"))
        yield from conflicts or self._batch_size_problems(batch)

    def _batch_conflicts(self, flag: str) -> Iterator[str]:
        if self.is_async:
            cause = "use_async" if self.use_async else f"get_model_steps={self.get_model_steps}"
            yield f"{flag} has no meaning with {cause}: leave one of them out"
        if self.grads_to_wait is not None:
            yield (
                f"{flag} and grads_to_wait={self.grads_to_wait} both say how many gradients make "
                "an update: leave one of them out"
            )
        if self.num_ps:
            yield (
                f"{flag} needs the parameters in the master, which measures the noise of the "
                f"gradients there, and num_ps={self.num_ps} asks for servers: leave one of them out"
            )
        if self.shrink_minibatches:
            yield (
                f"{flag} is made of minibatches of one size, and shrink_minibatches may change it: "
                "leave one of them out"
            )

    def _batch_size_problems(self, batch: BatchRange) -> Iterator[str]:
        """At most one: what mends it mends all."""
        flag, size = f"--elastic_batch={batch}", self.minibatch_size
        if batch.minimum % size or batch.maximum % size or batch.minimum < 2 * size:
            yield (
                f"{flag} has to be in whole minibatches, and in two or more, since the noise of "
                f"gradients shows between those of one update: give multiples of "
                f"minibatch_size={size} from {2 * size} on, or a smaller minibatch_size"
            )
        elif (used := batch.maximum // size) < (workers := self.num_workers.minimum):
            yield (
                f"{flag} has at most {used} minibatches in an update, and num_workers={workers} "
                f"compute one each, so that some would always come too late: give a maximum of "
                f"{workers * size} or more, a smaller minibatch_size, or fewer workers"
            )

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
    def num_redis(self) -> int:
        """How many Redis servers the job brings along: one where its rows are to be in one."""
        return int(self.embedding_store == "redis" and not self.embedding_redis_url)

    @property
    def is_async(self) -> bool:
        """Whether gradients are applied as they come: asked for, or local updates do it."""
        return self.use_async or self.get_model_steps > 1

    @property
    def gradients_per_update(self) -> int:
        """Gradients averaged into one update; by default of as many as there can be workers.

        Where the master chooses, those that it begins with.

        So the records behind an update stay the same however many of them there are just now, and
        no gradient comes too late.
        """
        if self.is_async:
            return 1
        if self.batch_range is not None:
            return self.batch_range.minimum // self.minibatch_size
        return self.grads_to_wait or self.num_workers.maximum

    @property
    def workers_beside_update(self) -> int:
        """Workers that may compute while an update is applied: those it is made of wait for it."""
        return max(self.num_workers.maximum - self.gradients_per_update, 0)

    @property
    def batch_range(self) -> BatchRange | None:
        """Between which batches the master chooses; None where it does not."""
        return parse_batch_range(self.elastic_batch) if self.elastic_batch else None

    @property
    def workers_at_first(self) -> int | None:
        """With how many workers it begins; None where that is a matter of the room there is."""
        if self.autoscale and self.platform.traits.has_controllers:
            return max(1, self.num_workers.minimum)
        return None

    @property
    def served_metrics_port(self) -> int:
        """Where `/metrics` is served; 0 for nowhere."""
        if self.metrics_port is not None:
            return self.metrics_port
        return self.platform.traits.metrics_port

    @property
    def is_encrypted(self) -> bool:
        """Whether its processes encrypt their calls: as it says, or as its platform does."""
        return self.platform.traits.is_encrypted if self.tls is None else self.tls

    def symbol_names(self) -> SymbolNames:
        """What the contract's symbols are called in this job's module."""
        return SymbolNames(**{name: getattr(self, name) for name in SymbolNames.__slots__})
