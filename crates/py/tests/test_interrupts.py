"""Ctrl-C while something waits."""

import os
import signal
import socket
import threading
import time

import denrei
import pytest

LONG = 60.0


def group_address(last):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        return f"239.255.82.{last}:{probe.getsockname()[1]}"


def check(call):
    """Ctrl-C ends a call that would wait for long, soon."""
    pressed = []

    def press():
        pressed.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGINT)

    timer = threading.Timer(0.3, press)
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        call()
    # A tenth of a second; on a busy machine somewhat more.
    assert time.monotonic() - pressed[0] < 1.5
    timer.join()


@pytest.fixture
def silent():
    """The address of somebody who answers nothing."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as somebody:
        somebody.bind(("127.0.0.1", 0))
        yield "{}:{}".format(*somebody.getsockname())


def test_ctrl_c_ends_waiting_for_a_peer(silent):
    with denrei.Node() as node:
        peer = node.connect(silent)
        peer.send(b"x")
        for call in (node.recv, node.next, node.event, node.wait_incoming, peer.flush, peer.recv):
            check(lambda call=call: call(timeout=LONG))
            check(call)


def test_ctrl_c_ends_the_opening_of_a_group_and_another_can_be_opened(silent):
    address = group_address(1)
    with denrei.Node() as node, denrei.Node() as member:
        with member.join_group(address) as listener:
            check(lambda: node.open_group(address, [member.address, silent], open_timeout="60s"))
            check(lambda: listener.accept(timeout=LONG))
            with node.open_group(address, [member.address]) as group:
                group.send(b"x")
                membership = listener.accept(timeout=LONG)
                assert bytes(membership.recv(timeout=LONG)) == b"x"
                check(lambda: membership.recv(timeout=LONG))
                check(lambda: group.event(timeout=LONG) and group.event(timeout=LONG))
                assert group.flush(timeout=LONG)


def test_ctrl_c_ends_the_making_of_a_set(silent):
    address = group_address(2)
    with denrei.Node() as node:
        for addresses in ([node.address, silent], [silent, node.address]):
            check(lambda addresses=addresses: denrei.Collective(node, addresses, address, LONG))


def test_ctrl_c_gives_an_operation_up_for_all_and_the_next_works():
    nodes = [denrei.Node(), denrei.Node()]
    addresses, address = [node.address for node in nodes], group_address(3)
    operations = [
        lambda rank, together: together.barrier(LONG),
        lambda rank, together: together.all_gather(b"x", LONG),
        lambda rank, together: together.reduce(b"x", lambda a, b: a, LONG),
    ]
    if_first = [lambda rank, together: together.gather(b"x", LONG)]
    if_last = [lambda rank, together: together.broadcast(None, LONG)]
    for interrupted in (0, 1):
        waiting = operations + (if_last if interrupted else if_first)
        turns = [threading.Event() for _ in waiting]
        told = []

        def other(rank=1 - interrupted, waiting=waiting, turns=turns, told=told):
            with denrei.Collective(nodes[rank], addresses, address, LONG) as together:
                for operation, turn in zip(waiting, turns, strict=True):
                    turn.wait(LONG)
                    began = time.monotonic()
                    try:
                        operation(rank, together)
                    except TimeoutError as error:
                        told.append((str(error), time.monotonic() - began))
                    together.barrier(LONG)

        thread = threading.Thread(target=other)
        thread.start()
        with denrei.Collective(nodes[interrupted], addresses, address, LONG) as together:
            for operation, turn in zip(waiting, turns, strict=True):
                check(lambda operation=operation: operation(interrupted, together))
                turn.set()
                together.barrier(LONG)
        thread.join(LONG)
        # Rank 0 has what it needs of one that has given up since; the others hear of rank 0.
        if interrupted == 0:
            assert len(told) == len(operations) and all("gave up" in text for text, _ in told), told
        assert all(took < 5 for _, took in told), told


def test_ctrl_c_ends_waiting_for_another_thread_that_uses_the_set():
    nodes = [denrei.Node(), denrei.Node()]
    addresses, address = [node.address for node in nodes], group_address(4)
    sets = [None, None]

    def make(rank):
        sets[rank] = denrei.Collective(nodes[rank], addresses, address, LONG)

    makers = [threading.Thread(target=make, args=(rank,)) for rank in (0, 1)]
    [maker.start() for maker in makers]
    [maker.join(LONG) for maker in makers]
    busy = threading.Thread(target=lambda: sets[0].barrier(LONG))
    busy.start()
    time.sleep(0.2)
    check(sets[0].barrier)
    sets[1].barrier(LONG)
    busy.join(LONG)
    assert not busy.is_alive()
