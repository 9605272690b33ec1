"""What all of `denrei.aio` share: blocks, and calls that an event loop cannot wait for, made by threads.

Inputs → outputs: a call → what it returns or raises, awaited. A task that is cancelled ends its own.
"""

from __future__ import annotations

import asyncio
import atexit
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Self, TypeVar

from denrei._internal import DenreiError, call_unless

T = TypeVar("T")


class Context:
    """What `async with` is for: it is closed at the end of the block."""

    async def _leave(self) -> None:
        raise NotImplementedError

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self._leave()


#: Set once the program ends, and the interpreter waits for threads.
_ENDS = threading.Event()

# Comes before what `concurrent.futures`, imported above, has registered, and joins its threads; `atexit` comes after. Python
# has no public name for it: should it lose this one, what nobody awaits holds up the program's end again.
getattr(threading, "_register_atexit", atexit.register)(_ENDS.set)


def _abandoned() -> Callable[[], bool]:
    """Asks whether the program ends without what this thread awaits."""
    waiting = threading.current_thread()
    ends_with_it = waiting.daemon or waiting is threading.main_thread()
    return lambda: _ENDS.is_set() and (ends_with_it or not waiting.is_alive())


class Calls:
    """Makes calls, each in a thread: one may wait for what only another brings."""

    #: Calls at a time; those beyond begin when others have ended.
    MOST = 1024

    def __init__(self) -> None:
        # The event loop's own threads are few, and others use them.
        self._threads = ThreadPoolExecutor(self.MOST, "denrei")
        #: Of each that is being made, whether it is wanted no longer.
        self._over: set[threading.Event] = set()
        self._why = ""

    async def make(self, call: Callable[..., T], *arguments: Any) -> T:
        """Makes a call. Where the task is cancelled it ends as if time were up, before the task does."""
        over, abandoned = threading.Event(), _abandoned()
        self._over.add(over)
        running = asyncio.get_running_loop().run_in_executor(
            self._threads, lambda: call_unless(lambda: over.is_set() or abandoned(), call, *arguments)
        )
        try:
            came = await asyncio.shield(running)
        except asyncio.CancelledError:
            over.set()
            # What it comes to nobody asks any more.
            running.add_done_callback(lambda done: done.cancelled() or done.exception())
            await asyncio.wait([running])
            raise
        finally:
            self._over.discard(over)
        if over.is_set():
            raise DenreiError(self._why)
        return came

    def end(self, why: str) -> None:
        """Ends those that are being made, with `DenreiError`."""
        self._why = why
        for over in self._over:
            over.set()
