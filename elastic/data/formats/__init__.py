"""Formats of files: one module that reads each, and one entry that names it.

Belongs here: which formats there are and what users may say to them (`registry`), their readers,
and what several of these share: looking for records in text (`scan`), rows made of columns and
fields of text made numbers (`columns`). A module that is named like a format reads it; `arrays`
reads those of NumPy, and `delimited` CSV and TSV.
Does not belong here: images, which are decoded by processes of their own (`images`), and records in
another order than that of their files (`picking`).
"""
