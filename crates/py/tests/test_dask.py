"""Dask's schedulers and workers over denrei."""

import asyncio
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from broken import fail, sockets

distributed = pytest.importorskip("distributed")

import dask  # noqa: E402
from distributed import Client, LocalCluster, Scheduler, Worker  # noqa: E402
from distributed.comm import CommClosedError, connect, listen  # noqa: E402
from distributed.protocol import to_serialize  # noqa: E402

ADDRESS = "denrei://127.0.0.1"

#: Every two seconds Dask drops what is there more than once, whatever carried it.
KEEP_COPIES = {"distributed.scheduler.active-memory-manager.start": False}


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


def test_processes_that_take_nothing_hold_no_others_up():
    async def keep(comm):
        await asyncio.sleep(60)

    async def flood(comm):
        while True:
            await comm.write(b"x" * 5000)

    async def main():
        # As few as a small machine has, of those that nobody else uses.
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
        narrow = {"send_buffer_bytes": "20000", "channel_credit_bytes": "64KiB", "offer_above_bytes": "60000"}
        with dask.config.set({"denrei.settings": narrow}):
            async with listen(ADDRESS, keep) as one, listen(ADDRESS, keep) as two, listen(ADDRESS, echo) as listener:
                stuck = [await connect(kept.contact_address) for kept in (one, two)]
                floods = [asyncio.create_task(flood(comm)) for comm in stuck]
                comm = await connect(listener.contact_address)
                await asyncio.sleep(0.3)
                began = time.monotonic()
                for number in range(30):
                    await asyncio.gather(*(comm.write(b"y" * 15_000) for _ in range(3)))
                    for _ in range(3):
                        assert len(await comm.read()) == 15_000
                assert time.monotonic() - began < 10
                # Who waits for room hears at once that the connection is over.
                for given_up in stuck:
                    given_up.abort()
                for ended in await asyncio.gather(*floods, return_exceptions=True):
                    assert isinstance(ended, CommClosedError)
                await comm.close()

    run(main())


def test_connections_of_a_node_that_has_failed_are_over():
    async def main():
        async with listen(ADDRESS, echo) as listener:
            before = sockets()
            comm = await connect(listener.contact_address)
            reading = asyncio.create_task(comm.read())
            await asyncio.sleep(0.1)
            fail(sockets() - before)
            # What comes finds no socket.
            comm._channel.hub.start(comm.write("last"))
            with pytest.raises(CommClosedError):
                await asyncio.wait_for(reading, 5)
            # Others are opened by another node.
            comm = await connect(listener.contact_address)
            await comm.write("again")
            assert await comm.read() == "again"
            await comm.close()

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
    def compute(protocol):
        options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None, "processes": True}
        with (
            dask.config.set(KEEP_COPIES),
            LocalCluster(protocol=protocol, **options) as cluster,
            Client(cluster) as client,
        ):
            assert cluster.scheduler_address.startswith(protocol)
            # On a busy machine one may still be starting: it would be left out of the broadcast.
            client.wait_for_workers(2, timeout=60)
            squares = client.map(lambda x: x**2, range(100))
            total = client.submit(sum, squares).result(timeout=60)
            array = np.arange(300_000, dtype=float)
            spread = client.scatter(array, broadcast=True)
            sums = client.gather(client.map(lambda k, a: float(a[k::7].sum()), range(7), a=spread))
            assert len(client.who_has([spread])[spread.key]) == 2
            return total, sums

    assert compute("denrei://") == compute("tcp://")


PROGRAM = """
from dask.distributed import Client, LocalCluster

if __name__ == "__main__":
    client = Client(LocalCluster(protocol="denrei://", n_workers=2, dashboard_address=None))
    print(client.submit(sum, [1, 2]).result())
"""


