"""Those who wait in asyncio: given up, closed upon, and beside others who wait."""

import asyncio
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager

import denrei
import pytest
from broken import fail, sockets
from denrei.aio import AsyncNode

#: Two messages fill a queue, and what the other side does not take soon stays here.
NARROW = {"send_buffer_bytes": "20000", "channel_credit_bytes": "64KiB", "offer_above_bytes": "60000"}


def group_address(last):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        return f"239.255.83.{last}:{probe.getsockname()[1]}"


@asynccontextmanager
async def two_in_a_set(last):
    """A set of two nodes: what each has of it, closed at the end of the block."""
    async with AsyncNode() as a, AsyncNode() as b:
        addresses, address = [a.node.address, b.node.address], group_address(last)
        both = await asyncio.gather(*(node.collective(addresses, address) for node in (a, b)))
        yield both
        await asyncio.gather(*(one.close() for one in both))


def run(work, threads=1):
    """Runs it in an event loop that has few threads of its own, as those of small machines."""

    async def main():
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(threads))
        await asyncio.wait_for(work, 30)

    asyncio.run(main())


GIVEN_UP = """
import asyncio, socket, sys, denrei
from denrei.aio import AsyncNode

async def give_up(call):
    try:
        await asyncio.wait_for(call, 0.2)
    except TimeoutError:
        return
    raise SystemExit(f"{call} did not wait")

async def main(address, lasting):
    silent = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    silent.bind(("127.0.0.1", 0))
    a, b = (AsyncNode(failure_timeout="600s") for _ in range(2))
    peer = a.connect(b.node.address)
    await a.send(peer, b"first")
    (await b.recv()).peer.set_rate(0)
    while (await a.event()).kind != "rate_set":
        pass
    try:
        while True:
            peer.send(bytes(1_000_000), timeout=0)
    except denrei.QueueFull:
        pass
    members = ["{}:{}".format(*silent.getsockname())]
    c, d = (AsyncNode(failure_timeout="600s") for _ in range(2))
    listener = d.join_group(address)
    group = await c.open_group(address, [d.node.address])
    membership = await listener.accept()
    for _ in range(7):
        group.group.send(bytes(1_000_000))
    # What is open stays so: none of these ends because a node is closed.
    lasting += [silent, a, b, c, d, listener, group, membership]
    await give_up(a.flush(peer, 600))
    await give_up(a.wait(peer, 1_000_000, 600))
    await give_up(a.send(peer, bytes(1_000_000)))
    await give_up(a.open_group(address, members, open_timeout="600s"))
    await give_up(group.flush(600))
    await give_up(group.close(600))

lasting = []
asyncio.run(main(sys.argv[1], lasting))
"""


def test_what_was_given_up_leaves_no_thread():
    # A program ends when all its threads have.
    command = [sys.executable, "-c", GIVEN_UP, group_address(1)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=30)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")


def test_peers_that_take_nothing_hold_no_others_up():
    async def flood(node, peer, channel):
        while True:
            await node.send(peer, bytes(5000), channel)

    async def main():
        with denrei.Node(**NARROW) as slow:
            async with AsyncNode(**NARROW) as node, AsyncNode() as fast:
                peer = node.connect(slow.address)
                floods = [asyncio.create_task(flood(node, peer, channel)) for channel in range(3)]
                await asyncio.sleep(0.2)
                peer = node.connect(fast.node.address)
                for _ in range(100):
                    await node.send(peer, bytes(15_000))
                for _ in range(100):
                    await fast.recv()
                for task in floods:
                    assert not task.done()
                    task.cancel()
                await asyncio.gather(*floods, return_exceptions=True)

    run(main())


def test_who_waits_for_room_goes_on_while_a_cast_does(tmp_path):
    async def main():
        async with AsyncNode(**NARROW) as node, AsyncNode() as other:
            casting = asyncio.create_task(node.cast_receive(tmp_path, group=group_address(2)))
            await asyncio.sleep(0.1)
            peer = node.connect(other.node.address)
            for _ in range(100):
                await node.send(peer, bytes(15_000))
            assert not casting.done()
            casting.cancel()

    run(main())


