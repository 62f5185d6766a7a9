"""The files that install a controller: `python -m elastic.controller.manifests manifests`."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from elastic.controller.assembly import assembled
from elastic.controller.installing import Installation, everything_but_groups, manifests
from elastic.platforms.kubernetes.job.installing import namespace
from elastic.spec.yaml_text import dump_value

CLUSTER_NAMESPACE: Final = "elastic"

_IN_ONE: Final = """\
# The controller for the jobs of one namespace: elastic install -n default --controller --dry_run
# prints it. For another namespace: elastic install -n NAME --controller
"""
_IN_ALL: Final = """\
# The controller for the jobs of all namespaces:
# elastic install -n elastic --controller --all_namespaces --create_namespace --dry_run prints it.
"""


def texts() -> Mapping[str, str]:
    """By the name of a file, what it is to hold."""
    parts = assembled()
    kinds = parts.kinds(parts.names(), everything_but_groups(()))
    types = parts.definitions()
    one = Installation("default", kinds, types)
    everywhere = Installation(CLUSTER_NAMESPACE, kinds, types, all_namespaces=True)
    wide = [namespace(CLUSTER_NAMESPACE), *manifests(everywhere)]
    return {
        "controller.yaml": _IN_ONE + "---\n".join(map(dump_value, manifests(one))),
        "controller-cluster.yaml": _IN_ALL + "---\n".join(map(dump_value, wide)),
    }


def write(folder: Path) -> None:
    """Write the files anew."""
    for name, text in texts().items():
        (folder / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]))
