"""The certificate that the processes of one job show each other."""

from dataclasses import dataclass, field
from typing import Final

CERTIFICATE_NAME: Final = "elastic-job"
"""Whom every job's certificate is made out to: processes come and go, and with them addresses."""


@dataclass(frozen=True, slots=True)
class Certificate:
    """One of its own for each job, signed by itself; who calls trusts this one and no other.

    Attributes:
        chain: The certificate, as PEM.
        key: Its private key, as PEM; only in the job's secret, and in memory.
    """

    chain: str
    key: str = field(repr=False)
