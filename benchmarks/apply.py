"""One update of the optimizer alone, against a copy of as many bytes."""

from typing import Final

from benchmarks.jobs import num_cores, num_threads, threads_environment
from benchmarks.measure import Bar, Ratio, Series
from benchmarks.processes import run_json
from benchmarks.sizes import Size

SGD_BAR: Final = Bar(first=0.6, goal=0.9)


def run(size: Size) -> list[Ratio]:
    """SGD and Adam of both frameworks, with one thread, as a copy has, and with all cores."""
    return [
        measure_apply(size, framework, optimizer, threads)
        for framework in ("torch", "keras")
        for optimizer in ("sgd", "adam")
        for threads in (1, num_cores())
    ]


def measure_apply(size: Size, framework: str, optimizer: str, threads: int) -> Ratio:
    """One framework and optimizer, with so many threads."""
    result = run_json(
        [
            *("-m", "benchmarks.apply_process", "--framework", framework),
            *("--optimizer", optimizer, "--payload_mb", size.payload_mb),
            *("--rounds", size.rounds, "--repeats", size.num_pushes),
        ],
        threads_environment(threads),
    )
    return Ratio(
        f"apply, {size.payload_mb} MB, {framework} {optimizer}, {num_threads(threads)}",
        Series("Updater.apply", "GB/s", tuple(result["applied"])),
        Series("np.copyto, 1 thread", "GB/s", tuple(result["copied"])),
        # The copy has one thread; Adam moves more bytes than SGD and has no bar of its own.
        SGD_BAR if optimizer == "sgd" and threads == 1 else None,
    )
