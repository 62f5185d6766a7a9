"""The image that the pods of a job run: a base, its requirements, this elastic, the model_zoo.

`context` says what is wanted and what it will be called, and packs what goes in; `build` talks to a
Docker engine, and decides what is left to do: an image is named by its content, so a job that is
submitted again unchanged builds and pushes nothing.

Belongs here: making images and getting them to a registry.
Does not belong here: pods, and what they do with the image.
"""

from elastic.platforms.images.build import build_and_push
from elastic.platforms.images.context import ImageRequest

__all__ = ["ImageRequest", "build_and_push"]
