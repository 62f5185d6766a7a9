"""Processes that decode images beside the one that computes, in the order of the records.

An image that a process dies of is an error of this image; the process is replaced and goes on.
"""

import json
import logging
import os
import select
import signal
import socket
import subprocess
import sys
import weakref
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from elastic.data.image_decoder import EndedError, receive_image, send_paths, wait_until_ready
from elastic.errors import DataError

log = logging.getLogger(__name__)

_CHUNK: Final = 8
"""Images of a request: the next of several processes has work before the first has done much."""

_AHEAD: Final = 2 * _CHUNK
"""Images that each process is asked for before the first one is wanted."""

_MAX_DEATHS: Final = 3
"""So many processes in a row may end with the same image, or before they are ready; one may have
been killed by accident."""


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

    @property
    def pids(self) -> list[int]:
        """The processes that run now."""
        return [process.pid for process in self._processes]

    def read(self, paths: Sequence[str]) -> Iterator[NDArray[np.uint8]]:
        """Yield the images (height, width, channels) in order.

        Raises:
            DataError: One cannot be decoded, or not be asked for; raised in its place.
        """
        if not self._processes:
            self._processes = [_Process(self._options) for _ in range(self._num_processes)]
        chunks = (paths[start : start + _CHUNK] for start in range(0, len(paths), _CHUNK))
        wanted: deque[_Wanted] = deque()
        while True:
            while len(wanted) < _AHEAD * len(self._processes) and (chunk := next(chunks, None)):
                images = [_Wanted(path) for path in chunk]
                min(self._processes, key=lambda process: process.num_pending).ask(images)
                wanted.extend(images)
            if not wanted:
                return
            image = wanted.popleft()
            while image.result is None:
                self._receive()
            if isinstance(image.result, str):
                raise DataError(image.result)
            yield image.result

    def _receive(self) -> None:
        """Take an image of each process that has one: a full socket makes a process wait."""
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
    """One process and the images that it was asked for and has not answered, in order."""

    def __init__(self, options: str) -> None:
        self._options = options
        self._pending: deque[_Wanted] = deque()
        self._failed_starts = 0
        self._start()

    @property
    def pid(self) -> int:
        return self._child.pid

    @property
    def num_pending(self) -> int:
        return len(self._pending)

    def fileno(self) -> int:
        return self._socket.fileno()

    def ask(self, images: Sequence[_Wanted]) -> None:
        self._pending.extend(images)
        self._send(images)

    def receive(self) -> None:
        """Wait for the answer to the first image, or replace the process where it has ended."""
        try:
            if not self._is_ready:
                wait_until_ready(self._socket)
                self._is_ready = True
                self._failed_starts = 0
            result = receive_image(self._socket)
        except EndedError:
            self._replace()
        else:
            self._pending.popleft().result = result

    def _send(self, images: Sequence[_Wanted]) -> None:
        try:
            send_paths(self._socket, [image.path for image in images])
        except (BrokenPipeError, ConnectionResetError):
            # It has ended; whoever waits for an answer finds that out and asks another one.
            log.debug("decoder %d is gone", self.pid)

    def _replace(self) -> None:
        self._end()
        how = _ending(self._child.returncode)
        if self._is_ready:
            self._blame_image(self._pending[0], how)
        else:
            self._count_failed_start(how)
        self._start()
        if self._pending:
            self._send(self._pending)

    def _blame_image(self, image: _Wanted, how: str) -> None:
        image.deaths += 1
        log.warning("the process that decodes images %s, at %s: starting another", how, image.path)
        if image.deaths == _MAX_DEATHS:
            image.result = (
                f"{image.path} cannot be decoded: the process that tried {how}, {_MAX_DEATHS} "
                "times in a row; see the worker's log, write the image again, or remove it"
            )
            self._pending.popleft()

    def _count_failed_start(self, how: str) -> None:
        self._failed_starts += 1
        log.warning("the process that decodes images %s as it started: starting another", how)
        if self._failed_starts == _MAX_DEATHS:
            self._failed_starts = 0
            while self._pending:
                image = self._pending.popleft()
                image.result = (
                    f"{image.path} cannot be decoded: the process for it {how} as it started, "
                    f"{_MAX_DEATHS} times in a row; see the worker's log, give the worker more "
                    "memory, or have it decode by itself with --data_reader_params processes=0"
                )

    def _start(self) -> None:
        self._is_ready = False
        self._socket, theirs = socket.socketpair()
        with theirs:
            self._child = subprocess.Popen(
                [
                    *(sys.executable, "-P", "-m", "elastic.data.image_decoder"),
                    *(str(theirs.fileno()), self._options),
                ],
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                # NumPy would start a thread for each core.
                env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
            )
        self._end = weakref.finalize(self, _end, self._socket, self._child)


def _end(connection: socket.socket, child: "subprocess.Popen[bytes]") -> None:
    connection.close()
    # What it decodes just now would be for nobody.
    child.kill()
    child.wait()


def _ending(code: int) -> str:
    return f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
