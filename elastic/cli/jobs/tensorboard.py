"""`elastic tensorboard`: the curves of a job in a browser."""

import shlex
import threading
from pathlib import Path

import click

from elastic.cli.options import cluster_choice, job_argument, open_platform, platform_option
from elastic.cli.terminal import as_ctrl_c
from elastic.platforms.base import BoardFolder, BoardInCluster


@click.command(
    "tensorboard",
    short_help="Show a job's curves in TensorBoard.",
    epilog="\b\nExamples:\n  elastic tensorboard mnist --platform local\n"
    "  elastic tensorboard mnist -n team",
)
@job_argument()
@click.option("--port", type=click.IntRange(0, 65535), default=6006, show_default=True,
              metavar="N", help="Port on this machine; 0 takes a free one.")  # fmt: skip
@platform_option
@click.pass_context
def command(context: click.Context, job: str, port: int, platform: str) -> int:
    """Show the curves of JOB, which was submitted with --tensorboard_log_dir.

    Of a job of this machine TensorBoard is started here and ends with Ctrl-C,
    whether or not the job still runs. Of one in a cluster it runs there, and
    what is printed opens it.
    """
    match open_platform(context, platform).board(job):
        case BoardFolder(path):
            _serve(job, path, port)
        case BoardInCluster() as board:
            click.echo(_hint(context, job, board, port))
    return 0


def _serve(job: str, path: Path, port: int) -> None:
    # Only who looks needs it.
    from elastic.telemetry.board import Board

    with as_ctrl_c():
        address = Board(path, "127.0.0.1", port).start()
        click.echo(f"TensorBoard of job {job}: {address} (Ctrl-C ends it)")
        threading.Event().wait()


def _hint(context: click.Context, job: str, board: BoardInCluster, port: int) -> str:
    choice = cluster_choice(context)
    given = [("--kubeconfig", choice.kubeconfig), ("--context", choice.context)]
    where = [part for name, value in given if value for part in (name, value)]
    command = [
        *("kubectl", *where, "--namespace", board.namespace, "port-forward"),
        *(f"pod/{board.pod}", f"{port or ''}:{board.port}"),
    ]
    address = f"http://localhost:{port}/" if port else "the address that it prints"
    return (
        f"TensorBoard of job {job} runs in pod {board.pod}{board.note and f' ({board.note})'}. "
        f"While this runs\n  {shlex.join(command)}\nit is at {address}"
    )
