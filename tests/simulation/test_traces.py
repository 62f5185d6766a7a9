"""Public traces are read by their documented columns; the lines are made up here."""

import json

import pytest
from support.public_traces import PUBLIC, SHARED_CLUSTER, needs_public, needs_shared_cluster

from elastic.errors import DescriptionError
from elastic.policy.cluster import Share
from elastic.simulation.traces.common import Elasticity
from elastic.simulation.traces.reading import read_nodes, read_workload

HELIOS = """\
job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue
7,u1,vc1,4,16,1,COMPLETED,2020-06-09 18:41:27,2020-06-09 18:42:27,2020-06-09 18:52:27,600,60
8,u1,vc1,0,8,2,FAILED,2020-06-09 18:41:17,2020-06-09 18:41:17,2020-06-09 18:41:27,10,0
9,u1,vc1,1,1,1,CANCELLED,2020-06-09 18:41:17,2020-06-09 18:41:17,2020-06-09 18:41:17,0,0
"""


def test_helios():
    first, second = read_workload(HELIOS, "cluster_log.csv").submissions
    assert [each.job.submitted_s for each in (first, second)] == [0, 10]
    assert (first.job.name, first.asked, first.job.workers.requests) == ("8", 2, {"cpu": 4000})
    assert (second.asked, second.work.seconds) == (4, 600)
    assert second.job.workers.requests == {"cpu": 4000, "nvidia.com/gpu": 1000}
    assert (second.job.workers.min, second.job.workers.max) == (4, 4), "as recorded"


def test_helios_nodes_are_those_of_the_day_with_the_most():
    text = "date,vca,vcb,total\n2020-09-01,8,8,16\n2020-09-02,16,12,28\n"
    nodes = read_nodes(text, "cluster_gpu_number.csv")
    assert len(nodes) == 4
    assert nodes[0].allocatable["nvidia.com/gpu"] == 8000


def attempt(begin, end, gpus):
    detail = [{"ip": "m1", "gpus": [f"gpu{index}" for index in range(gpus)]}]
    return {"start_time": begin, "end_time": end, "detail": detail}


PHILLY = [
    {
        "status": "Pass",
        "vc": "a",
        "jobid": "application_2",
        "attempts": [
            attempt("2017-10-07 01:12:00", "2017-10-07 01:13:00", 8),
            attempt("2017-10-07 01:14:00", "2017-10-07 01:24:00", 4),
        ],
        "submitted_time": "2017-10-07 01:11:40",
        "user": "u",
    },
    {
        "status": "Killed",
        "vc": "a",
        "jobid": "application_1",
        "attempts": [attempt("2017-10-07 01:11:00", "2017-10-07 01:11:30", 1)],
        "submitted_time": "2017-10-07 01:10:40",
        "user": "u",
    },
    {
        "status": "Failed",
        "vc": "a",
        "jobid": "never-ran",
        "attempts": [],
        "submitted_time": "2017-10-07 01:00:00",
        "user": "u",
    },
    {
        "status": "Pass",
        "vc": "a",
        "jobid": "still-runs",
        "attempts": [attempt("2017-10-07 01:11:00", None, 1)],
        "submitted_time": "2017-10-07 01:00:00",
        "user": "u",
    },
]


def test_philly():
    first, second = read_workload(json.dumps(PHILLY), "cluster_job_log").submissions
    assert (first.job.name, first.job.submitted_s, first.work.seconds) == ("application_1", 0, 30)
    # Of both attempts, with the GPUs of the last.
    assert (second.job.submitted_s, second.asked, second.work.seconds) == (60, 4, 660)


def test_a_philly_job_without_its_keys_is_named():
    broken = [{"jobid": "a", "submitted_time": "2017-10-07 01:11:40", "attempts": [{}]}]
    with pytest.raises(DescriptionError, match="log, job 0: 'start_time'"):
        read_workload(json.dumps(broken), "log")


def test_philly_nodes():
    text = "machineId, number of GPUs, single GPU mem\nm31,8, 24GB\nm32,2, 12GB\n"
    nodes = read_nodes(text, "cluster_machine_list")
    gpus = {node.name: node.allocatable["nvidia.com/gpu"] for node in nodes}
    assert gpus == {"m31": 8000, "m32": 2000}
    assert nodes[0].card_memory_bytes == 24 << 30


ALIBABA_2023 = """\
name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time
p1,6000,1024,1,460,,LS,Running,100,500,150
p2,6000,1024,8,1000,V100M32,LS,Running,200,500,
p3,6000,1024,0,0,,BE,Pending,300,500,300
"""


def test_alibaba_2023():
    part, whole, none = read_workload(ALIBABA_2023, "openb_pod_list.csv").submissions
    assert (part.job.workers.share, part.work.seconds) == (Share(460), 350)
    assert part.job.workers.requests == {"cpu": 6000, "memory": 1 << 30}
    assert (whole.job.workers.share, whole.job.submitted_s, whole.work.seconds) == (None, 100, 300)
    assert whole.job.workers.requests["nvidia.com/gpu"] == 8000
    assert whole.job.workers.rules.node_selector == {"model": "V100M32"}
    assert "nvidia.com/gpu" not in none.job.workers.requests


