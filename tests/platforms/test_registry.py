"""Platforms by their names: each row of the table opens its package, and nothing else."""

import argparse
import subprocess
import sys

import pytest

from elastic.errors import PlatformError
from elastic.platforms.registry import (
    ClusterChoice,
    add_platform_flags,
    entry_of,
    entry_of_program,
)
from elastic.spec.platforms import HERE, PLATFORMS, PlatformName, traits_of

EACH = pytest.mark.parametrize("name", PlatformName)


def parse(*arguments):
    parser = argparse.ArgumentParser()
    add_platform_flags(parser)
    return entry_of_program(parser.parse_args(arguments))


def test_every_platform_has_a_row_and_the_last_is_always_there():
    assert set(PLATFORMS) == set(PlatformName)
    assert list(PLATFORMS)[-1] == HERE
    assert entry_of(HERE).is_meant(ClusterChoice())


@EACH
def test_a_program_is_told_its_platform_by_the_flag_of_the_row(name):
    traits = name.traits
    place = [] if traits.program_place is None else ["somewhere"]
    assert parse(traits.program_flag, *place) == (entry_of(name), "".join(place))


def test_a_program_is_of_one_platform(capsys):
    for arguments in ([], ["--kubernetes", "--job-dir", "folder"]):
        with pytest.raises(SystemExit):
            parse(*arguments)
    assert "--job-dir" in capsys.readouterr().err


def test_a_folder_that_holds_no_job_gives_a_master_nothing(tmp_path):
    entry, place = parse("--job-dir", str(tmp_path))
    with pytest.raises(PlatformError, match="not the folder of a job"):
        entry.master_environment(place)


@EACH
def test_whoever_asks_what_a_platform_is_like_loads_nothing_of_its_client(name):
    heavy = "{'kubernetes', 'docker', 'psutil', 'elastic.master', 'elastic.worker'}"
    program = (
        "import sys\n"
        "from elastic.platforms.registry import entry_of\n"
        "from elastic.spec.platforms import PlatformName\n"
        f"entry_of(PlatformName({name.value!r}))\n"
        f"print({heavy} & sys.modules.keys())"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "set()"


def test_what_is_no_platform_is_like_none():
    assert traits_of("slurm") is None
    assert traits_of("local") is PlatformName.LOCAL.traits
