"""Processes of `elastic controller`, as a Deployment of two keeps them before an API server."""

import itertools
import os
import signal
import subprocess
import sys
import threading
import time

NUM_REPLICAS = 2
RUN = "import sys; from elastic.cli.main import main; sys.exit(main())"


class Controller:
    """One process; `user` is the name by which the API server knows it."""

    def __init__(self, api, folder, user, *flags):
        self.user = user
        self._log = folder / f"{user}.log"
        kubeconfig = api.kubeconfig(folder / f"{user}.yaml", user)
        command = [sys.executable, "-c", RUN, "controller", "--kubeconfig", str(kubeconfig)]
        with self._log.open("w") as output:
            self.process = subprocess.Popen(
                [*command, "--port", "0", *flags], stdout=output, stderr=subprocess.STDOUT,
                env=os.environ | {"HOME": str(folder)},
            )  # fmt: skip

    @property
    def is_alive(self):
        return self.process.poll() is None

    def log(self):
        return self._log.read_text()

    def kill(self):
        """With a signal that nothing can be done about."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


class Deployment:
    """Keeps two processes, whatever ends them: a thread starts another one in its place."""

    def __init__(self, api, folder, *flags):
        self.all = {}
        self._make = lambda user: Controller(api, folder, user, *flags)
        self._numbers = itertools.count(1)
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="deployment", daemon=True)

    def __enter__(self):
        self._replace()
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._closing.set()
        self._thread.join()
        for each in self.alive():
            each.kill()

    def alive(self):
        return [each for each in list(self.all.values()) if each.is_alive]

    def stands_by(self):
        """Whether one of them is ready to take over."""
        return any("stands by" in each.log() and "leads" not in each.log() for each in self.alive())

    def logs(self):
        return "\n".join(f"{each.user}: {each.log()[-3000:]}" for each in self.all.values())

    def _keep(self):
        while not self._closing.wait(0.1):
            self._replace()

    def _replace(self):
        for _ in range(NUM_REPLICAS - len(self.alive())):
            user = f"controller-{next(self._numbers)}"
            self.all[user] = self._make(user)


def wait_for(probe, timeout_s, what, every_s=0.02):
    """Wait until the probe gives something true, and return it; fails with a text of `what`."""
    deadline_s = time.monotonic() + timeout_s
    while not (found := probe()):
        assert time.monotonic() < deadline_s, f"not within {timeout_s:g} s: {what()}"
        time.sleep(every_s)
    return found