def test_all_nodes_of_a_program_work_together_however_few_threads_its_loop_has():
    async def work(node, addresses, address):
        async with await node.collective(addresses, address, 20) as together:
            await together.barrier(20)
            return await together.all_gather(b"x", 20)

    async def main():
        nodes, address = [AsyncNode() for _ in range(4)], group_address(3)
        addresses = [node.node.address for node in nodes]
        all_have = await asyncio.gather(*(work(node, addresses, address) for node in nodes))
        assert all_have == [[b"x"] * 4] * 4
        for node in nodes:
            node.close()

    run(main())


def test_a_call_of_a_set_waits_for_those_before_it_no_longer_than_it_says():
    async def main():
        async with two_in_a_set(7) as (one, other):
            first = asyncio.create_task(one.barrier(20))
            await asyncio.sleep(0.1)
            with pytest.raises(TimeoutError):
                await one.barrier(0.2)
            assert not first.done()
            await asyncio.gather(first, other.barrier(20))

    run(main())


def test_another_nodes_peer_is_refused_before_it_is_waited_for():
    async def main():
        with denrei.Node(**NARROW) as slow:
            async with AsyncNode(**NARROW) as node, AsyncNode() as other:
                peer = node.connect(slow.address)
                with pytest.raises(ValueError, match="another node's"):
                    while True:
                        await other.send(peer, bytes(5000))

    run(main())


def test_who_waits_for_a_node_that_is_closed_hears_of_it_whatever_it_waits_for(tmp_path):
    async def main():
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as silent:
            silent.bind(("127.0.0.1", 0))
            nobody, address = "{}:{}".format(*silent.getsockname()), group_address(4)
            async with AsyncNode(**NARROW) as node:
                peer = node.connect(nobody)
                with pytest.raises(denrei.QueueFull):
                    while True:
                        peer.send(bytes(5000), timeout=0)
                waits = [
                    node.flush(peer),
                    node.wait(peer, 5000),
                    node.send(peer, bytes(5000)),
                    node.open_group(address, [nobody], open_timeout="60s"),
                    node.collective([node.node.address, nobody], group_address(6), 60),
                    node.cast_receive(tmp_path, group=group_address(5)),
                ]
                waiting = [asyncio.create_task(wait) for wait in waits]
                await asyncio.sleep(0.3)
                assert not any(task.done() for task in waiting)
                began = time.monotonic()
                node.close()
                ends = await asyncio.gather(*waiting, return_exceptions=True)
                assert all(isinstance(end, denrei.DenreiError) for end in ends), ends
                assert time.monotonic() - began < 5
            # Nothing holds the port.
            denrei.Node(node.node.address).close()

    run(main(), threads=8)


def test_a_node_that_has_failed_says_so_to_who_waits_for_messages_and_events():
    async def main():
        before = sockets()
        node = AsyncNode()
        of_node = sockets() - before
        with denrei.Node() as other:
            other.connect(node.node.address).send(b"before")
            assert bytes(await node.recv()) == b"before"
            fail(of_node)
            other.peers()[0].send(b"after")
            assert (await node.event()).kind == "connected"
            waits = [node.recv(), node.event()]
            ends = await asyncio.gather(*(asyncio.wait_for(wait, 5) for wait in waits), return_exceptions=True)
            for end in ends:
                assert isinstance(end, denrei.DenreiError) and "failed" in str(end), ends
            with pytest.raises(denrei.DenreiError, match="failed"):
                node.node.event(timeout=5)
            with pytest.raises(denrei.DenreiError, match="failed"):
                await node.recv()
            # Its thread does not look at the sockets again and again.
            before = time.process_time()
            await asyncio.sleep(1)
            assert time.process_time() - before < 0.3
            node.close()
        with pytest.raises(denrei.DenreiError):
            await node.recv()

    run(main())


def test_what_a_function_raises_in_a_thread_reaches_who_waits_whatever_it_is():
    async def main():
        async with two_in_a_set(8) as (one, other):
            nothing = iter([])
            joined = [together.reduce(b"x", lambda *_: next(nothing), 10) for together in (one, other)]
            ends = await asyncio.gather(*joined, return_exceptions=True)
            assert isinstance(ends[0], RuntimeError) and isinstance(ends[0].__cause__, StopIteration)
            assert isinstance(ends[1], denrei.DenreiError)

    run(main())
