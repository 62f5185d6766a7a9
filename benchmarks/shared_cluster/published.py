"""Mean completion times in seconds that were published for the workloads, by (load, number).

Source:
    Raw results of Qiao et al., "Pollux: Co-adaptive Cluster Scheduling for Goodput-Optimized Deep
    Learning", OSDI 2021, recomputed for single workloads.
"""

from typing import Final

POLLUX: Final = {
    ("0.5", 1): 1060, ("0.5", 2): 1826,
    ("1.0", 1): 2089, ("1.0", 2): 3323,
    ("1.5", 1): 3856, ("1.5", 2): 3381,
    ("2.0", 1): 6186, ("2.0", 2): 4191,
}  # fmt: skip
"""Knows no remaining work; chooses batches too."""

TIRESIAS: Final = {
    ("0.5", 1): 1451, ("0.5", 2): 2333,
    ("1.0", 1): 2474, ("1.0", 2): 5145,
    ("1.5", 1): 5520, ("1.5", 2): 6334,
    ("2.0", 1): 10138, ("2.0", 2): 8656,
}  # fmt: skip
"""Knows no remaining work; the sizes and batches of tuned jobs."""

OPTIMUS: Final = {
    ("0.5", 1): 1310, ("0.5", 2): 3125,
    ("1.0", 1): 4087, ("1.0", 2): 6914,
    ("1.5", 1): 7674, ("1.5", 2): 6678,
    ("2.0", 1): 10807, ("2.0", 2): 8515,
}  # fmt: skip
"""Is told the remaining work by an oracle; the batches of tuned jobs."""
