"""A conversion as `elastic data convert` has it done, in this process."""

import json
from contextlib import closing

from elastic.data.convert import ConversionFolder, cut_work, write_units


def convert(plan, num_processes=1, stop_after=None):
    """The manifest; None where it stops after so many files and ends of units."""
    work = cut_work(plan)
    with closing(ConversionFolder(plan, work.units)) as folder:
        done = folder.open()
        todo = [unit for unit in work.units if unit.index not in done]
        written = {}
        for count, (unit, file) in enumerate(write_units(plan, todo, num_processes, work.shuffled)):
            if count == stop_after:
                return None
            if file is None:
                folder.finish_unit(unit.index, written.pop(unit.index, []))
            else:
                written.setdefault(unit.index, []).append(file)
        folder.finish()
    return json.loads((folder._root / "_manifest.json").read_text())
