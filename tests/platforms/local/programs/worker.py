"""A replica that does what a file named after it says, and says when it does.

Started as `worker.py FOLDER --job-dir DIR --index I --launch L`; reads `FOLDER/worker-I-L` and
makes `FOLDER/worker-I-L.ready`. Imports nothing of the project where it need not: it starts fast.
"""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

FOREVER = "import signal, time\nsignal.signal(15, signal.SIG_IGN)\nwhile True: time.sleep(60)"


def wait_forever():
    while True:
        time.sleep(60)


def chat():
    def say_goodbye(*_):
        print("last words", end="", flush=True)
        os._exit(1)

    signal.signal(signal.SIGTERM, say_goodbye)
    for number in range(10**9):
        print(f"line {number}")
        time.sleep(0.001)


def say_termination(job_dir, reason):
    from elastic.platforms.base import ExitReason
    from elastic.platforms.local import surroundings

    own = surroundings.own_replica_id()
    surroundings.write_termination(Path(job_dir), own, ExitReason(reason), "said so", "Traceback …")


def main():
    folder, _, job_dir, _, index, _, launch = sys.argv[1:]
    path = Path(folder, f"worker-{index}-{launch}")
    behaviour, *arguments = path.read_text().split()
    if behaviour == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if behaviour == "family":
        for is_session in (False, True):
            subprocess.Popen([sys.executable, "-c", FOREVER], start_new_session=is_session)
    if behaviour == "say":
        say_termination(job_dir, arguments[0])
    print(f"{behaviour} as {os.getpid()}", flush=True)
    path.with_suffix(".ready").touch()
    match behaviour:
        case "run" | "stubborn" | "family":
            wait_forever()
        case "chatty":
            chat()
        case "fail":
            raise ValueError("bad record")
        case "crash":
            os.kill(os.getpid(), signal.SIGSEGV)
        case "exit" | "say":
            sys.exit(int(arguments[-1]))


if __name__ == "__main__":
    main()
