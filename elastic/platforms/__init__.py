"""Where replicas run: started, stopped and watched here, decided about elsewhere.

Belongs here: one package per platform behind the Protocols of `base`, opened by `registry`, which
says too what their programs are given; what these do with their machine and leave behind
(`process`); and `images`, which makes what pods run.
Does not belong here: how many replicas there should be, and what follows an exit (`policy`).
"""
