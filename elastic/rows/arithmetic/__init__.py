"""Numbers of rows: how they begin, what a gradient does to them, and in how few bits they are kept.

Belongs here: arrays in, arrays out. Not here: where rows are, and which (`rows`, `rows.redis`).
"""
