"""Where replicas run: started, stopped and watched here, decided about elsewhere.

Belongs here: one package per platform behind the Protocols of `base`, and `images`, which makes
what pods run.
Does not belong here: how many replicas there should be, and what follows an exit (`policy`).
"""
