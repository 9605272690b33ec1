"""Workers that take the place of others.

Inputs → outputs: a worker that registers under a name, or at an address, that another one has → the other is asked
whether it is there, before Dask decides. A process that was killed says nothing, where the kernel would close its TCP
connections; and the one that a nanny starts in its place comes sooner than a session notices.
"""

from __future__ import annotations

import asyncio
from typing import Any

from distributed.comm.core import Comm

#: How often to look whether Dask has let go of a worker that is gone, seconds.
LOOK_AGAIN = 0.02

#: How long it is waited for an answer, or for the word of its host that it is gone, seconds.
LIMIT = 5.0


def install(server: Any) -> None:
    """Gives a scheduler its part."""
    from distributed.scheduler import Scheduler

    if not isinstance(server, Scheduler):
        return

    async def add_worker(comm: Comm, **info: Any) -> Any:
        await asyncio.gather(*(_missed(server, worker) for worker in _before(server, info)))
        return await server.add_worker(comm, **info)

    server.handlers["register-worker"] = add_worker


def _before(scheduler: Any, info: dict[str, Any]) -> set[str]:
    """The workers whose name or address the new one has."""
    candidates = (scheduler.aliases.get(info.get("name")), info.get("address"))
    return {str(worker) for worker in candidates if worker in scheduler.workers}


async def _missed(scheduler: Any, worker: str) -> None:
    """Waits until a worker has answered, or Dask knows that it is gone."""
    # Over other protocols there is nothing to ask: the kernel tells.
    ask = getattr(getattr(scheduler.stream_comms.get(worker), "comm", None), "is_there", None)
    if ask is None or await ask(LIMIT):
        return
    deadline = asyncio.get_running_loop().time() + LIMIT
    while worker in scheduler.workers and asyncio.get_running_loop().time() < deadline:
        await asyncio.sleep(LOOK_AGAIN)
