"""`make test`: all checks and tests, part by part, and where the time went.

A part is one command. One that fails does not keep the next from running; a part that has a
limit of time for the whole run behind it fails where the run took longer. Parts run in lanes, one
after the other in each, so that no core is idle: lint, which uses one, runs beside what compiles
the tests, and what waits most of its time for the cluster beside those that compute.

The limit is one of work, not of the neighbours that a virtual machine has today: minutes count by
the speed that the cores had (see `support.machine_speed`).

On two cores that do twice as much as they can, a test now and then meets a moment that its author
did not think of. A few such failures are looked at again when all is quiet: what passes by itself,
twice in a row, is *unsteady*. It is named, and has to be mended, but does not hide what the other
thousands say. What counts records is never excused.
"""

import argparse
import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from support import seeds
from support.machine_speed import MachineSpeed
from support.time_by_cause import CAUSES, REPORT_VARIABLE, sum_of, table

BIN = Path(sys.executable).parent
LOCAL = "not cluster and not soak"
SHARED_CLUSTER = "cluster and not alone and not soak"
WHOLE_CLUSTER = "cluster and alone and not soak"
# More than a machine of two cores computes at once: the others wait meanwhile.
NUM_LOCAL = max(3, min(8, os.cpu_count() or 1))
NUM_IN_CLUSTER = 4
NUM_SMALL_PODS = 3

# A process takes 20 s of a core to collect all tests, and a fraction of that for these.
ALONE = ("tests/cluster",)
ELSEWHERE = tuple(f"--ignore={folder}" for folder in ALONE)
"""All that is there needs the cluster, which is asked for its nodes as soon as it is imported: not
by those who run while others stop its API server."""
SMALL_PODS = (
    "tests/controller",
    "tests/platforms/kubernetes",
    "tests/cli/test_cluster_errors.py",
)
"""Where pods mostly do nothing, so that the cores are free for others."""
WHOLE_JOBS = (
    "tests/cluster",
    "tests/cli/test_zoo.py",
    "tests/docs/test_images.py",
    "tests/docs/test_kubernetes_guide.py",
    "tests/platforms/images",
)
"""Where they train, or are built."""

COMPILE_TESTS = (
    "env -u PYTHONDONTWRITEBYTECODE -u ELASTIC_TEST_KUBECONFIG "
    f"{shlex.quote(str(BIN / 'pytest'))} --collect-only >/dev/null"
)
"""With their asserts rewritten, as pytest alone does; what cannot be imported its tests tell."""

MAX_AGAIN = 3
"""Failures of a whole run that may be chance; where there are more, something is broken."""
NUM_AGAIN = 2
"""How often in a row each has to pass by itself."""
FINAL = (
    "tests/chaos/",
    "tests/cluster/test_chaos.py",
    "tests/cluster/test_servers.py",
    "tests/cluster/test_single_pass.py",
    "tests/jobs/test_deaths.py",
    "tests/jobs/test_elasticity.py",
    "tests/jobs/test_parameter_servers.py",
    "tests/jobs/test_steered_deaths.py",
    "tests/jobs/test_two_masters.py",
    "tests/master/test_reports_count_once.py",
    "tests/policy/",
)
"""Tests of records that count once, whatever dies: one that counted twice, once, is too many."""
SOME_FAILED = 1
"""How pytest ends when tests have failed, and nothing else has."""


@dataclass
class Part:
    """One command, and once it has run, what it took.

    Attributes:
        name: As the table calls it.
        command: What is run.
        lane: Runs its parts one after the other, beside the parts of no lane just before them and
            beside other lanes. What a part prints follows theirs; where it fails, at once.
        seconds: How long it took.
        is_good: Whether it succeeded.
        tests: Seconds by cause, by test.
        failed: Tests that failed, where nothing else did.
    """

    name: str
    command: list[str]
    lane: str = ""
    seconds: float = 0.0
    is_good: bool = False
    tests: dict[str, dict[str, float]] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)

    def run(self, output=None):
        with tempfile.TemporaryDirectory() as folder:
            report = Path(folder) / "report.json"
            environment = os.environ | {REPORT_VARIABLE: str(report)}
            began_s = time.monotonic()
            ended = subprocess.run(
                self.command, env=environment, check=False, stdout=output, stderr=output
            )
            self.is_good = not ended.returncode
            self.seconds = time.monotonic() - began_s
            if report.exists():
                told = json.loads(report.read_text())
                self.tests = told["tests"]
                self.failed = told["failed"] if ended.returncode == SOME_FAILED else []


def run_all(all_parts):
    """Run parts in their order, and lanes beside each other."""
    for stage in _stages(all_parts):
        lanes = defaultdict(list)
        for part in stage:
            lanes[part.lane].append(part)
        first = lanes.pop("", [])
        with ThreadPoolExecutor() as threads:
            runs = [threads.submit(_run_lane, lane) for lane in lanes.values()]
            for part in first:
                part.run()
            for run in runs:
                _print(run.result())


