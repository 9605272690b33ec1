"""Nodes in asyncio."""

import asyncio
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import denrei
import pytest
from denrei.aio import AsyncNode, AsyncRelay


def test_many_tasks_share_a_node():
    async def serve(node, count):
        for _ in range(count):
            message = await node.recv()
            await node.send(message.peer, bytes(message)[::-1], message.channel)

    async def main():
        async with AsyncNode() as server, AsyncNode() as client:
            peer = client.connect(server.node.address)
            serving = asyncio.create_task(serve(server, 300))
            for number in range(300):
                await client.send(peer, b"%06d" % number, number % 3)
            answers = [bytes(await client.recv())[::-1] for _ in range(300)]
            await serving
            assert sorted(answers) == [b"%06d" % number for number in range(300)]
            assert (await client.event()).kind == "connected"
            assert await client.flush(peer, 5)

    asyncio.run(asyncio.wait_for(main(), 30))


def test_a_slow_reader_slows_the_sender_and_memory_stays_bounded():
    class Small(AsyncNode):
        MAX_WAITING = 4

    async def main():
        settings = {"channel_credit_bytes": "64KiB", "send_buffer_bytes": "20000", "offer_above_bytes": "60000"}
        async with Small(**settings) as server, AsyncNode(**settings) as client:
            peer = client.connect(server.node.address)

            async def produce():
                for number in range(400):
                    await client.send(peer, number.to_bytes(4, "little") * 250)

            producing = asyncio.create_task(produce())
            for number in range(400):
                message = await server.recv()
                assert bytes(message)[:4] == number.to_bytes(4, "little")
            await producing

    asyncio.run(asyncio.wait_for(main(), 30))


def test_few_large_messages_wait_as_many_small_ones_do():
    class Small(AsyncNode):
        MAX_WAITING_BYTES = 1 << 20

    async def main():
        settings = {"receive_memory_bytes": "4MiB", "channel_credit_bytes": "1MiB", "offer_above_bytes": "500000"}
        async with Small(**settings, send_buffer_bytes="2MiB") as server, AsyncNode(send_buffer_bytes="2MiB") as client:
            peer, size, count = client.connect(server.node.address), 256 << 10, 100

            async def produce():
                for number in range(count):
                    await client.send(peer, bytes([number]) * size)

            producing = asyncio.create_task(produce())
            await asyncio.sleep(1)
            # What was there at once when the last ones were taken comes on top.
            assert server._messages.qsize() * size <= server.MAX_WAITING_BYTES + (4 << 20) < count * size
            for number in range(count):
                message = await server.recv()
                assert len(message) == size and message.data[0] == number
            await producing

    asyncio.run(asyncio.wait_for(main(), 30))


def test_messages_that_nobody_reads_hold_no_events_up():
    async def main():
        async with AsyncNode() as server, AsyncNode() as client:
            peer, count = client.connect(server.node.address), 2 * AsyncNode.MAX_WAITING
            for _ in range(count):
                await client.send(peer, b"for later")
            while server._messages.qsize() < AsyncNode.MAX_WAITING:
                await asyncio.sleep(0.01)
            number = await server.send(server.node.peers()[0], b"now", completion="acknowledged")
            while (event := await server.event()).kind != "acknowledged":
                pass
            assert event.number == number
            assert [bytes(await server.recv()) for _ in range(count)] == [b"for later"] * count

    asyncio.run(asyncio.wait_for(main(), 30))


def group_address(last):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        return f"239.255.82.{last}:{probe.getsockname()[1]}"


@pytest.mark.parametrize("closes", [False, True])
def test_more_tasks_wait_than_the_queue_holds(closes):
    class Small(AsyncNode):
        MAX_WAITING = 4

    async def main():
        async with Small() as server, AsyncNode() as client:
            peer = client.connect(server.node.address)
            waiting = [asyncio.create_task(server.recv()) for _ in range(10)]
            await asyncio.sleep(0.1)
            # The loop stands still until all of it is there.
            for number in range(10):
                peer.send(bytes([number]))
            assert peer.flush(5)
            if closes:
                server._take()
                server.close()
            ends = await asyncio.gather(*waiting, return_exceptions=True)
            came = [bytes(end) for end in ends if isinstance(end, denrei.Message)]
            assert came == [bytes([number]) for number in range(4 if closes else 10)]
            assert [type(end) for end in ends].count(denrei.DenreiError) == 10 - len(came)

    asyncio.run(asyncio.wait_for(main(), 10))