def test_alibaba_2023_nodes():
    text = "sn,cpu_milli,memory_mib,gpu,model\nn0,64000,1024,2,P100\n"
    [node] = read_nodes(text, "nodes.csv")
    assert node.allocatable == {"cpu": 64000, "memory": 1 << 30, "nvidia.com/gpu": 2000}
    assert node.labels == {"model": "P100"}


PAI_NAMES = (
    "job_name,task_name,inst_num,status,start_time,end_time,plan_cpu,plan_mem,plan_gpu,gpu_type\n"
)
PAI = """\
j1,ps,2.0,Terminated,100.0,200.0,600.0,29.0,,MISC
j1,worker,4.0,Terminated,110.0,220.0,400.0,10.0,50.0,T4
j1,evaluator,1.0,Terminated,110.0,210.0,100.0,10.0,,T4
j2,tensorflow,1.0,Failed,150.0,160.0,600.0,29.0,200.0,V100
j3,tensorflow,1.0,Running,150.0,,600.0,29.0,100.0,V100
"""


@pytest.mark.parametrize(
    ("text", "name"), [(PAI, "pai_task_table.csv"), (PAI_NAMES + PAI, "x.csv")]
)
def test_alibaba_pai_with_and_without_names_of_columns(text, name):
    first, second = read_workload(text, name).submissions
    assert (first.job.submitted_s, first.work.seconds, first.asked) == (0, 120, 4)
    assert first.job.workers.share == Share(500)
    assert (first.job.ps.min, first.job.ps.requests["cpu"]) == (2, 6000)
    assert [each.role for each in first.job.others] == ["evaluator"]
    assert second.job.workers.requests["nvidia.com/gpu"] == 2000


def test_alibaba_pai_nodes():
    [node] = read_nodes("82e5,T4,96,512,2\n", "pai_machine_spec.csv")
    assert node.allocatable == {"cpu": 96000, "memory": 512 << 30, "nvidia.com/gpu": 2000}


POLLUX = "name,time,application,num_replicas,batch_size\na-0,100,net,2,8\na-1,110,net,1,8\n"
PROFILES = {
    "net/placements.csv": (
        "placement,local_bsz,step_time,sync_time\n1,4,1.0,0.0\n1,8,2.0,0.0\n2,4,1.5,0.5\n11,4,9,8\n"
    ),
    "net/scalability.csv": "num_nodes,num_replicas,local_bsz,step_time,sync_time\n2,8,1,3,2\n",
    "net/validation-8.csv": "progress,iteration\n5,50\n9,100\n",
}


def test_pollux():
    first, second = read_workload(POLLUX, "w.csv", Elasticity(0.5, 2), PROFILES).submissions
    # 100 steps: of 1.5 s with two replicas on a node, of 2 s with one.
    assert (first.work.seconds, second.work.seconds) == (150, 200)
    assert (first.job.workers.min, first.job.workers.max) == (1, 4)
    assert first.work.speed.points == ((1, 0.5), (2, 1 / 1.5))


def test_a_batch_that_does_not_fit_is_accumulated():
    profiles = PROFILES | {"net/validation-16.csv": PROFILES["net/validation-8.csv"]}
    text = "name,time,application,num_replicas,batch_size\na,0,net,2,16\n"
    [job] = read_workload(text, "w.csv", profiles=profiles).submissions
    # Local batches of 8, where 4 were the most: a step, and one more without waiting for others.
    assert job.work.seconds == 100 * (1.5 + 1.0)


def test_pollux_needs_profiles():
    with pytest.raises(DescriptionError, match="--profiles"):
        read_workload(POLLUX, "w.csv")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (HELIOS.replace(",600,", ",long,"), "line 2: duration='long' is no number"),
        (HELIOS.replace("2020-06-09 18:41:27,2020", "today,2020"), "'today' is no moment"),
        (HELIOS.splitlines()[0] + "\n", "has no job that ran"),
        (ALIBABA_2023.replace("V100M32", "V100M32|T4"), "has several models"),
    ],
)
def test_what_cannot_be_read_is_named(text, expected):
    with pytest.raises(DescriptionError) as error:
        read_workload(text, "trace.csv")
    assert expected in str(error.value)


def test_other_sizes_are_assumed_of_recorded_jobs():
    jobs = read_workload(HELIOS, "log.csv", Elasticity(0.5, 1.5, 0.1)).submissions
    workers = jobs[1].job.workers
    assert (workers.min, workers.asked, workers.max) == (2, 4, 6)


@needs_public
def test_the_public_pods_and_nodes_are_read():
    folder = PUBLIC / "alibaba_gpu_2023"
    pods, nodes = (
        folder / "openb_pod_list_default.csv",
        folder / "openb_node_list_gpu_node.csv",
    )
    workload = read_workload(pods.read_text(), pods.name)
    assert len(workload.submissions) == 8152
    gpus = sum(node.allocatable["nvidia.com/gpu"] for node in read_nodes(nodes.read_text(), "n"))
    assert gpus == 6_212_000


@needs_shared_cluster
def test_the_public_workloads_of_pollux_are_read():
    folder = SHARED_CLUSTER / "traces"
    profiles = {str(path.relative_to(folder)): path.read_text() for path in folder.glob("*/*.csv")}
    text = (SHARED_CLUSTER / "workloads" / "workload-1.csv").read_text()
    workload = read_workload(text, "w.csv", Elasticity(0.1, 2), profiles)
    assert len(workload.submissions) == 160
    assert all(each.work.seconds > 0 for each in workload.submissions)
