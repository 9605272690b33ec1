"""Groups from Python: every call, blocking and asynchronous."""

import asyncio
import socket
import subprocess
import sys
import threading
import time

import denrei
import numpy as np
import pytest
from broken import fail, sockets
from denrei.aio import AsyncNode

LONG = 10.0


def group_address(last):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        return f"239.255.80.{last}:{probe.getsockname()[1]}"


def group_of(count, last, **options):
    address = group_address(last)
    opener, nodes = denrei.Node(), [denrei.Node() for _ in range(count)]
    listeners = [node.join_group(address) for node in nodes]
    group = opener.open_group(address, [node.address for node in nodes], **options)
    return opener, group, nodes, listeners, [listener.accept(timeout=LONG) for listener in listeners]


def event(group, kind):
    """The next event of a kind; others are passed over."""
    for _ in range(20):
        happened = group.event(timeout=LONG)
        if happened.kind == kind:
            return happened
    raise AssertionError(f"no event {kind}")


def test_one_send_reaches_all_members():
    opener, group, nodes, _, memberships = group_of(3, 1)
    array = np.arange(500_000, dtype=np.float64)
    assert [group.send(b"first"), group.send(array), group.send_object({"a": [1]})] == [0, 1, 2]
    for membership in memberships:
        assert membership.id == group.id and membership.opener == opener.address
        assert membership.end is None
        assert bytes(membership.recv(timeout=LONG)) == b"first"
        message = membership.recv(timeout=LONG)
        assert np.array_equal(np.frombuffer(message), array) and message.number == 1
        assert membership.recv(timeout=LONG).object() == {"a": [1]}
        assert membership.try_recv() is None
        with pytest.raises(TimeoutError):
            membership.recv(timeout=0.01)
    assert group.flush(timeout=LONG) and group.queue_length == 0
    members = group.members
    assert [member.address for member in members] == [node.address for node in nodes]
    assert all(member.active and member.messages_acknowledged == 3 for member in members)
    assert all(member.symbols_behind == 0 and (member.loss or 0) < 1 for member in members)
    assert group.status.symbols_sent > 0 and group.status.symbol_bytes > array.nbytes
    assert all(membership.counters["reports"] > 0 for membership in memberships)
    assert group.close(timeout=LONG)
    for membership in memberships:
        assert list(membership) == [] and "order" in membership.end
        with pytest.raises(denrei.GroupClosed, match="order"):
            membership.recv(timeout=LONG)
    with pytest.raises(denrei.GroupClosed):
        group.send(b"more")


def test_members_come_and_go():
    opener, group, nodes, listeners, memberships = group_of(2, 2, history_bytes="1MiB", policy="lag:2s")
    group.send(b"early")
    late = denrei.Node()
    listener = late.join_group(group.address)
    number = group.add_member(late.address, history=True)
    joined = event(group, "joined")
    assert (joined.member, joined.address) == (number, late.address)
    membership = listener.accept(timeout=LONG)
    assert membership.member == number and bytes(membership.recv(timeout=LONG)) == b"early"
    memberships[0].leave()
    departed = event(group, "departed")
    assert departed.address == nodes[0].address and "left" in departed.reason
    group.remove_member(number)
    assert event(group, "departed").member == number
    with pytest.raises(denrei.PeerLost, match="removed"):
        membership.recv(timeout=LONG)
    with pytest.raises(KeyError):
        group.remove_member(77)
    with pytest.raises(ValueError, match="-1: it takes whole numbers from 0 to 4294967295"):
        group.remove_member(-1)
    stranger = denrei.Node()
    asking = stranger.join_group(group.address)
    assert asking.ask(opener.address)
    assert event(group, "joined").address == stranger.address


def test_flush_is_false_when_nobody_is_left():
    _, group, _, _, memberships = group_of(1, 12)
    group.send(b"taken")
    assert group.flush(timeout=LONG)
    for _ in range(7):
        group.send(bytes(1_000_000))
    assert not group.flush(timeout=0.05)
    memberships[0].leave()
    assert not group.flush()
    assert event(group, "departed").number is not None
    with pytest.raises(denrei.PeerLost):
        group.send(b"more")
    assert group.close(timeout=LONG)


