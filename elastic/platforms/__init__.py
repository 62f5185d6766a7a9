"""Where replicas run: started, stopped and watched here, decided about elsewhere.

Belongs here: one package per platform behind the Protocols of `base`, opened by `registry`; what
their programs are given (`surroundings`) and leave behind (`traces`); and `images`, which makes
what pods run.
Does not belong here: how many replicas there should be, and what follows an exit (`policy`).
"""
