"""Rows of embeddings: tables that are made row by row, at first use, and kept beside the model.

Belongs here: what a table and its rows are, how a row begins, what an update does to it, and where
rows are kept (`base.RowStore`: in memory, in Redis).
Does not belong here: layers (`frameworks`), which gradient counts (`policy`), how rows travel
(`rpc`).
"""
