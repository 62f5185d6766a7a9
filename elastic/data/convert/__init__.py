"""Records of sources, or what the user's `prepare_data` makes of them, written as files.

Belongs here: what there is to do, and the folder that says whether all of it is done (`plan`),
doing it (`units`), and the files (`writers`).
Does not belong here: reading (`elastic.data` itself, and `formats`).
"""
