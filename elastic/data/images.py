"""Folders of images: a record is one image, decoded by processes beside who computes.

Belongs here: the reader, the processes as it sees them, and the program that each of them is.
Does not belong here: which images a folder has (`image_folders`, which users import).
"""

import contextlib
import faulthandler
import io
import json
import logging
import os
import re
import select
import signal
import socket
import struct
import subprocess
import sys
import weakref
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from math import prod
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from elastic.data.base import Chunks, ReadTask
from elastic.data.formats.registry import ReaderOptions
from elastic.data.image_folders import ImageList, is_unchanged, list_images
from elastic.data.sources import open_files
from elastic.data.storage import OpenFiles
from elastic.errors import DataError
from elastic.policy.tasks.records import Picks, Shard

# Folders of images: a record is one image, with its label where folders are classes.
#
# Processes decode images beside the one that computes, in the order of the records. An image that a
# process dies of is an error of this image; the process is replaced and goes on. A
# `ProcessPoolExecutor` gives up all its processes, and what they were asked for, with the first one
# that dies; it does not tell of which image that died; and its processes live on for ever when the
# one that asks is killed with SIGKILL. It also took that one, which computes meanwhile, 1.5 to 2
# times the processor time for each image, and the decoders of JPEGs of 256 x 256 1.6 times.


log = logging.getLogger(__name__)

_MAX_CHUNK: Final = 16
_CHUNK_BYTES: Final = 1 << 20
"""Pixels, about, and images of a request. Who computes is disturbed once for each; but large ones
take memory, and the next of several processes has nothing to do before the first one is asked."""

_CHUNKS_AHEAD: Final = 2
"""Requests to each process before the first image of them is wanted."""

_MAX_DEATHS: Final = 3
"""So many processes in a row may end with the same image; one may have been killed by accident."""

_MAX_FAILED_STARTS: Final = 10
"""So many in a row may end before they are ready; no image is to blame."""


@dataclass(slots=True, eq=False)
class _Wanted:
    """An image that was asked for; `result` is its pixels, or why there are none."""

    path: str
    result: NDArray[np.uint8] | str | None = None
    deaths: int = 0


