"""A model of the zoo, copied into a folder of one's own."""

import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Final

from elastic.cli.zoo_catalog import PREPARE_NAME, Framework, Settings, ZooModel
from elastic.client.opening import ClusterChoice, default_platform
from elastic.errors import JobSpecError, PlatformError
from elastic.spec.job import MAX_JOB_NAME_LENGTH
from elastic.spec.job_file import FOLDER_FILE
from elastic.spec.platforms import HERE
from elastic.spec.yaml_text import dump_value

_MODULE: Final = "model"
_DATA: Final = "data"
_TRAINED: Final = "trained"
_SUFFIXES: Final[dict[Framework, str]] = {"keras": ".keras", "torch": ".safetensors"}
"""Of the trained model's file, by framework."""
# The records stay in: `elastic zoo init` leaves this file alone, and would leave them out.
_SETTINGS: Final = """\
# What `elastic train`, `evaluate` and `predict` do with this folder; a flag wins over it, and
# `elastic train --help` tells what else there is. Paths are meant from here.
"""
_DOCKERIGNORE: Final = f"""\
# What shall not become part of the image of a job.
{_TRAINED}.*
"""
_README: Final = """\
# {title}

Begun from elastic's model zoo (`{name}`): {learns}.

| file | holds |
| --- | --- |
| `model.py` | the model and all that trains it, for {framework} |
| `elastic.yaml` | the settings of its jobs |
| `prepare_data.py` | program that makes `data/{train}` and `data/{evaluate}` |

Run these where you made the folder. The first makes the records, the second trains:

```sh
{prepare}

{train_command}
```

Expect {expect}. The trained model is then in `{trained}`.
While it runs, or later, from another terminal:

```sh
elastic status {job}{platform}
elastic logs {job} -f{platform}
```

What was trained is evaluated by

```sh
elastic evaluate {folder}{platform}
```

Jobs run on this machine where no kubeconfig is, or with `--platform local`.

## Make it yours

1. Put your records into `data`: CSV, NumPy, text lines, or what a reader of your own reads.
2. Turn them into features and labels in `dataset_fn`, and fit the model to their sizes.
3. Run the second command again. `overwrite: true` in `elastic.yaml` starts a job that has ended
   anew under its name; without it you give each run a name of its own. A flag wins over the file,
   such as `--num_epochs 5`.

In a cluster the folder is part of the job's image, its records too; `--output` is to lie on a
`--volume`.
"""


@dataclass(frozen=True, slots=True)
class NewFolder:
    """A folder that begins as a copy of one model in one framework.

    Attributes:
        path: The folder as the user gave it.
    """

    model: ZooModel
    framework: Framework
    path: Path

    @property
    def job_name(self) -> str:
        """A name for its job, made from that of the folder."""
        name = re.sub(r"[^a-z0-9]+", "-", self.path.absolute().name.lower())
        return name.lstrip("-0123456789")[:MAX_JOB_NAME_LENGTH].rstrip("-") or "job"

    @property
    def prepare_command(self) -> str:
        """How its records are made, as one types it."""
        return shlex.join(["python", str(self.path / PREPARE_NAME), str(self.path / _DATA)])

    @property
    def train_command(self) -> str:
        """How it is trained on this machine, as one types it."""
        return f"elastic train {shlex.quote(str(self.path))}{_platform_flag()}"

    @property
    def settings(self) -> Settings:
        """The settings of its jobs."""
        return {
            "job_name": self.job_name,
            # The same command again trains anew.
            "overwrite": True,
            "model_def": f"{_MODULE}.{self.model.symbol(self.framework)}",
            "training_data_dir": f"{_DATA}/{self.model.entry.train}",
            "evaluation_data_dir": f"{_DATA}/{self.model.entry.evaluate}",
            **self.model.entry.settings,
            "output": self.trained,
        }

    @property
    def trained(self) -> str:
        """The trained model's file."""
        return f"{_TRAINED}{_SUFFIXES[self.framework]}"

    def missing_packages(self) -> list[str]:
        """What must be installed before its records can be made."""
        return [name for name in self.model.entry.needs if not _is_installed(name)]


def write(new: NewFolder) -> list[Path]:
    """Write the files of a folder that is empty or not there yet, all but its records.

    Raises:
        JobSpecError: The folder holds something, or cannot be written to.
    """
    path = new.path
    try:
        path.mkdir(parents=True, exist_ok=True)
        is_free = not any(path.iterdir())
    except FileExistsError:
        is_free = False
    except OSError as error:
        raise _not_writable(path, error) from error
    if not is_free:
        raise JobSpecError(
            f"{path} is there already, and nothing is overwritten: choose another name"
        )
    files = {
        path / "README.md": _readme(new),
        path / f"{_MODULE}.py": new.model.module_path(new.framework).read_text(encoding="utf-8"),
        path / FOLDER_FILE: _SETTINGS + dump_value(new.settings),
        path / PREPARE_NAME: (new.model.folder / PREPARE_NAME).read_text(encoding="utf-8"),
        path / ".dockerignore": _DOCKERIGNORE,
    }
    try:
        for file, text in files.items():
            file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise _not_writable(path, error) from error
    return list(files)


def prepare(new: NewFolder) -> Path:
    """Make the records of a folder, and return where they are.

    Raises:
        PlatformError: The program that makes them failed.
    """
    program, data = new.path / PREPARE_NAME, new.path / _DATA
    done = subprocess.run(
        [sys.executable, str(program), str(data)], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        shutil.rmtree(data, ignore_errors=True)
        why = done.stderr.strip().rpartition("\n")[2] or f"exit code {done.returncode}"
        raise PlatformError(
            f"{program} made no records: {why}\nrun it again: {new.prepare_command}"
        )
    return data


def _readme(new: NewFolder) -> str:
    entry = new.model.entry
    return _README.format(
        title=new.path.absolute().name,
        name=new.model.name,
        learns=entry.learns,
        framework=new.framework.title().replace("Torch", "torch"),
        train=entry.train,
        evaluate=entry.evaluate,
        expect=entry.expect,
        trained=new.trained,
        folder=shlex.quote(str(new.path)),
        platform=_platform_flag(),
        prepare=new.prepare_command,
        train_command=new.train_command,
        job=new.job_name,
    )


def _platform_flag() -> str:
    """What has a command run on this machine, where it would not by itself."""
    return "" if default_platform(ClusterChoice()) == HERE else f" --platform {HERE}"


def _not_writable(path: Path, error: OSError) -> JobSpecError:
    return JobSpecError(f"{path} cannot be written to ({error.strerror}): choose another folder")


def _is_installed(package: str) -> bool:
    try:
        metadata.version(package)
    except metadata.PackageNotFoundError:
        return False
    return True
