"""Bytes of files, wherever they are: opened once, read by position, watched for changes.

Belongs here: what a file is to all formats (`files`), files far away (`remote`), and the content of
compressed ones (`compression`).
Does not belong here: what the bytes mean (`formats`), and which files a user means (`sources`).
"""
