"""Workloads and nodes as files: YAML and JSON, and CSV for jobs that have no more than columns.

Pure: texts in, values out, and back.
"""

import csv
import io
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, Final, Self

from pydantic import Field, model_validator

from elastic.errors import DescriptionError
from elastic.planning.forms import (
    Count,
    Form,
    JobForm,
    NodeForm,
    PodNeeds,
    Seconds,
    job_document,
    load_document,
    read_form,
    refuse_repeated,
)
from elastic.policy.cluster import GPU, Group, JobPhase, Node, quantity
from elastic.simulation.workload import (
    SAMPLES_PER_S,
    Amdahl,
    Constant,
    Measured,
    Service,
    Speed,
    Submission,
    Tells,
    Window,
    Work,
    Workload,
)

Part = Annotated[float, Field(ge=0, le=1)]


class SpeedForm(Form):
    """Speed by size: `serial`, or `measured` by the number of workers, with `spread`."""

    serial: Part | None = None
    measured: dict[Annotated[int, Field(ge=1)], Annotated[float, Field(gt=0)]] | None = None
    spread: Annotated[float, Field(gt=0, le=1)] = 1.0

    @model_validator(mode="after")
    def _is_one_of_them(self) -> Self:
        if (self.serial is None) == (not self.measured):
            raise ValueError("say either serial or measured")
        return self

    def value(self) -> Speed:
        """As the engine has it."""
        if self.measured:
            return Measured.of(self.measured, self.spread)
        return Amdahl(self.serial or 0.0)


class SubmissionForm(JobForm):
    """A job of a workload: one of `hold_s` and `work_s`, and how fast it is."""

    hold_s: Seconds | None = None
    work_s: Seconds | None = None
    speed: SpeedForm = SpeedForm(serial=0.0)
    tells: Tells = Tells.NOTHING
    samples_per_s: Annotated[float, Field(gt=0)] = SAMPLES_PER_S
    rescale_s: Seconds | None = None

    @model_validator(mode="after")
    def _has_work(self) -> Self:
        if (self.hold_s is None) == (self.work_s is None):
            raise ValueError("say either hold_s or work_s")
        if self.placement:
            raise ValueError("placement: nothing of a job has a node before it is submitted")
        return self

    def submission(self) -> Submission:
        """As the engine has it."""
        job = self.job()
        job = replace(
            job,
            workers=_not_begun(job.workers),
            ps=None if job.ps is None else _not_begun(job.ps),
            others=tuple(_not_begun(each) for each in job.others),
            phase=JobPhase.WAITING,
            waiting_since_s=job.submitted_s,
        )
        if self.hold_s is not None:
            work = Work(self.hold_s, Constant())
        else:
            assert self.work_s is not None, "one of both is there"
            work = Work(self.work_s, self.speed.value(), self.tells, self.samples_per_s)
        return Submission(job, work, self.rescale_s)


def _not_begun(group: Group) -> Group:
    """With nothing of it there; `replicas` says how many are asked for, where `asked` does not."""
    asked = group.replicas or None if group.asked is None else group.asked
    return replace(group, replicas=0, asked=asked)


class StepForm(Form):
    """So many pods from a moment on."""

    at_s: Seconds
    replicas: Count


class ServiceForm(PodNeeds):
    """Pods that are no job and come and go by a schedule."""

    name: str
    steps: tuple[StepForm, ...]

    def value(self) -> Service:
        """As the engine has it."""
        steps = tuple(sorted((each.at_s, each.replicas) for each in self.steps))
        return Service(self.name, self.all_requests, self.all_limits, steps, self.rules)


class WindowForm(Form):
    """A span of time; to the first end of a job where `to_s` is left out."""

    from_s: Seconds
    to_s: Seconds | None = None

    @model_validator(mode="after")
    def _has_length(self) -> Self:
        if self.to_s is not None and self.to_s <= self.from_s:
            raise ValueError(f"to_s={self.to_s:g} is not after from_s={self.from_s:g}")
        return self


class WorkloadForm(Form):
    """All that is to run."""

    jobs: tuple[SubmissionForm, ...]
    services: tuple[ServiceForm, ...] = ()
    windows: dict[str, WindowForm] = Field(default_factory=dict)


class NodesForm(Form):
    """The machines."""

    nodes: tuple[NodeForm, ...]


def read_workload(text: str, name: str) -> Workload:
    """A workload in our own form: CSV where the file is named so, else YAML or JSON.

    Args:
        text: All of the file.
        name: Of the file, also for errors.

    Raises:
        DescriptionError: It is none.
    """
    document = _rows(text, name) if name.endswith(".csv") else load_document(text, name)
    form = read_form(WorkloadForm, document, name)
    if not form.jobs and not form.services:
        raise DescriptionError(f"{name} has no jobs: there is nothing to simulate")
    submissions = [each.submission() for each in form.jobs]
    refuse_repeated([each.job.key for each in submissions], "jobs", name)
    return Workload(
        tuple(sorted(submissions, key=lambda each: each.job.submitted_s)),
        tuple(each.value() for each in form.services),
        tuple(Window(key, each.from_s, each.to_s) for key, each in form.windows.items()),
    )