def _stages(all_parts):
    """Parts that run in the same time: some of no lane, and the lanes that follow them."""
    stage = []
    for part in all_parts:
        if stage and stage[-1].lane and not part.lane:
            yield stage
            stage = []
        stage.append(part)
    yield stage


def _run_lane(parts_of_lane):
    """What the parts print, but that of those that fail."""
    told = ""
    for part in parts_of_lane:
        with tempfile.TemporaryFile() as output:
            part.run(output)
            output.seek(0)
            text = output.read().decode()
        if part.is_good:
            told += text
        else:
            _print(text)
    return told


def _print(text):
    sys.stdout.write(text)
    sys.stdout.flush()


def look_again(done):
    """Run a few failed tests once more, alone; those that were only unsteady, by name."""
    bad = [part for part in done if not part.is_good]
    failed = [test for part in bad for test in part.failed]
    is_chance = all(part.failed for part in bad) and len(failed) <= MAX_AGAIN
    if not failed or not is_chance or any(test.startswith(FINAL) for test in failed):
        return []
    print(f"\nonce more, alone, {NUM_AGAIN} times each:", *failed, sep="\n  ", flush=True)
    unsteady = [test for test in failed if _passes(test)]
    for part in bad:
        part.is_good = set(part.failed) <= set(unsteady)
    return unsteady


def _passes(test):
    command = [str(BIN / "pytest"), "--tb=short", test]
    return not any(subprocess.run(command, check=False).returncode for _ in range(NUM_AGAIN))


def parts():
    """All parts, in the order in which they are run."""
    small_pods = _pytest(SHARED_CLUSTER, *_in_cluster(NUM_SMALL_PODS), *SMALL_PODS)
    return [
        # Each process of the tests would compile all of them anew. Lint leaves a core free for it.
        Part("compiling tests", ["sh", "-c", COMPILE_TESTS]),
        Part("lint", ["make", "--no-print-directory", "lint"], lane="lint"),
        Part("tests", _pytest(LOCAL, *ELSEWHERE, "-n", str(NUM_LOCAL), "--dist", "worksteal")),
        # Both wait for pods nearly all the time.
        Part("the cluster alone", _pytest(WHOLE_CLUSTER, *ALONE), lane="cluster"),
        Part("small pods", small_pods, lane="cluster"),
        Part(
            "in the cluster",
            _pytest(SHARED_CLUSTER, *_in_cluster(NUM_IN_CLUSTER), *WHOLE_JOBS),
        ),
    ]


def _in_cluster(count):
    """Options by which so many modules run at once, in their order."""
    if not os.environ.get("ELASTIC_TEST_KUBECONFIG"):
        return []
    return ["-n", str(count), "--dist", "loadscope", "--no-loadscope-reorder"]


def _pytest(marks, *options):
    # Of a failure its lines, not the source of all libraries that it passed through.
    return [str(BIN / "pytest"), "--tb=short", "-m", marks, *options]


def report(done, total_s, speed):
    """Lines that tell where the time of all parts went, `total_s` seconds at such a speed."""
    tests = {name: causes for part in done for name, causes in part.tests.items()}
    yield ""
    yield from table(tests)
    yield ""
    for part in done:
        yield f"{part.name:28}{len(part.tests):6}{part.seconds / 60:11.1f} min"
    causes = sum_of(tests.values())
    shares = ", ".join(f"{cause} {causes[cause] / (causes.total() or 1):.0%}" for cause in CAUSES)
    minutes = ", ".join(f"{part.name} {part.seconds / 60:.1f}" for part in done)
    yield f"time: {total_s / 60:.1f} min ({minutes}), {len(tests)} tests: {shares}"
    yield f"speed of a core: {speed:.2f}, so that it counts as {total_s / 60 * speed:.1f} min"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--limit_minutes", type=float, help="fail where the run is more work")
    limit_minutes = parser.parse_args().limit_minutes
    seeds.drawn_by()
    done = parts()
    began_s = time.monotonic()
    with MachineSpeed().measured() as machine:
        run_all(done)
        unsteady = look_again(done)
    total_s = time.monotonic() - began_s
    speed = machine.mean
    for line in report(done, total_s, speed):
        print(line)
    print(f"seeds were drawn by {seeds.VARIABLE}={seeds.drawn_by()}, which repeats them")
    for test in unsteady:
        print(f"unsteady: {test} failed beside others and passed {NUM_AGAIN} times alone: mend it")
    failed = [part.name for part in done if not part.is_good]
    if failed:
        print("failed: " + ", ".join(failed))
    minutes = total_s / 60 * speed
    is_late = limit_minutes is not None and minutes > limit_minutes
    if is_late:
        print(f"too slow: {minutes:.1f} min, and {limit_minutes:g} are allowed: see the table")
    return 1 if failed or is_late else 0


if __name__ == "__main__":
    sys.exit(main())