class ImageDecoders:
    """Decodes images in processes, which are started with the first image.

    For one thread at a time; the images of several sequences may be taken in turns.
    """

    def __init__(self, mode: str, size: tuple[int, int] | None, num_processes: int) -> None:
        """Store the arguments.

        Args:
            mode: `RGB`, or `L` for grey.
            size: Height and width to resize to, or None to keep them.
            num_processes: 1 or more.
        """
        self._options = json.dumps({"mode": mode, "size": size})
        self._num_processes = num_processes
        self._processes: list[_Process] = []
        # Until the first image tells how large they are.
        self._chunk = 2

    @property
    def pids(self) -> list[int]:
        """The processes that run now."""
        return [process.pid for process in self._processes if process.is_running]

    def read(self, paths: Sequence[str]) -> Iterator[NDArray[np.uint8]]:
        """Yield the images (height, width, channels) in order.

        Raises:
            DataError: One cannot be decoded, or not be asked for; raised in its place.
        """
        if not self._processes:
            self._processes = [_Process(self._options) for _ in range(self._num_processes)]
        wanted: deque[_Wanted] = deque()
        asked = 0
        while True:
            while asked < len(paths) and len(wanted) < self._num_ahead:
                images = [_Wanted(path) for path in paths[asked : asked + self._chunk]]
                min(self._processes, key=_load_of).ask(images)
                wanted.extend(images)
                asked += len(images)
            if not wanted:
                return
            image = wanted.popleft()
            while image.result is None:
                self._receive()
            if isinstance(image.result, str):
                raise DataError(image.result)
            self._chunk = max(1, min(_MAX_CHUNK, _CHUNK_BYTES // image.result.nbytes))
            yield image.result

    @property
    def _num_ahead(self) -> int:
        return self._chunk * _CHUNKS_AHEAD * self._num_processes

    def _receive(self) -> None:
        """Take what each process has decoded: a full socket makes a process wait."""
        if len(self._processes) == 1:
            self._processes[0].receive()
            return
        asked = {process.fileno(): process for process in self._processes if process.num_pending}
        poll = select.poll()
        for descriptor in asked:
            poll.register(descriptor, select.POLLIN)
        for descriptor, _ in poll.poll():
            asked[descriptor].receive()


class _Process:
    """One process, and the requests that it has not answered, in order.

    It is started when there is something to ask; `is_refused` says that it could not be.
    """

    def __init__(self, options: str) -> None:
        self._options = options
        self._pending: deque[list[_Wanted]] = deque()
        self._failed_starts = 0
        self.is_refused = False
        self._is_ready: bool
        self._socket: socket.socket
        self._child: subprocess.Popen[bytes] | None = None

    @property
    def is_running(self) -> bool:
        return self._child is not None

    @property
    def pid(self) -> int:
        assert self._child is not None, "it runs"
        return self._child.pid

    @property
    def num_pending(self) -> int:
        return len(self._pending)

    def fileno(self) -> int:
        return self._socket.fileno()

    def ask(self, images: list[_Wanted]) -> None:
        self._pending.append(images)
        if self.is_running:
            self._send(images)
        else:
            self._start()

    def receive(self) -> None:
        """Wait for the answer to the first request, or replace the process where it has ended."""
        try:
            if not self._is_ready:
                wait_until_ready(self._socket)
                self._is_ready = True
                self._failed_starts = 0
            results = receive_images(self._socket)
        except EndedError:
            self._replace()
        else:
            for image, result in zip(self._pending.popleft(), results, strict=True):
                image.result = result

    def _send(self, images: Sequence[_Wanted]) -> None:
        try:
            send_paths(self._socket, [image.path for image in images])
        except (BrokenPipeError, ConnectionResetError):
            # It has ended; whoever waits for an answer finds that out and asks another one.
            log.debug("decoder %d is gone", self.pid)

    def _replace(self) -> None:
        assert self._child is not None, "it was running"
        self._end()
        how = _ending(self._child.returncode)
        self._child = None
        if self._is_ready:
            self._blame(how)
        else:
            self._count_failed_start(how)
        if self._pending:
            self._start()

    def _blame(self, how: str) -> None:
        """Blame the image, or where there are several ask for each by itself, to find out which."""
        images = self._pending.popleft()
        log.warning(
            "the process that decodes images %s, at %s: starting another", how, images[0].path
        )
        if len(images) == 1:
            images[0].deaths += 1
        if images[0].deaths == _MAX_DEATHS:
            images[0].result = (
                f"{images[0].path} cannot be decoded: the process that tried {how}, {_MAX_DEATHS} "
                "times in a row; see the worker's log, write the image again, or remove it"
            )
        else:
            self._pending.extendleft([image] for image in reversed(images))

    def _count_failed_start(self, how: str) -> None:
        self._failed_starts += 1
        log.warning("the process that decodes images %s as it started: starting another", how)
        if self._failed_starts < _MAX_FAILED_STARTS:
            return
        self._failed_starts = 0
        self._give_up(
            f"the process for it {how} as it started, {_MAX_FAILED_STARTS} times in a row"
        )

    def _give_up(self, why: str) -> None:
        for image in chain.from_iterable(self._pending):
            image.result = (
                f"{image.path} cannot be decoded: {why}; see the worker's log, give it more "
                "memory, or have it decode by itself with --data_reader_params processes=0"
            )
        self._pending.clear()

    def _start(self) -> None:
        """Start a process and ask it for all that is pending, or give that up."""
        try:
            self._launch()
            self.is_refused = False
        except OSError as error:
            self.is_refused = True
            self._give_up(f"no process for it can be started ({error.strerror})")
        for images in self._pending:
            self._send(images)

    def _launch(self) -> None:
        self._is_ready = False
        ours, theirs = socket.socketpair()
        with theirs, contextlib.ExitStack() as unless_started:
            unless_started.enter_context(ours)
            self._child = subprocess.Popen(
                [
                    *(sys.executable, "-P", "-m", "elastic.data.images"),
                    *(str(theirs.fileno()), self._options),
                ],
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                # NumPy would start a thread for each core.
                env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
            )
            unless_started.pop_all()
        self._socket = ours
        self._end = weakref.finalize(self, _end, self._socket, self._child)


def _load_of(process: _Process) -> tuple[bool, int]:
    """Least for the one to ask; what cannot be started is asked when no other is left."""
    return process.is_refused, process.num_pending


def _end(connection: socket.socket, child: "subprocess.Popen[bytes]") -> None:
    connection.close()
    # What it decodes just now would be for nobody.
    child.kill()
    child.wait()


def _ending(code: int) -> str:
    return f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"


class ImageReader:
    """Images as uint8 arrays (height, width, channels), with label and path."""

    def __init__(self, files: OpenFiles, options: ReaderOptions) -> None:
        self._files = files
        self._options = options
        self._lists: dict[str, ImageList] = {}
        self._decoders: ImageDecoders | None = None
        if options.processes:
            self._decoders = ImageDecoders(options.image_mode, options.size, options.processes)

    def create_shards(self, names: Sequence[str], records_per_task: int) -> list[Shard]:  # noqa: ARG002 (files are found without scanning, so any range is a shard)
        shards: list[Shard] = []
        first: ImageList | None = None
        for name in names:
            if not name.endswith("/"):
                raise DataError(
                    f"{name} is not a folder of images: name the folder that holds images, or one "
                    "folder of images for each class"
                )
            images = self._images_of(name)
            first = first or images
            if images.classes != first.classes:
                raise DataError(
                    f"{name} has {_tell(images)} but {names[0]} has {_tell(first)}: make them "
                    "alike, or name all classes with --data_reader_params classes=[...]"
                )
            if images.files:
                shards.append(Shard(name, 0, len(images.files), fingerprint=images.fingerprint))
        return shards

    def create_chunks(self, names: Sequence[str]) -> Chunks:
        # Each image is a file of its own.
        return Chunks(self.create_shards(names, 1))

    def read_records(self, task: ReadTask) -> Iterator[dict[str, Any]]:
        indices = np.arange(task.start, task.end)
        yield from self.read_picks(Picks((task.shard,), np.zeros(len(indices), np.int32), indices))

    def read_picks(self, picks: Picks) -> Iterator[dict[str, Any]]:
        """Images of any folders in any order, which are all asked for at once."""
        lists = [self._counted(shard) for shard in picks.shards]
        places = list(zip(picks.owners.tolist(), picks.indices.tolist(), strict=True))
        paths = [f"{picks.shards[owner].name}{lists[owner].files[at]}" for owner, at in places]
        for (owner, at), path, image in zip(places, paths, self._read(paths), strict=True):
            record: dict[str, Any] = {"image": image}
            if lists[owner].classes is not None:
                record["label"] = np.int64(lists[owner].labels[at])
            record["path"] = path
            yield record

    def _counted(self, shard: Shard) -> ImageList:
        images = self._images_of(shard.name)
        # A reader of the user's may have made the shard, without one.
        is_other = shard.fingerprint not in ("", images.fingerprint)
        if is_other or shard.end > len(images.files):
            raise _changed(f"{shard.name} has got or lost images since they were counted")
        return images

    def _read(self, paths: Sequence[str]) -> Iterator[NDArray[np.uint8]]:
        if self._decoders is not None:
            return self._decoders.read(paths)
        options = self._options
        return (read_image(self._files, path, options.image_mode, options.size) for path in paths)

    def classes(self, name: str) -> tuple[str, ...] | None:
        """What the labels of a folder stand for."""
        return self._images_of(name).classes

    def _images_of(self, folder: str) -> ImageList:
        known = self._lists.get(folder)
        if known is not None and is_unchanged(known):
            return known
        images = self._lists[folder] = list_images(folder, self._options.classes)
        # Files of other kinds may come and go.
        if known is not None and known.files != images.files:
            self._lists[folder] = known
            raise _changed(f"{folder} has got or lost images while the job reads it")
        return images


def _changed(what: str) -> DataError:
    return DataError(f"{what}: leave data alone while a job runs, and start the job again")


def _tell(images: ImageList) -> str:
    if images.classes is None:
        return "no classes"
    return f"the classes {', '.join(images.classes)}"


# One image, from the file to its pixels, and a process that decodes images for another one.
#
# The process is `python -m elastic.data.images FD OPTIONS`. Most of decoding a small image
# is Python, which would take the interpreter from whoever computes in the same process. It gets
# paths over a socket and answers with pixels; when the socket is closed, it ends.


_DAMAGED: Final = (
    OSError,
    SyntaxError,
    ValueError,
    TypeError,
    EOFError,
    IndexError,
    OverflowError,
    struct.error,
    Image.DecompressionBombError,
)
"""What Pillow raises for bytes that are not what their headers promise."""

_WIDE_MODES: Final = ("I", "F", "I;16", "I;16L", "I;16B", "I;16N")
_WIDE_PIXELS: Final = re.compile(r"\b(?:L|LA|RGB|RGBA|RGBX|CMYK);16")
"""Of how pixels lie in the file: Pillow reads colours of 16 bits, and drops 8 of them."""

_REQUEST: Final = struct.Struct("<I")
"""Bytes of the JSON list of paths that follows."""

_REPLY: Final = struct.Struct("<IQ")
"""Bytes of a JSON list and of the pixels that follow. The list has for each image its height, width
and channels, or a text that says why there is none."""

_READY: Final = b"\1"

_NICENESS: Final = 5


def read_image(
    files: OpenFiles, path: str, mode: str, size: tuple[int, int] | None
) -> NDArray[np.uint8]:
    """Read and decode an image.

    Args:
        files: Where it is opened, which tells whether it has changed.
        path: Of the image.
        mode: `RGB`, or `L` for grey.
        size: Height and width to resize to, or None to keep it.

    Returns:
        (height, width, 3 or 1).

    Raises:
        DataError: It cannot be read, has changed, or is no image of 8 bits a channel.
    """
    file = files.get(path)
    try:
        return _decode(file.read_at(0, file.size), mode, size)
    except _DAMAGED as error:
        raise DataError(
            f"{path} cannot be read as an image ({error}): it is damaged, truncated or of "
            "another format; write it again, or remove it"
        ) from error


def _decode(data: bytes, mode: str, size: tuple[int, int] | None) -> NDArray[np.uint8]:
    image: Image.Image
    with Image.open(io.BytesIO(data)) as opened:
        if opened.mode in _WIDE_MODES:
            raise ValueError(f"it has more than 8 bits a channel, Pillow's mode {opened.mode}")
        if any(_WIDE_PIXELS.search(str(tile.args)) for tile in opened.tile):
            raise ValueError("it has 16 bits a channel")
        if size is not None:
            # JPEGs are decoded at the nearest larger eighth of their size, several times as fast.
            opened.draft(mode, (size[1], size[0]))
        opened.load()
        image = opened
    if image.mode != mode:
        image = image.convert(mode)
    if size is not None and image.size != (size[1], size[0]):
        image = image.resize((size[1], size[0]), Image.Resampling.BILINEAR)
    array = np.array(image)
    return array[:, :, np.newaxis] if mode == "L" else array


class EndedError(Exception):
    """The other side of the socket is gone."""


def send_paths(to: socket.socket, paths: Sequence[str]) -> None:
    """Ask for images; they come all at once, so that who waits for them is woken once.

    Raises:
        OSError: The other side is gone.
    """
    data = json.dumps(paths).encode()
    to.sendall(_REQUEST.pack(len(data)) + data)


def wait_until_ready(source: socket.socket) -> None:
    """Wait until the process has been started.

    Raises:
        EndedError: It has ended before.
    """
    _receive(source, len(_READY))


def receive_images(source: socket.socket) -> list[NDArray[np.uint8] | str]:
    """Wait for the images of the oldest request: the pixels of each, or why there are none.

    Raises:
        EndedError: The other side is gone.
    """
    forms_bytes, pixels_bytes = _REPLY.unpack(_receive(source, _REPLY.size))
    forms = json.loads(_receive(source, forms_bytes))
    pixels = np.empty(pixels_bytes, np.uint8)
    _fill(source, pixels.data)
    images: list[NDArray[np.uint8] | str] = []
    begin = 0
    for form in forms:
        if isinstance(form, str):
            images.append(form)
        else:
            end = begin + prod(form)
            images.append(pixels[begin:end].reshape(form))
            begin = end
    return images


def main(arguments: Sequence[str]) -> int:
    """Decode until nobody asks any more."""
    # Who started this process ends it, by closing the socket.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    faulthandler.enable(all_threads=False)
    # Who computes, and the master, come first; should they want images, they leave it the cores.
    os.nice(_NICENESS)
    options = json.loads(arguments[1])
    with (
        socket.socket(fileno=int(arguments[0])) as connection,
        suppress(EndedError, BrokenPipeError, ConnectionResetError),
    ):
        connection.sendall(_READY)
        _serve(connection, options["mode"], options["size"])
    return 0


def _serve(connection: socket.socket, mode: str, size: tuple[int, int] | None) -> None:
    files = open_files(ReaderOptions(format="images"))
    while True:
        (request_bytes,) = _REQUEST.unpack(_receive(connection, _REQUEST.size))
        forms: list[Sequence[int] | str] = []
        pixels = bytearray()
        for path in json.loads(_receive(connection, request_bytes)):
            try:
                image = read_image(files, path, mode, size)
            except DataError as error:
                forms.append(str(error))
            else:
                forms.append(image.shape)
                pixels += image.tobytes()
        data = json.dumps(forms).encode()
        connection.sendall(_REPLY.pack(len(data), len(pixels)) + data)
        connection.sendall(pixels)


def _receive(source: socket.socket, size_bytes: int) -> bytearray:
    data = bytearray(size_bytes)
    _fill(source, memoryview(data))
    return data


def _fill(source: socket.socket, buffer: "memoryview[Any]") -> None:
    done = 0
    while done < len(buffer):
        try:
            count = source.recv_into(buffer[done:], 0, socket.MSG_WAITALL)
        except ConnectionResetError:
            count = 0
        if not count:
            raise EndedError
        done += count


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
