"""Nodes in asyncio."""

import asyncio

from denrei.aio import AsyncNode


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
    async def main():
        settings = {"channel_credit_bytes": "64KiB", "send_buffer_bytes": "20000", "offer_above_bytes": "60000"}
        async with AsyncNode(**settings) as server, AsyncNode(**settings) as client:
            server.MAX_WAITING = 4
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
