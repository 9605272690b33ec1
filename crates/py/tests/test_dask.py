"""Dask's schedulers and workers over denrei."""

import asyncio

import numpy as np
import pytest

distributed = pytest.importorskip("distributed")

from distributed.comm import CommClosedError, connect, listen  # noqa: E402
from distributed.protocol import to_serialize  # noqa: E402

ADDRESS = "denrei://127.0.0.1"


def run(work):
    return asyncio.run(asyncio.wait_for(work, 60))


async def echo(comm):
    try:
        while True:
            await comm.write(await comm.read())
    except CommClosedError:
        pass


def test_messages_of_all_sizes_come_back():
    async def main():
        async with listen(ADDRESS, echo) as listener:
            comm = await connect(listener.contact_address)
            assert comm.peer_address == listener.contact_address and comm.same_host
            await comm.write({"op": "ping", "x": (1, 2, 3), "empty": b""})
            assert await comm.read() == {"op": "ping", "x": (1, 2, 3), "empty": b""}
            array = np.random.default_rng(3).normal(size=(1000, 700))
            await comm.write({"array": to_serialize(array)})
            back = await comm.read()
            assert np.array_equal(back["array"], array)
            await comm.close()
            assert comm.closed()

    run(main())


def test_many_connections_share_the_port_and_none_waits_for_another():
    async def main():
        async with listen(ADDRESS, echo) as listener:
            comms = await asyncio.gather(*(connect(listener.contact_address) for _ in range(50)))
            assert len({comm.local_address for comm in comms}) == 1
            # The first does not read what comes back.
            for _ in range(30):
                await comms[0].write(b"x" * 10_000)

            async def exchange(number, comm):
                for turn in range(10):
                    await comm.write((number, turn))
                    assert tuple(await comm.read()) == (number, turn)

            await asyncio.gather(*(exchange(n, comm) for n, comm in enumerate(comms[1:])))
            for comm in comms:
                await comm.close()
            # Channels are used again.
            comm = await connect(listener.contact_address)
            assert comm.channel <= 51
            await comm.write("again")
            assert await comm.read() == "again"
            comm.abort()

    run(main())


def test_what_was_written_before_closing_arrives():
    async def main():
        got, done = [], asyncio.Event()

        async def collect(comm):
            try:
                while True:
                    got.append(await comm.read())
            except CommClosedError:
                done.set()

        async with listen(ADDRESS, collect) as listener:
            comm = await connect(listener.contact_address)
            for number in range(100):
                await comm.write(number)
            await comm.close()
            await done.wait()
            assert got == list(range(100))
            with pytest.raises(CommClosedError):
                await comm.write("more")
            with pytest.raises(CommClosedError):
                await comm.read()

    run(main())


def test_nobody_listens():
    async def main():
        with pytest.raises(OSError):
            await connect("denrei://127.0.0.1:9", timeout=0.5)

    run(main())


def test_a_cluster_computes_the_same_as_over_tcp():
    from distributed import Client, LocalCluster

    def compute(protocol):
        options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None, "processes": True}
        with LocalCluster(protocol=protocol, **options) as cluster, Client(cluster) as client:
            assert cluster.scheduler_address.startswith(protocol)
            squares = client.map(lambda x: x**2, range(100))
            total = client.submit(sum, squares).result(timeout=60)
            array = np.arange(300_000, dtype=float)
            spread = client.scatter(array, broadcast=True)
            sums = client.gather(client.map(lambda k, a: float(a[k::7].sum()), range(7), a=spread))
            assert len(client.who_has([spread])[spread.key]) == 2
            return total, sums

    assert compute("denrei://") == compute("tcp://")


if __name__ == "__main__":
    raise SystemExit(pytest.main([__file__]))