def test_a_set_that_cannot_be_made_keeps_no_messages_from_recv():
    async def main():
        async with AsyncNode() as server, AsyncNode() as client:
            peer = client.connect(server.node.address)
            making = server.collective([server.node.address, "127.0.0.1:9"], "239.255.80.2:9", 0.5, channel=3)
            failing = asyncio.create_task(making)
            await asyncio.sleep(0.1)
            await client.send(peer, b"early", 3)
            with pytest.raises(TimeoutError, match="no answer from 127.0.0.1:9"):
                await failing
            await client.send(peer, b"late", 3)
            assert [bytes(await server.recv()) for _ in range(2)] == [b"early", b"late"]

    asyncio.run(asyncio.wait_for(main(), 10))


def test_who_waits_for_a_node_that_is_closed_hears_of_it():
    async def main():
        async with AsyncNode() as server, AsyncNode() as client:
            peer = client.connect(server.node.address)
            await client.send(peer, b"first")
            assert bytes(await server.recv()) == b"first"
            listener = server.join_group("239.255.78.63:7411")
            waits = [server.recv(), server.recv(), server.event(), server.event(), listener.accept()]
            waiting = [asyncio.create_task(wait) for wait in waits]
            await asyncio.sleep(0.1)
            server.close()
            ends = await asyncio.gather(*waiting, return_exceptions=True)
            assert [type(end) for end in ends].count(denrei.DenreiError) == 4
            assert [end.kind for end in ends if isinstance(end, denrei.Event)] == ["connected"]
            with pytest.raises(denrei.DenreiError, match="closed"):
                await server.recv()

    asyncio.run(asyncio.wait_for(main(), 30))


def test_a_cancelled_task_does_not_take_the_closing_of_its_node_back():
    async def run():
        loop = asyncio.get_running_loop()
        loop.set_default_executor(ThreadPoolExecutor(1))
        go_on = threading.Event()
        busy = loop.run_in_executor(None, go_on.wait)
        node = AsyncNode()

        async def use():
            async with node:
                pass

        leaving = asyncio.create_task(use())
        await asyncio.sleep(0.05)
        leaving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await leaving
        go_on.set()
        await busy
        # Nobody has cancelled this one, which waits until the port is free.
        async with asyncio.timeout(30):
            await use()
        denrei.Node(node.node.address).close()

    asyncio.run(run())


def test_casts_leave_the_loop_free_and_messages_alone(tmp_path):
    async def main():
        (tmp_path / "order").write_bytes(b"march" * 200_000)
        into, group = tmp_path / "into", group_address(1)
        into.mkdir()
        async with AsyncNode() as sender, AsyncNode() as receiver:
            peer = sender.connect(receiver.node.address)
            await sender.send(peer, b"before", 3)
            assert bytes(await receiver.recv()) == b"before"
            receiving = asyncio.create_task(receiver.cast_receive(into, group=group))
            report = await sender.cast_send([tmp_path / "order"], [receiver.node.address], group=group)
            receipt = await receiving
            assert report.complete and receipt.bytes == report.bytes == 1_000_000
            assert (into / "order").read_bytes() == (tmp_path / "order").read_bytes()
            peer = sender.connect(receiver.node.address)
            await sender.send(peer, b"after", 3)
            while bytes(message := await receiver.recv()) != b"after":
                pass
            assert message.channel == 3

    asyncio.run(asyncio.wait_for(main(), 60))


def test_a_cancelled_task_breaks_its_cast_off(tmp_path):
    async def main():
        async with AsyncNode() as node:
            told = asyncio.Event()
            loop = asyncio.get_running_loop()
            receiving = asyncio.create_task(
                node.cast_receive(
                    tmp_path,
                    group=group_address(2),
                    progress=lambda _: loop.call_soon_threadsafe(told.set),
                )
            )
            await told.wait()
            receiving.cancel()
            with pytest.raises(asyncio.CancelledError):
                await receiving
            with pytest.raises(TimeoutError):
                await node.cast_receive(tmp_path, group=group_address(2), wait="50ms")

    asyncio.run(asyncio.wait_for(main(), 30))


