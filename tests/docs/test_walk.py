"""The files by which a gradient becomes a version are those that the documents list, in order."""

import re
import threading
from functools import partial
from pathlib import Path

from support import thread_job
from support.thread_job import ThreadJob, obedient_spec, write_records

import elastic
from elastic.frameworks.torch.updater import TorchUpdater
from elastic.master.parameters.store import ParameterStore
from elastic.master.servicer import MasterServicer
from elastic.policy.updates.update_group import UpdateGroup
from elastic.rpc.client import MasterClient
from elastic.rpc.layout import Assembler
from elastic.rpc.sockets import Connection
from elastic.spec.status import JobPhase
from elastic.worker.strategy import PulledParameters

DOCUMENT = Path(__file__).parents[2] / "docs" / "architecture.md"
PACKAGE = f"{Path(elastic.__file__).parent}/"
MOST_FILES = 12
# Each with what stands above it: a worker also asks for tasks, and puts models together.
MOMENTS = {
    Connection.send.__code__: PulledParameters.contribute.__code__,
    UpdateGroup.judge.__code__: MasterServicer.report_gradient.__code__,
    Assembler.add.__code__: MasterServicer.report_gradient.__code__,
    TorchUpdater.apply.__code__: ParameterStore.commit.__code__,
}
"""When a gradient is sent, judged, received and applied."""
ITERATED = {"__aiter__", "__anext__", "lie_in"}
"""Of the chunks of an upload, which are handed down as they come."""


class Walk:
    """Notes, while one gradient is reported, which file calls which, by `sys.setprofile`.

    Attributes:
        stacks: Files that called each other down to one of `MOMENTS`, by these.
        calls: Pairs of files, with the function of the second.
    """

    def __init__(self):
        self.stacks = {code: set() for code in MOMENTS}
        self.calls = set()
        self._is_on = False

    def follow(self, contribute, strategy, contribution):
        """Contribute, noting what is called by any thread until the answer is here."""
        self._is_on = contribution.start > 0
        try:
            return contribute(strategy, contribution)
        finally:
            self._is_on = False

    def note(self, frame, event, _):
        """Of a thread, what it has come to."""
        if event != "call" or not self._is_on or file_of(frame) is None:
            return
        above, code = frames_of(frame), frame.f_code
        if len(above) > 1:
            self.calls.add((file_of(above[1]), file_of(frame), code.co_name))
        if code in MOMENTS and MOMENTS[code] in {each.f_code for each in above}:
            files = dict.fromkeys(file_of(each) for each in reversed(above))
            self.stacks[code].add(tuple(files))


def file_of(frame):
    """The file of ours that a frame is of, below the package; None for another's."""
    name = frame.f_code.co_filename
    return name.removeprefix(PACKAGE) if name.startswith(PACKAGE) else None


def frames_of(frame):
    """A frame and those that it was called by, the innermost first; only ours."""
    frames = []
    while frame is not None:
        if file_of(frame) is not None:
            frames.append(frame)
        frame = frame.f_back
    return frames


def listed():
    """The files that the documents name, in order."""
    text = DOCUMENT.read_text()
    section = text[text.index("### How a gradient becomes a version\n") :]
    return re.findall(r"^\d+\. `([\w/]+\.py)`", section[: section.index("\n##", 1)], re.MULTILINE)


def walked(tmp_path, monkeypatch):
    """Have a job between machines make a version of one gradient."""
    walk = Walk()
    data = write_records(tmp_path / "data.npz", num_records=8)
    # As on another machine: what is not shared goes by TCP.
    monkeypatch.setattr(thread_job, "MasterClient", partial(MasterClient, share_memory=False))
    contribute = PulledParameters.contribute
    monkeypatch.setattr(
        PulledParameters, "contribute", lambda *given: walk.follow(contribute, *given)
    )
    before = threading.getprofile()
    threading.setprofile(walk.note)
    try:
        spec = obedient_spec(data, num_records=8, minibatch_size=4, shuffle="none")
        status = ThreadJob(spec, tmp_path / "cuts").run()
    finally:
        threading.setprofile(before)
    assert status.phase is JobPhase.SUCCEEDED
    return walk


def test_a_gradient_passes_the_files_that_are_listed_and_none_is_called_from_below(
    tmp_path, monkeypatch
):
    walk = walked(tmp_path, monkeypatch)
    files = listed()
    assert len(files) <= MOST_FILES
    assert [len(stacks) for stacks in walk.stacks.values()] == [1, 1, 1, 1]
    passed = [file for stacks in walk.stacks.values() for stack in stacks for file in stack]
    assert list(dict.fromkeys(passed)) == files
    place = {file: i for i, file in enumerate(files)}
    upwards = {
        (caller, called)
        for caller, called, function in walk.calls
        if caller in place and called in place and function not in ITERATED
        if place[called] < place[caller]
    }
    # A connection has two ends.
    assert upwards == {("rpc/network.py", "rpc/sockets.py")}