def read_nodes(text: str, name: str) -> tuple[Node, ...]:
    """Nodes in our own form, or those of a snapshot.

    Raises:
        DescriptionError: There are none.
    """
    document = load_document(text, name)
    if isinstance(document, Mapping) and "nodes" in document:
        # Of a snapshot the rest says nothing here.
        document = {"nodes": document["nodes"]}
    nodes = tuple(
        node for each in read_form(NodesForm, document, name).nodes for node in each.values()
    )
    refuse_repeated([node.name for node in nodes], "nodes", name)
    if not nodes:
        raise DescriptionError(f"{name} has no nodes")
    return nodes


_AMOUNTS: Final = {"cpu": "cpu", "memory": "memory", "gpu": GPU}
"""Columns of what a worker, or after `ps_` a parameter server, requests."""

_PLAIN: Final = (
    *("name", "namespace", "kind", "submitted_s", "min", "max", "asked"),
    *("hold_s", "work_s", "rescale_s", "tells"),
)


def _rows(text: str, name: str) -> dict[str, Any]:
    reader = csv.DictReader(io.StringIO(text))
    known = {*_PLAIN, *_AMOUNTS, "share", "serial", "ps_replicas", *(f"ps_{a}" for a in _AMOUNTS)}
    if unknown := [str(each) for each in reader.fieldnames or () if each not in known]:
        raise DescriptionError(
            f"{name}: no column {unknown[0]} is known; there are {', '.join(sorted(known))}"
        )
    if repeated := [key for key, n in Counter(reader.fieldnames or ()).items() if n > 1]:
        raise DescriptionError(f"{name}: the column {repeated[0]} comes twice")
    return {"jobs": [_row(row, name, reader.line_num) for row in reader]}


def _row(row: Mapping[str, Any], name: str, line: int) -> dict[str, Any]:
    if None in row:
        raise DescriptionError(f"{name}, line {line}: more cells than columns")
    given = {key: value for key, value in row.items() if value not in {"", None}}
    job: dict[str, Any] = {key: given[key] for key in _PLAIN if key in given}
    job["requests"] = {_AMOUNTS[key]: given[key] for key in _AMOUNTS if key in given}
    if "share" in given:
        job["share"] = {"gpu": given["share"]}
    if "serial" in given:
        job["speed"] = {"serial": given["serial"]}
    if "ps_replicas" in given:
        requests = {
            name: given[f"ps_{key}"] for key, name in _AMOUNTS.items() if f"ps_{key}" in given
        }
        job["ps"] = {"replicas": given["ps_replicas"], "requests": requests}
    return job


def workload_document(workload: Workload) -> dict[str, Any]:
    """What `read_workload` reads, as plain values."""
    document: dict[str, Any] = {"jobs": [_job(each) for each in workload.submissions]}
    if workload.services:
        document["services"] = [_service(each) for each in workload.services]
    if workload.windows:
        document["windows"] = {each.name: _window(each) for each in workload.windows}
    return document


_OF_A_MOMENT: Final = frozenset({"phase", "waiting_since_s", "last_scaled_s"})
"""What says nothing of a job that is yet to be submitted."""


def _job(submission: Submission) -> dict[str, Any]:
    job, work = job_document(submission.job), submission.work
    job = {key: value for key, value in job.items() if key not in _OF_A_MOMENT}
    for group in (job, job.get("ps", {}), *job.get("others", ())):
        group.pop("replicas", None)
    if submission.rescale_s is not None:
        job["rescale_s"] = submission.rescale_s
    match work.speed:
        case Constant():
            return job | {"hold_s": work.seconds}
        case Amdahl(serial):
            job |= {"speed": {"serial": serial}} if serial else {}
        case Measured(points, spread):
            job["speed"] = {"measured": dict(points), "spread": spread}
    job["work_s"] = work.seconds
    if work.tells is not Tells.NOTHING:
        job |= {"tells": str(work.tells), "samples_per_s": work.samples_per_s}
    return job


def _service(service: Service) -> dict[str, Any]:
    return {
        "name": service.name,
        "requests": {key: quantity(key, each) for key, each in service.requests.items()},
        "limits": {key: quantity(key, each) for key, each in service.limits.items()},
        "steps": [{"at_s": at_s, "replicas": count} for at_s, count in service.steps],
    }


def _window(window: Window) -> dict[str, float]:
    return {"from_s": window.from_s} | ({} if window.to_s is None else {"to_s": window.to_s})
