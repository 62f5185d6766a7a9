"""Folders of images: a record is one image, decoded by processes beside who computes.

Belongs here: the reader and the processes as it sees them (`reader`), and the program that each of
them is (`decoder`).
Does not belong here: which images a folder has (`image_folders`, which users import).
"""
