"""The log of a replica's program: lines that tell when they were written, whoever reads them."""

import logging
from datetime import datetime
from typing import Final

TIME: Final = r"(?P<second>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d),(?P<milli>\d{3})(?P<zone>[+-]\d{4})?"
"""A pattern of the time that a line begins with; one without a zone is in the reader's."""


def start_logging(level: str) -> None:
    """Log to standard error from a level on."""
    handler = logging.StreamHandler()
    handler.setFormatter(_ZonedFormatter("%(asctime)s %(levelname).1s %(name)s: %(message)s"))
    logging.basicConfig(level=level, handlers=[handler])


class _ZonedFormatter(logging.Formatter):
    """Times with their zone: who reads a log may live in another one than the job."""

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: ARG002, N802 - as `logging` has it
        moment = datetime.fromtimestamp(record.created).astimezone()
        return f"{moment:%Y-%m-%d %H:%M:%S},{int(record.msecs):03d}{moment:%z}"