def test_a_program_may_end_without_closing_its_cluster(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    ended = subprocess.run([sys.executable, program], capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stdout) == (0, "3\n")
    assert "Traceback" not in ended.stderr, ended.stderr


async def pair():
    """Both ends of a connection."""
    taken = asyncio.Queue()
    async with listen(ADDRESS, taken.put) as listener:
        comm = await connect(listener.contact_address)
    return comm, await asyncio.wait_for(taken.get(), 10)


def test_a_port_is_free_once_its_listener_is_gone():
    async def main():
        for _ in range(3):
            taken = asyncio.Queue()
            async with listen(ADDRESS, taken.put) as listener:
                address = listener.contact_address
                comm = await connect(address)
                far = await asyncio.wait_for(taken.get(), 10)
            await comm.close()
            async with listen(address, taken.put) as listener:
                assert listener.contact_address == address
                again = await connect(address)
                await again.write("here")
                far = await asyncio.wait_for(taken.get(), 10)
                assert await far.read() == "here"
                await again.close()

    run(main())


def test_a_reading_that_was_given_up_ends_the_connection():
    async def main():
        near, far = await pair()
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(far.read(), 0.02)
        assert far.closed()
        with pytest.raises(CommClosedError):
            await near.read()

    run(main())


def test_a_message_that_was_given_up_half_way_ends_the_connection(monkeypatch):
    async def main():
        near, far = await pair()
        sent = 0

        async def send(self, *arguments):
            nonlocal sent
            sent += 1
            if sent == 2:
                raise BufferError("no more")
            return await original(self, *arguments)

        original = type(near._channel.hub).send
        monkeypatch.setattr(type(near._channel.hub), "send", send)
        with pytest.raises(BufferError):
            await near.write([to_serialize(np.ones(100_000)), to_serialize(np.ones(100_000))])
        assert near.closed() and sent == 2
        with pytest.raises(CommClosedError, match="gave a message up"):
            await far.read()

    run(main())


def test_a_connection_that_nobody_holds_is_closed():
    async def main():
        near, far = await pair()
        reading = asyncio.create_task(far.read())
        del near
        with pytest.raises(CommClosedError):
            await asyncio.wait_for(reading, 10)
        # And one whose other end has gone is seen to be over though nobody reads.
        near, far = await pair()
        await near.close()
        while not far.closed():
            await asyncio.sleep(0.01)

    run(main())


def test_wishes_for_encryption_are_heard():
    async def main():
        with pytest.raises(RuntimeError, match="keygen"):
            await listen(ADDRESS, echo, require_encryption=True)
        with pytest.raises(RuntimeError, match="keygen"):
            await connect("denrei://127.0.0.1:9", require_encryption=True)

    run(main())


def test_a_key_that_the_environment_names_is_encryption_unless_none_is_wanted(tmp_path, monkeypatch):
    key = tmp_path / "cluster.key"
    key.touch(0o600)
    key.write_text("denrei-cluster-key-v1 " + "17" * 32)
    monkeypatch.setenv("DENREI_KEY_FILE", str(key))

    async def main():
        async with listen(ADDRESS, echo, require_encryption=True) as listener:
            comm = await connect(listener.contact_address, require_encryption=True)
            await comm.write("sealed")
            assert await comm.read() == "sealed"
            await comm.close()
        with dask.config.set({"denrei.settings": {"insecure": True}}):
            with pytest.raises(RuntimeError, match="keygen"):
                await listen(ADDRESS, echo, require_encryption=True)

    run(main())


def test_how_many_connections_there_may_be_is_no_setting():
    async def main():
        with dask.config.set({"denrei.settings": {"max_channels": 100}}):
            with pytest.raises(ValueError, match="leave max_channels out"):
                await listen(ADDRESS, echo)

    run(main())


def counters_of(dask_scheduler):
    return dask_scheduler.extensions["denrei"].counters


def broadcast(data, **settings):
    """Scatters to three workers: what each then has, and the scheduler's counters."""
    with (
        dask.config.set(KEEP_COPIES | settings),
        LocalCluster(
            n_workers=3, threads_per_worker=1, processes=False, protocol="denrei://", dashboard_address=None
        ) as cluster,
        Client(cluster) as client,
    ):
        futures = client.scatter(data, broadcast=True)
        assert [len(workers) for workers in client.who_has(futures).values()] == [3] * len(data)
        kept = client.run(lambda dask_worker: [dask_worker.data[future.key] for future in futures])
        return list(kept.values()), client.run_on_scheduler(counters_of)


def test_a_broadcast_goes_over_a_group_once():
    array = np.random.default_rng(8).normal(size=250_000)
    kept, counters = broadcast([array, "word"])
    assert len(kept) == 3
    for numbers, word in kept:
        assert np.array_equal(numbers, array) and word == "word"
    assert counters["groups"] == 1 and counters["fallbacks"] == 0
    # Sent once, not three times: something may have been sent again.
    assert array.nbytes < counters["bytes_sent"] < 2 * array.nbytes


def test_a_broadcast_without_a_group_arrives_all_the_same():
    for settings in ({"denrei.group": None}, {"denrei.group": "127.0.0.1:7467"}):
        kept, counters = broadcast(["word"], **settings)
        assert kept == [["word"]] * 3
        assert counters["groups"] == 0 and counters["fallbacks"] == (settings["denrei.group"] is not None)


if __name__ == "__main__":
    raise SystemExit(pytest.main([__file__]))


WORKER = """
import asyncio, sys
from distributed import Worker

async def main():
    async with Worker(sys.argv[1], name="one", protocol="denrei://", host="127.0.0.1") as worker:
        await worker.finished()

asyncio.run(main())
"""


async def until(condition, limit=30):
    async with asyncio.timeout(limit):
        while not condition():
            await asyncio.sleep(0.02)


def test_a_worker_that_was_killed_is_missed_and_its_successor_taken_in():
    async def main():
        options = {"dashboard_address": None, "protocol": "denrei://", "host": "127.0.0.1"}
        async with Scheduler(port=0, **options) as scheduler:
            command = [sys.executable, "-c", WORKER, scheduler.address]
            first = subprocess.Popen(command)
            try:
                await until(lambda: scheduler.workers)
                address = next(iter(scheduler.workers))
                # Nobody tells the scheduler, as a nanny would.
                first.kill()
                second = subprocess.Popen(command)
                try:
                    began = time.monotonic()
                    await until(lambda: scheduler.workers and address not in scheduler.workers)
                    # On a busy machine a process starts in ten seconds; a session fails in twenty-five.
                    assert time.monotonic() - began < 15
                    assert second.poll() is None
                finally:
                    second.kill()
                    second.wait()
                await until(lambda: not scheduler.workers, 5)
            finally:
                first.kill()
                first.wait()

    run(main())


def test_a_name_that_a_living_worker_has_is_taken():
    async def main():
        options = {"dashboard_address": None, "protocol": "denrei://", "host": "127.0.0.1"}
        async with Scheduler(port=0, **options) as scheduler:
            one = {"name": "one", "protocol": "denrei://", "host": "127.0.0.1"}
            async with Worker(scheduler.address, **one) as first:
                began = time.monotonic()
                with pytest.raises(RuntimeError) as refused:
                    await Worker(scheduler.address, **one)
                assert "name taken" in str(refused.value.__cause__) and time.monotonic() - began < 4
                assert list(scheduler.workers) == [first.address]

    run(main())