def test_a_port_is_free_once_a_group_is_closed_and_what_happened_before_can_still_be_taken():
    opener, group, _, _, (membership,) = group_of(1, 14)
    opener.close()
    with group:
        group.send(b"x")
        assert bytes(membership.recv(timeout=LONG)) == b"x"
    denrei.Node(opener.address).close()
    assert event(group, "closed").kind == "closed" and group.try_event() is None
    assert (group.members, group.status, group.queue_length) == ([], None, 0)
    assert group.close() and group.flush() and repr(group) == f"<denrei.Group {group.address}>"
    calls = [lambda: group.add_member("127.0.0.1:1"), lambda: group.remove_member(0), group.event]
    for call in calls:
        with pytest.raises(denrei.GroupClosed):
            call()


def test_a_port_is_free_though_a_member_does_not_answer_that_its_group_ends():
    opener, group, (node,), (listener,), (membership,) = group_of(1, 15)
    for held in (membership, listener, node):
        held.close()
    opener.close()
    assert group.close(timeout=0.1) in (True, False)
    denrei.Node(opener.address).close()


def test_a_port_is_free_once_listener_and_membership_are_closed():
    _, group, (node,), (listener,), (membership,) = group_of(1, 9)
    group.send(b"x")
    assert group.flush(timeout=LONG)
    assert repr(group.members[0]).startswith(f"<denrei.GroupMember 0 at {node.address}, ")
    assert repr(listener) == f"<denrei.GroupListener {group.address}>"
    node.close()
    with pytest.raises(OSError):
        denrei.Node(node.address)
    with listener, membership:
        assert bytes(membership.recv(timeout=LONG)) == b"x"
    membership.close()
    denrei.Node(node.address).close()
    assert listener.address == group.address and membership.id == group.id and membership.member == 0
    assert membership.end == "this member left" and membership.counters is None
    assert list(membership) == [] and membership.leave() is None
    with pytest.raises(denrei.GroupClosed):
        membership.try_recv()
    for call in (listener.try_accept, listener.accept, lambda: listener.ask("127.0.0.1:9")):
        with pytest.raises(denrei.DenreiError, match="the listener at .* was closed"):
            call()
    assert event(group, "departed").member == 0


def test_an_address_too_many_is_not_heard_and_its_group_comes_by_unicast():
    node, opener = denrei.Node(), denrei.Node()
    addresses = [f"239.255.82.{last}:7412" for last in range(64)]
    listeners = [node.join_group(address) for address in addresses]
    assert [listener.is_heard for listener in listeners] == [True] * 63 + [False]
    with opener.open_group(addresses[-1], [node.address]) as group:
        assert group.members[0].path == "unicast"


def test_wrong_use_says_what_to_do():
    node = denrei.Node()
    with pytest.raises(ValueError, match="multicast"):
        node.join_group("127.0.0.1:7411")
    with pytest.raises(ValueError, match="eject"):
        node.open_group("239.255.80.3:7411", [node.address], policy="hope")
    with pytest.raises(TimeoutError, match=":9"):
        node.open_group("239.255.80.3:7411", ["127.0.0.1:9"], open_timeout="100ms")
    with pytest.raises(ValueError, match="the opener's own"):
        node.open_group("239.255.80.3:7411", [node.address])
    assert set(denrei.GROUP_OPTIONS) >= {"policy", "backend", "history_bytes"}


