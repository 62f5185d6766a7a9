"""Files replaced whole, locks that die with their holder, bells that wake a process."""

import fcntl
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from elastic.errors import PlatformError


def write_whole(path: Path, text: str, mode: int = 0o600) -> None:
    """Replace `path`, so that readers see the old text or the new one and nothing between.

    There is no fsync: a job's processes do not outlive a power cut, so neither need its files.

    Raises:
        PlatformError: The text could not be written; the old file is as it was.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{threading.get_native_id()}.tmp")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        temporary.replace(path)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink()
        raise PlatformError(
            f"cannot write {path}: {error.strerror}: make room or mend its permissions, "
            "or set ELASTIC_HOME to another folder"
        ) from error


def read_whole(path: Path) -> str | None:
    """The text of a file, or None where there is none.

    Raises:
        PlatformError: The file is there and cannot be read.
    """
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise PlatformError(
            f"cannot read {path}: {error.strerror}: mend its permissions"
        ) from error


def exists(path: Path) -> bool:
    """Whether a file or folder is there.

    Raises:
        PlatformError: That cannot be told.
    """
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise PlatformError(
            f"cannot look at {path}: {error.strerror}: mend its permissions"
        ) from error
    return True


def entries(folder: Path) -> list[Path]:
    """What lies in a folder, by name; nothing where there is none.

    Raises:
        PlatformError: The folder is there and cannot be listed.
    """
    try:
        return sorted(folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise PlatformError(
            f"cannot list {folder}: {error.strerror}: mend its permissions"
        ) from error


def remove(path: Path) -> None:
    """Remove a file; nothing happens where there is none.

    Raises:
        PlatformError: It is there and cannot be removed.
    """
    try:
        path.unlink()
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        raise PlatformError(
            f"cannot remove {path}: {error.strerror}: mend its permissions"
        ) from error


def modified_ns(path: Path) -> int:
    """When a file or folder last changed; 0 where there is none."""
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0


def last_line(path: Path) -> str:
    """The last line of a log that says anything; empty where none does."""
    try:
        with path.open("rb") as file:
            size_bytes = file.seek(0, os.SEEK_END)
            file.seek(max(0, size_bytes - 8192))
            lines = file.read().decode("utf-8", errors="replace").splitlines()
    except OSError:
        # The line decorates a message about something else, which must not be lost for it.
        return ""
    return next((line.strip() for line in reversed(lines) if line.strip()), "")


class Lock:
    """A lock on a file, which the system gives back when its holder dies."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None

    def take(self) -> bool:
        """Take the lock if nobody has it; never blocks.

        Raises:
            PlatformError: The file cannot be opened.
        """
        try:
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise PlatformError(f"cannot lock {self._path}: {error.strerror}") from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return False
        self._descriptor = descriptor
        return True

    def release(self) -> None:
        """Give the lock back; nothing happens where it is not held."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def is_held(self) -> bool:
        """Whether somebody holds the lock now.

        Raises:
            PlatformError: The file is there and cannot be opened.
        """
        try:
            descriptor = os.open(self._path, os.O_RDONLY)
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError as error:
            raise PlatformError(f"cannot look at {self._path}: {error.strerror}") from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(descriptor)
        return False


class Bell:
    """Wakes the one process that listens; a ring that nobody hears is lost.

    Nothing depends on a ring but speed: all state is in files, which listeners also look at
    from time to time.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None

    def ring(self) -> None:
        """Wake the listener, if there is one."""
        with self._opened(os.O_WRONLY) as descriptor:
            if descriptor is not None:
                # A full pipe has rings enough in it, so one that does not fit may be dropped.
                with suppress(BlockingIOError, BrokenPipeError):
                    os.write(descriptor, b"!")

    def listen(self) -> int:
        """A descriptor that is readable after a ring; opened once.

        Raises:
            PlatformError: The bell cannot be made or opened.
        """
        if self._descriptor is None:
            try:
                with suppress(FileExistsError):
                    os.mkfifo(self._path, 0o600)
                # Open for both directions: a pipe without writers would be readable for ever.
                self._descriptor = os.open(self._path, os.O_RDWR | os.O_NONBLOCK)
            except OSError as error:
                raise PlatformError(f"cannot listen at {self._path}: {error.strerror}") from error
        return self._descriptor

    def silence(self) -> None:
        """Forget the rings so far."""
        with suppress(BlockingIOError):
            while os.read(self.listen(), 4096):
                pass

    def close(self) -> None:
        """Stop listening."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    @contextmanager
    def _opened(self, flags: int) -> Iterator[int | None]:
        try:
            descriptor = os.open(self._path, flags | os.O_NONBLOCK)
        except OSError:
            # No pipe or no listener (ENXIO): nobody is there to be woken.
            yield None
            return
        try:
            yield descriptor
        finally:
            os.close(descriptor)
