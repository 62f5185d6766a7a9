"""Records of sources, or what the user's `prepare_data` makes of them, written as files.

Belongs here: what there is to do (`plan`), doing it (`units`), the files (`writers`),
and the folder that says whether all of them are there (`folder`).
Does not belong here: reading (`elastic.data` itself, and `formats`).
"""
