"""The counts that were told last, kept where a restarted master finds them."""

import logging
import threading
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from elastic.telemetry.samples import Counts

log = logging.getLogger(__name__)

_COUNTS = TypeAdapter(Counts)


class KeptCounts:
    """A small file, written before its content is told."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._kept: Counts | None = None
        self._lock = threading.Lock()

    def load(self) -> Counts | None:
        """What was kept last; None where nothing was."""
        try:
            return _COUNTS.validate_json(self._path.read_bytes())
        except FileNotFoundError:
            return None
        except (OSError, ValidationError) as error:
            log.warning(
                "%s cannot be read, so counters begin with the cut's: %s", self._path, error
            )
            return None

    def keep(self, counts: Counts) -> None:
        """Keep counts; a disk that takes none costs only what a restarted master begins with."""
        with self._lock:
            if counts == self._kept:
                return
            new = self._path.with_suffix(".new")
            try:
                new.write_bytes(_COUNTS.dump_json(counts))
                new.replace(self._path)
            except OSError as error:
                log.debug("%s: %s", self._path, error)
            self._kept = counts
