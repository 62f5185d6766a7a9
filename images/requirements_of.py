"""Print what elastic and the named extras of its pyproject.toml need, one requirement a line."""

import sys
import tomllib
from pathlib import Path

project = tomllib.loads(Path(__file__).with_name("pyproject.toml").read_text())["project"]
lists = [project["dependencies"], *(project["optional-dependencies"][e] for e in sys.argv[1:])]
sys.stdout.write("".join(f"{line}\n" for requirements in lists for line in requirements))
