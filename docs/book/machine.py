"""Who may compute: cells of several pages at once, but a cell that measures time alone.

Waiting for the others would leave cores idle each time. So pages that come to such a cell are
parked, and other pages begin meanwhile. When those that are left cannot keep the cores busy, all
parked cells run, one by one.
"""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Machine:
    """The processors of this machine, shared by pages.

    Args:
      cells: how many may run at once.
      pages: how many may have begun; the memory of each is held until it ends.
    """

    def __init__(self, cells: int, pages: int) -> None:
        self.cells = cells
        self.slots = asyncio.Semaphore(pages)
        self.changed = asyncio.Condition()
        self.begun = 0  # pages; each is running, waiting, parked, measuring, or between two cells
        self.running = self.waiting = self.parked = self.measuring = 0
        self.quiet = False  # parked cells have their turn

    @classmethod
    def here(cls) -> "Machine":
        """This machine: a cell more than there are cores, as some wait for a process or a disk."""
        affinity = getattr(os, "sched_getaffinity", None)
        cores = len(affinity(0)) if affinity else os.cpu_count() or 1
        return cls(cells=cores + 1, pages=min(4 * cores + 2, 12))

    @property
    def between(self) -> int:
        return self.begun - self.running - self.waiting - self.parked - self.measuring

    @asynccontextmanager
    async def page(self) -> AsyncIterator[None]:
        """A place for a page, from its beginning to its end."""
        async with self.slots:
            self.begun += 1
            try:
                yield
            finally:
                self.begun -= 1
                await self.tell()

    @asynccontextmanager
    async def shared(self) -> AsyncIterator[None]:
        """A turn beside other cells."""
        self.waiting += 1
        try:
            await self.tell()
            await self.until(self.may_share)
            self.quiet = False
            self.running += 1
        finally:
            self.waiting -= 1
        try:
            yield
        finally:
            self.running -= 1
            await self.tell()

    @asynccontextmanager
    async def alone(self) -> AsyncIterator[None]:
        """A turn while no other cell runs."""
        self.parked += 1
        try:
            await self.tell()
            await self.until(self.may_measure)
            self.quiet = True
            self.measuring = 1
        finally:
            self.parked -= 1
        try:
            yield
        finally:
            self.measuring = 0
            await self.tell()

    @property
    def idle(self) -> bool:
        """Whether cores have nothing to do because pages are parked."""
        return self.parked > 0 and self.begun - self.parked < self.cells - 1

    def may_share(self) -> bool:
        if self.measuring or self.running >= self.cells or self.idle:
            return False
        return not self.quiet or (not self.parked and not self.between)

    def may_measure(self) -> bool:
        if self.measuring or self.running or self.between:
            return False
        return self.quiet or self.idle or not self.waiting

    async def until(self, ready) -> None:
        async with self.changed:
            await self.changed.wait_for(ready)

    async def tell(self) -> None:
        async with self.changed:
            self.changed.notify_all()
