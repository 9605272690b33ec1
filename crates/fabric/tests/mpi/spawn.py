"""Ranks that start ranks: what MPI_Comm_spawn gives them to talk over."""

import sys

from mpi4py import MPI

CHILDREN = 2
LENGTH = 300_000


def content(seed):
    return bytes((i * 7 + seed) % 256 for i in range(256)) * (LENGTH // 256)


def child():
    parents = MPI.Comm.Get_parent()
    # From the first parent to each child, and back.
    data = bytearray(len(content(0)))
    parents.Recv(data, 0, 1)
    assert data == content(parents.rank)
    parents.Send(content(parents.rank + 10), 0, 2)
    together(parents.Merge(high=True), parents.remote_size)
    parents.Disconnect()


def parent():
    children = MPI.COMM_WORLD.Spawn(sys.executable, [__file__, "child"], CHILDREN)
    assert children.remote_size == CHILDREN
    if children.rank == 0:
        sent = [children.Isend(content(i), i, 1) for i in range(CHILDREN)]
        for i in range(CHILDREN):
            data = bytearray(len(content(0)))
            children.Recv(data, i, 2)
            assert data == content(i + 10)
        MPI.Request.Waitall(sent)
    together(children.Merge(high=False), children.size)
    children.Disconnect()


def together(comm, parents):
    """All in one communicator."""
    assert comm.size == parents + CHILDREN
    assert comm.allgather(comm.rank) == list(range(comm.size))
    comm.Free()


if "child" in sys.argv:
    child()
else:
    parent()
    if MPI.COMM_WORLD.rank == 0:
        print(f"{MPI.COMM_WORLD.size} ranks: their children answered")
        sys.stdout.flush()