def test_a_cancelled_call_of_a_set_is_over_for_all_and_leaves_no_thread():
    async def give_up(call):
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(call, 0.3)

    async def work(node, addresses, group, rank):
        async with await node.collective(addresses, group, channel=9) as together:
            if rank == 0:
                await give_up(together.barrier(600))
            else:
                await asyncio.sleep(0.6)
                with pytest.raises(TimeoutError, match="rank 0 gave up"):
                    await together.barrier(20)
            await together.barrier(20)

    async def main():
        async with AsyncNode() as a, AsyncNode() as b:
            addresses, group = [a.node.address, b.node.address], group_address(4)
            await asyncio.gather(work(a, addresses, group, 0), work(b, addresses, group, 1))
            await give_up(a.collective([a.node.address, "127.0.0.1:9"], group, 600))

    began = time.monotonic()
    # It waits for all threads.
    asyncio.run(asyncio.wait_for(main(), 60))
    assert time.monotonic() - began < 30


def test_relays_and_sets_are_awaited():
    async def work(node, addresses, group, rank):
        made = await node.collective(addresses, group, channel=9)
        async with made as together:
            assert (together.set.rank, together.set.size) == (rank, 2)
            await together.barrier()
            assert await together.broadcast(b"plan" if rank == 0 else None) == b"plan"
            assert await together.all_gather(bytes([rank])) == [b"\0", b"\1"]
            assert await together.gather(bytes([rank])) == ([b"\0", b"\1"] if rank == 0 else [])
            assert await together.reduce(b"ab", lambda a, b: a + b) == b"abab"
        with pytest.raises(denrei.DenreiError, match="closed"):
            await together.barrier()

    async def main():
        async with AsyncNode() as a, AsyncNode() as b:
            async with AsyncRelay([("127.0.0.1:0", b.node.address)]) as relay:
                peer = a.connect(relay.addresses[0])
                await a.send(peer, b"over the hill")
                assert bytes(await b.recv()) == b"over the hill"
                assert await a.wait(peer, 1000, 5)
                assert relay.pairs[0].target == b.node.address
                assert await relay.drain(20) and relay.pairs == []
            assert relay.pairs == [] and await relay.drain(0)
            addresses, group = [a.node.address, b.node.address], group_address(3)
            await asyncio.gather(work(a, addresses, group, 0), work(b, addresses, group, 1))

    asyncio.run(asyncio.wait_for(main(), 60))


def test_a_node_left_behind_by_its_loop_can_still_be_closed():
    async def open_node():
        return AsyncNode()

    node = asyncio.run(open_node())
    node.close()
    node.close()
    denrei.Node(node.node.address).close()

    async def hear():
        with pytest.raises(denrei.DenreiError, match="was closed"):
            await asyncio.wait_for(node.recv(), 10)

    asyncio.run(hear())


def test_a_forked_child_hears_that_a_node_is_its_parents():
    # Threads that are there when this process forks are pytest's, of other tests' nodes.
    code = """
import asyncio, os, denrei
from denrei.aio import AsyncNode
async def open_node():
    return AsyncNode()
node = asyncio.run(open_node())
child = os.fork()
if child == 0:
    refused = 0
    for wait in (node.recv, node.event):
        try:
            asyncio.run(asyncio.wait_for(wait(), 5))
        except denrei.DenreiError as error:
            refused += f"is process {os.getppid()}'s" in str(error)
    os._exit(0 if refused == 2 else 1)
assert os.waitpid(child, 0)[1] == 0
node.close()
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=30)


@pytest.mark.parametrize("who", ["a daemon", "the main thread", "another thread"])
def test_a_program_ends_though_what_nobody_awaits_any_more_would_wait_for_ever(who, tmp_path):
    # That of another thread, which the program waits for, goes on to its own end.
    code = f"""
import asyncio, threading, denrei.aio
async def main():
    async with denrei.aio.AsyncNode() as node:
        try:
            await node.cast_receive({str(tmp_path)!r}, group="239.255.78.91:7491", **options)
        except TimeoutError:
            print("in time")
who, options = {who!r}, {{}}
if who == "the main thread":
    async def leave():
        global task
        task = asyncio.create_task(main())
        await asyncio.sleep(0.5)
    loop = asyncio.new_event_loop()
    loop.run_until_complete(leave())
else:
    options = {{"wait": "2s"}} if who == "another thread" else {{}}
    threading.Thread(target=lambda: asyncio.run(main()), daemon=who == "a daemon").start()
    threading.Event().wait(0.5)
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=20)
    assert ended.returncode == 0 and ended.stdout == ("in time\n" if who == "another thread" else ""), ended
