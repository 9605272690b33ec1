"""What MPI programs do, with checked results: run by mpiexec on two ranks or more."""

import sys
from array import array

from mpi4py import MPI

comm = MPI.COMM_WORLD
rank, size = comm.rank, comm.size
right, left = (rank + 1) % size, (rank - 1) % size


def content(length, seed):
    block = bytes((i * 7 + seed) % 256 for i in range(256))
    return (block * (length // 256 + 1))[:length]


def pingpong():
    for length in (0, 1, 1000, 16384, 16385, 100_000, 3_000_000):
        data = bytearray(length)
        for turn in range(3):
            if rank == 0:
                comm.Send(content(length, turn), 1, turn)
                comm.Recv(data, 1, turn)
                assert data == content(length, turn + 1)
            elif rank == 1:
                comm.Recv(data, 0, turn)
                assert data == content(length, turn)
                comm.Send(content(length, turn + 1), 0, turn)


def halo():
    for length in (8, 70_000):
        for _ in range(10):
            from_left, from_right = bytearray(length), bytearray(length)
            requests = [comm.Irecv(from_left, left, 1), comm.Irecv(from_right, right, 2)]
            requests += [comm.Isend(content(length, rank), right, 1), comm.Isend(content(length, rank), left, 2)]
            MPI.Request.Waitall(requests)
            assert from_left == content(length, left) and from_right == content(length, right)


def collectives():
    everybody = list(range(size))
    for root in everybody:
        assert comm.bcast(("word", root) if rank == root else None, root) == ("word", root)
        assert comm.gather(rank, root) == (everybody if rank == root else None)
        assert comm.scatter([i * 3 for i in everybody] if rank == root else None, root) == rank * 3
        assert comm.reduce(rank, MPI.SUM, root) == (sum(everybody) if rank == root else None)
    assert comm.allgather(rank) == everybody
    assert comm.allreduce(rank, MPI.MAX) == size - 1
    assert comm.alltoall([rank * size + i for i in everybody]) == [i * size + rank for i in everybody]
    assert comm.scan(1) == rank + 1
    assert (comm.exscan(1) or 0) == rank
    comm.Barrier()
    for length in (1, 1000, 300_000):
        mine, total = array("d", [rank + 1.0]) * length, array("d", [0.0]) * length
        comm.Allreduce([mine, MPI.DOUBLE], [total, MPI.DOUBLE])
        assert total[0] == total[-1] == size * (size + 1) / 2
        part = array("d", [0.0]) * length
        comm.Reduce_scatter_block([array("d", [1.0]) * (length * size), MPI.DOUBLE], [part, MPI.DOUBLE])
        assert part[0] == part[-1] == size
    counts = [(i + 1) * 10_000 for i in everybody]
    gathered = bytearray(sum(counts))
    comm.Allgatherv(content(counts[rank], rank), [gathered, counts, None, MPI.BYTE])
    assert gathered == b"".join(content(count, i) for i, count in enumerate(counts))


def one_sided():
    window = MPI.Win.Allocate(8 * 100_000, 8, comm=comm)
    memory = memoryview(window.tomemory()).cast("d")
    for i in range(100_000):
        memory[i] = 0.0
    window.Fence()
    # Nobody but us keeps it until the operation is done.
    own, one = array("d", [rank + 1.0]) * 50_000, array("d", [1.0])
    window.Put(own, right)
    window.Fence()
    assert memory[0] == memory[49_999] == left + 1.0
    got = array("d", [0.0]) * 50_000
    window.Get(got, right)
    window.Fence()
    assert got[0] == got[-1] == rank + 1.0
    for _ in range(20):
        window.Lock(0)
        window.Accumulate(one, 0, 60_000)
        window.Unlock(0)
    counter = array("d", [0.0])
    window.Lock(0)
    window.Fetch_and_op(one, counter, 0, 60_001)
    window.Unlock(0)
    window.Fence()
    if rank == 0:
        assert memory[60_000] == 20.0 * size and memory[60_001] == size
    window.Fence()
    window.Free()


def probe_and_cancel():
    if rank == 0:
        comm.Send(content(50_000, 3), 1, 7)
        comm.send({"some": "object"}, 1, 8)
    elif rank == 1:
        status = MPI.Status()
        comm.Probe(MPI.ANY_SOURCE, 7, status)
        assert status.Get_count() == 50_000 and status.source == 0
        message = comm.Mprobe(0, 7)
        data = bytearray(50_000)
        message.Recv(data)
        assert data == content(50_000, 3)
        while not comm.Iprobe(0, 8):
            pass
        assert comm.recv(source=0, tag=8) == {"some": "object"}
        never = comm.Irecv(bytearray(4), 0, 99)
        never.Cancel()
        never.Wait(status)
        assert status.Is_cancelled()
    request = comm.issend(rank, right, 11)
    assert comm.recv(source=left, tag=11) == left
    request.wait()


def storm():
    """Unexpected messages in the wrong order."""
    count = 2000
    requests = [comm.Isend(content(100, i), right, i) for i in range(count)]
    data = bytearray(100)
    for i in reversed(range(count)):
        comm.Recv(data, left, i)
        assert data == content(100, i)
    MPI.Request.Waitall(requests)


for check in (pingpong, halo, collectives, one_sided, probe_and_cancel, storm):
    check()
    comm.Barrier()
if rank == 0:
    print(f"{size} ranks: all checks hold")
    sys.stdout.flush()
