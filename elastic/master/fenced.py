"""Writing what a master leaves to the next one, of which two must never write at once."""

import asyncio
import logging
from collections.abc import Callable
from typing import Final, TypeAlias, TypeVar

from elastic.platforms.base import Fence, FencedError

log = logging.getLogger(__name__)

T = TypeVar("T")

POLL_S: Final = 0.25

Check: TypeAlias = Callable[[], None]
"""Called right before what is written can be seen; raises where it must not be."""


class FencedWriter:
    """Writes on a thread, and waits as long as nobody knows whether another master writes too."""

    def __init__(self, fence: Fence) -> None:
        self._fence = fence

    async def write(self, work: Callable[[Check], T]) -> T:
        """Have `work` done, from its beginning again where it was fenced in the midst of it.

        Args:
            work: Calls what it is given before each step that others see; leaves nothing behind
                where that raises.

        Raises:
            OSError: As `work` does.
        """
        is_told = False
        while True:
            try:
                self._fence.check()
                return await asyncio.to_thread(work, self._fence.check)
            except FencedError as error:
                if not is_told:
                    log.warning("%s", error)
                    is_told = True
            await asyncio.sleep(POLL_S)
