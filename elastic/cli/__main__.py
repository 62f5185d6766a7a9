"""`python -m elastic.cli`, which is the command `elastic`, and `python -m elastic`."""

import sys


def main() -> int:
    """Run the command of this process's arguments and return its exit code.

    Whatever interrupts it, and however early, is no bug to be told by a traceback: so nothing that
    takes its time to import is imported before somebody listens.
    """
    try:
        from elastic.cli.terminal import as_ctrl_c

        with as_ctrl_c():
            from elastic.cli.main import main as run

            return run()
    except KeyboardInterrupt:
        # `ExitCode.INTERRUPTED`, which may not have been imported yet.
        return 130


if __name__ == "__main__":
    sys.exit(main())
