"""Scatter with `broadcast=True`, over a group.

Inputs → outputs: data of a client, at the scheduler → the same data in every worker's memory, sent
once. The scheduler asks the workers to join a multicast address, opens a group with their nodes,
sends the data as one message of frames, and is told by each worker what it has stored. Where that
cannot be (a worker is not reached by denrei, no multicast address can be joined, a worker leaves
meanwhile), Dask's own way does what is missing: copies from worker to worker.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Any

import dask
from distributed.comm.addressing import get_address_host_port, unparse_host_port
from distributed.comm.utils import from_frames, to_frames

from denrei._calls import Calls
from denrei._internal import DenreiError, Group, GroupListener, Membership
from denrei.dask._hub import JOINED, Hub, pack, parse, split

logger = logging.getLogger(__name__)

#: Where groups are if `denrei.group` does not say.
DEFAULT_GROUP = "239.255.78.67:7467"

#: Options of groups if `denrei.group-options` does not say: a worker that hears nothing for so long
#: is left to Dask's own way.
DEFAULT_OPTIONS = {"open_timeout": "2s", "policy": "eject:5s"}

#: How long a worker waits for a group that it was told of, and for each of its messages; seconds.
TAKE_LIMIT = 30.0


#: Counters of a group that are added up: packets and bytes to its address, symbols to single workers.
GROUP_COUNTERS = ("packets_sent", "bytes_sent", "unicast_symbols")


def install(server: Any, hub: Hub) -> None:
    """Gives a scheduler or a worker that listens at a hub its part in broadcasts."""
    from distributed.scheduler import Scheduler
    from distributed.worker import Worker

    if isinstance(server, Scheduler):
        scatter = GroupScatter(server, hub)
        server.extensions["denrei"] = scatter
        server.handlers["scatter"] = scatter.scatter
    elif isinstance(server, Worker):
        taking = _Taking(server, hub)
        server.handlers["denrei_join"] = taking.join
        server.handlers["denrei_take"] = taking.take


class GroupScatter:
    """The scheduler's part. `scheduler.extensions["denrei"].counters` says what it has done."""

    def __init__(self, scheduler: Any, hub: Hub) -> None:
        self._scheduler = scheduler
        self._hub = hub
        self._calls = Calls()
        #: Broadcasts that went over a group, those that did not though they might have, and what the
        #: groups sent.
        self.counters = dict.fromkeys(["groups", "fallbacks", *GROUP_COUNTERS], 0)

    async def scatter(
        self,
        data: dict[Any, Any],
        workers: Iterable[str] | None,
        client: str,
        broadcast: bool | int = False,
        timeout: float = 2,
    ) -> Any:
        """As `Scheduler.scatter`, whose place it takes."""
        chosen = self._members(workers) if broadcast else []
        if len(chosen) >= 2 and (broadcast is True or broadcast >= len(chosen)):
            try:
                await self._send(data, chosen, client)
                # What a worker has missed comes from the others; mostly nothing.
                await self._scheduler.replicate(keys=list(data), workers=chosen, n=len(chosen))
                event = {"action": "scatter", "client": client, "count": len(data)}
                self._scheduler.log_event([client, "all"], event)
                return list(data)
            except (DenreiError, OSError, TimeoutError, ValueError) as error:
                self.counters["fallbacks"] += 1
                logger.warning("Broadcasting worker by worker, not over a group: %s", error)
        # By name: the order differs between versions of Dask.
        return await self._scheduler.scatter(
            data=data, workers=workers, client=client, broadcast=broadcast, timeout=timeout
        )

    def _members(self, workers: Iterable[str] | None) -> list[str]:
        """The workers that get everything; none if a group cannot reach them all."""
        running = {state.address for state in self._scheduler.running}
        if workers is not None:
            running &= {self._scheduler.coerce_address(worker) for worker in workers}
        reached = all(address.startswith("denrei://") for address in running)
        return sorted(running) if reached and dask.config.get("denrei.group", DEFAULT_GROUP) else []

    async def _send(self, data: dict[Any, Any], workers: list[str], client: str) -> None:
        address = dask.config.get("denrei.group", DEFAULT_GROUP)
        options = dask.config.get("denrei.group-options", DEFAULT_OPTIONS)
        frames = await to_frames({"data": data})
        calls = [self._scheduler.rpc(worker) for worker in workers]
        try:
            for answer in await asyncio.gather(*(call.denrei_join(address=address) for call in calls)):
                if answer["status"] != "OK":
                    raise OSError(answer["reason"])
            members = [unparse_host_port(*get_address_host_port(worker)) for worker in workers]
            group = await self._calls.make(lambda: self._hub.node.open_group(address, members, **options))
            taken = [asyncio.ensure_future(call.denrei_take(group=group.id)) for call in calls]
            try:
                await self._send_frames(group, frames)
            except BaseException:
                for task in taken:
                    task.cancel()
                raise
            answers = await asyncio.gather(*taken, return_exceptions=True)
        finally:
            for call in calls:
                await call.close_rpc()
        # Of a worker that could not take it the answer is an exception.
        stored = {w: a["nbytes"] for w, a in zip(workers, answers, strict=True) if isinstance(a, dict)}
        if not stored:
            raise OSError(f"no worker has taken what was sent: {answers[0]!r}")
        has = {key: list(stored) for key in data}
        self._scheduler.update_data(who_has=has, nbytes=next(iter(stored.values())), client=client)

    async def _send_frames(self, group: Group, frames: list[Any]) -> None:
        try:
            for message in pack(frames):
                await self._calls.make(group.send, message)
            await self._calls.make(group.flush)
            status = group.status
            if status is not None:
                self.counters["groups"] += 1
                for name in GROUP_COUNTERS:
                    self.counters[name] += getattr(status, name)
        finally:
            await self._calls.make(group.close)


class _Taking:
    """A worker's part."""

    def __init__(self, worker: Any, hub: Hub) -> None:
        self._worker = worker
        self._hub = hub
        self._listeners: dict[str, GroupListener] = {}
        self._memberships: dict[int, Membership] = {}
        # They would keep the port.
        hub.endings.append(self._listeners.clear)

    async def join(self, address: str) -> dict[str, str]:
        """Joins a multicast address, once; says why if it cannot."""
        if address not in self._listeners:
            try:
                self._listeners[address] = self._hub.node.join_group(address)
            except (DenreiError, OSError, ValueError) as error:
                return {"status": "refused", "reason": str(error)}
        return {"status": "OK"}

    async def take(self, group: int) -> Any:
        """Takes what comes over a group into the worker's memory; answers as `update_data` does."""
        try:
            membership = await self._until(lambda: self._membership(group))
            frames = await self._frames(membership)
        finally:
            self._memberships.pop(group, None)
        message = await from_frames(frames)
        return self._worker.update_data(data=message["data"])

    def _membership(self, group: int) -> Membership | None:
        for listener in self._listeners.values():
            while (membership := listener.try_accept()) is not None:
                self._memberships[membership.id] = membership
        return self._memberships.get(group)

    async def _frames(self, membership: Membership) -> list[Any]:
        kind, lengths, rest = parse(await self._until(membership.try_recv))
        if kind == JOINED:
            return list(split(lengths, rest))
        return [memoryview(await self._until(membership.try_recv)) for _ in lengths]

    async def _until(self, attempt: Callable[[], Any]) -> Any:
        """Tries again whenever there is news, until there is a value."""
        async with asyncio.timeout(TAKE_LIMIT):
            while (value := attempt()) is None:
                await self._hub.news.wait()
            return value