def test_collective_operations():
    nodes = [denrei.Node() for _ in range(3)]
    addresses, group = [node.address for node in nodes], group_address(4)
    results = [None] * 3

    def work(node, rank):
        together = denrei.Collective(node, addresses, group)
        assert (together.rank, together.size) == (rank, 3)
        together.barrier()
        plan = together.broadcast(b"plan" if rank == 0 else None)
        gathered = together.gather(bytes([rank]))
        everything = together.all_gather(np.full(2, rank, dtype=np.uint8))
        total = together.reduce(
            np.full(4, rank + 1.0), lambda a, b: np.frombuffer(a) + np.frombuffer(b)
        )
        with pytest.raises(ZeroDivisionError if rank == 0 else denrei.DenreiError, match="zero"):
            together.reduce(b"x", lambda a, b: 1 // 0)
        together.barrier()
        assert together.close(60)
        with pytest.raises(denrei.DenreiError, match="closed"):
            together.barrier()
        with denrei.Collective(node, addresses, group, channel=9) as again:
            again.barrier()
        results[rank] = plan, gathered, everything, np.frombuffer(total).tolist()

    threads = [threading.Thread(target=work, args=(node, rank)) for rank, node in enumerate(nodes)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    everything = [b"\x00\x00", b"\x01\x01", b"\x02\x02"]
    for rank, result in enumerate(results):
        gathered = [b"\x00", b"\x01", b"\x02"] if rank == 0 else []
        assert result == (b"plan", gathered, everything, [6.0] * 4)
    with pytest.raises(ValueError, match="own"):
        denrei.Collective(nodes[0], ["127.0.0.1:9"], group)


def test_a_call_of_a_set_waits_for_others_of_its_thread_and_of_others_no_longer_than_it_says():
    nodes, sets = [denrei.Node(), denrei.Node()], [None, None]
    addresses, group = [node.address for node in nodes], group_address(17)

    def make(rank):
        sets[rank] = denrei.Collective(nodes[rank], addresses, group)

    def limited(together):
        began = time.monotonic()
        for call in (together.barrier, together.close):
            with pytest.raises(TimeoutError, match="another call"):
                call(0.2)
        assert time.monotonic() - began < 5
        return True

    def join(a, b):
        limited(sets[0])
        return a + b

    makers = [threading.Thread(target=make, args=(rank,)) for rank in (0, 1)]
    [maker.start() for maker in makers]
    [maker.join(LONG) for maker in makers]
    busy = threading.Thread(target=lambda: sets[0].barrier())
    busy.start()
    time.sleep(0.2)
    limited(sets[0])
    sets[1].barrier()
    busy.join(LONG)
    other = threading.Thread(target=sets[1].reduce, args=(b"b", join))
    other.start()
    assert sets[0].reduce(b"a", join) == b"ab"
    other.join(LONG)


MORTAL = """
import os, signal, denrei
node = denrei.Node()
print(node.address, flush=True)
addresses, group = eval(input())
together = denrei.Collective(node, addresses, group)
together.barrier()
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_rank_that_is_killed_is_named_and_those_left_go_on_in_another_set():
    nodes, results = [denrei.Node(keepalive="1s"), denrei.Node(keepalive="1s")], [None, None]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", MORTAL], **pipes) as mortal:
        addresses = [nodes[0].address, mortal.stdout.readline().strip(), nodes[1].address]
        group = group_address(6)
        print((addresses, group), file=mortal.stdin, flush=True)

        def work(node, rank):
            with denrei.Collective(node, addresses, group) as together:
                together.barrier()
                began = time.monotonic()
                with pytest.raises((denrei.PeerLost, TimeoutError), match="rank 1") as said:
                    together.all_gather(b"x" * 100_000)
                with pytest.raises((denrei.PeerLost, TimeoutError), match="rank 1") as again:
                    together.barrier()
                # Its host says so; without, it takes twenty-one seconds.
                took = time.monotonic() - began
                # One whose session is over is named for the same reason later on.
                time.sleep(0.5)
                with pytest.raises((denrei.PeerLost, TimeoutError), match="rank 1") as later:
                    together.barrier()
                spread = together.broadcast(b"those left" if rank == 0 else None)
            with denrei.Collective(node, addresses[::2], group) as others:
                parts = others.all_gather(bytes([rank]))
            results[rank // 2] = [str(x.value) for x in (said, again, later)], took, spread, parts

        threads = [threading.Thread(target=work, args=(nodes[rank // 2], rank)) for rank in (0, 2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    for result in results:
        assert result is not None
        said, took, spread, parts = result
        assert took < 12 and spread == b"those left" and parts == [b"\x00", b"\x02"]
    assert all("nobody is at its port" in text for text in results[0][0]), results


def test_groups_are_awaited():
    async def main():
        async with AsyncNode() as opener, AsyncNode() as first, AsyncNode() as second:
            address = group_address(5)
            listeners = [node.join_group(address) for node in (first, second)]

            async def read(listener):
                membership = await listener.accept()
                return [int.from_bytes(bytes(message), "little") async for message in membership]

            reading = [asyncio.create_task(read(listener)) for listener in listeners]
            members = [node.node.address for node in (first, second)]
            async with await opener.open_group(address, members) as group:
                for number in range(300):
                    await group.send(number.to_bytes(4, "little") * 100)
                assert await group.flush(LONG)
            assert (await group.event()).kind == "closed"
            numbers = [int.from_bytes(number.to_bytes(4, "little") * 100, "little") for number in range(300)]
            assert [await task for task in reading] == [numbers, numbers]

    asyncio.run(asyncio.wait_for(main(), 60))


def test_who_waits_for_what_is_closed_hears_of_it():
    async def main():
        async with AsyncNode() as opener, AsyncNode() as node:
            address = group_address(18)
            listener = node.join_group(address)
            group = await opener.open_group(address, [node.node.address])
            membership = await listener.accept()
            accepting, receiving = (asyncio.create_task(call()) for call in (listener.accept, membership.recv))
            happening = [asyncio.create_task(group.event()) for _ in range(2)]
            # They wait by then.
            await asyncio.sleep(0.1)
            assert await group.close(LONG)
            await listener.close()
            await membership.close()
            with pytest.raises(denrei.DenreiError, match="the listener at .* was closed"):
                await accepting
            with pytest.raises(denrei.GroupClosed):
                await receiving
            # Whichever asks first when it has come.
            ends = await asyncio.gather(*happening, return_exceptions=True)
            assert [end.kind for end in ends if isinstance(end, denrei.GroupEvent)] == ["closed"]
            assert [type(end) for end in ends].count(denrei.GroupClosed) == 1
            with pytest.raises(denrei.GroupClosed):
                await group.event()

    asyncio.run(asyncio.wait_for(main(), 30))


def test_who_waits_for_a_group_of_a_node_that_has_failed_hears_of_it():
    before = sockets()
    node = denrei.Node()
    listener = node.join_group(group_address(19))
    fail(sockets() - before)
    # What asks for an answer has the node look for one.
    node.connect("127.0.0.1:9").send(b"")
    for call in (node.recv, listener.accept):
        with pytest.raises(denrei.DenreiError, match="failed"):
            call(LONG)
    # Those who wait for something else do not wake each other all the time.
    waiting = [threading.Thread(target=node.ready, args=(1.0,)) for _ in range(3)]
    began = time.process_time()
    [thread.start() for thread in waiting]
    [thread.join() for thread in waiting]
    assert time.process_time() - began < 0.5


def test_ports_are_free_at_the_end_of_the_blocks_that_used_them():
    async def main():
        async with AsyncNode() as opener, AsyncNode() as node:
            address = group_address(16)
            async with node.join_group(address) as listener:
                async with await opener.open_group(address, [node.node.address]) as group:
                    await group.send(b"x")
                    async with await listener.accept() as membership:
                        assert bytes(await membership.recv()) == b"x"
        for held in (opener, node):
            denrei.Node(held.node.address).close()

    asyncio.run(asyncio.wait_for(main(), 60))


def test_a_forked_child_hears_that_groups_are_not_its_own():
    # Threads that are there when this process forks are pytest's, of other tests' nodes.
    code = """
import os, denrei
LONG = 10.0
a, b = denrei.Node(), denrei.Node()
listener = b.join_group("239.255.78.76:7476")
group = a.open_group("239.255.78.76:7476", [b.address])
membership = listener.accept(timeout=LONG)
child = os.fork()
if child == 0:
    wrong = 0
    for call in (
        lambda: group.send(b"of the child"),
        lambda: group.flush(timeout=LONG),
        lambda: group.event(timeout=LONG),
        lambda: membership.recv(timeout=LONG),
        lambda: list(membership),
        lambda: listener.accept(timeout=LONG),
    ):
        try:
            call()
            wrong += 1
        except denrei.DenreiError as error:
            wrong += f"is process {os.getppid()}'s" not in str(error)
    wrong += group.close(timeout=LONG)
    membership.close()
    listener.close()
    os._exit(wrong)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
group.send(b"after")
assert bytes(membership.recv(timeout=LONG)) == b"after"
assert group.flush(timeout=LONG) and group.close(timeout=LONG)
print("ok")
"""
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert said.stdout == "ok\n", said.stderr
