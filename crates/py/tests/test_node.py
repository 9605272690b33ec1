"""Nodes from Python: every call, buffers without copies, threads, errors."""

import gc
import os
import pickle
import subprocess
import sys
import threading
import time

import denrei
import numpy as np
import pytest

LONG = 10.0


def pair(**settings):
    a, b = denrei.Node(**settings), denrei.Node(**settings)
    return a, b, a.connect(b.address)


def event(node, kind):
    deadline = time.monotonic() + LONG
    while time.monotonic() < deadline:
        happened = node.event(timeout=LONG)
        if happened.kind == kind:
            return happened
    raise AssertionError(f"no event {kind}")


def test_messages_of_all_sizes_go_both_ways():
    a, b, peer = pair()
    for size in (0, 1, 1500, 70_000, 3_000_000):
        data = bytes(i * 7 % 251 for i in range(min(size, 5000))) * (size // 5000 + 1)
        data = data[:size]
        peer.send(data)
        message = b.recv(timeout=LONG)
        assert bytes(message) == data and len(message) == size
        message.peer.send(message, channel=3)
        back = peer.recv(channel=3, timeout=LONG)
        assert back.channel == 3 and bytes(back) == data


def test_numpy_arrays_travel_without_copies():
    a, b, peer = pair()
    array = np.arange(1_000_000, dtype=np.float64).reshape(1000, 1000)
    before = sys.getrefcount(array)
    peer.send(array, completion="acknowledged")
    message = b.recv(timeout=LONG)
    view = np.frombuffer(message, dtype=np.float64)
    assert not view.flags.writeable and not view.flags.owndata
    assert np.array_equal(view.reshape(1000, 1000), array)
    assert event(a, "acknowledged").number == 0
    deadline = time.monotonic() + LONG
    while sys.getrefcount(array) != before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert sys.getrefcount(array) == before, "the memory is given back"
    with pytest.raises(ValueError, match="contiguous"):
        peer.send(array[:, ::2])
    with pytest.raises(TypeError):
        peer.send("text")


def test_arrays_without_items_are_empty_messages():
    _, b, peer = pair()
    for empty in (np.array([]), np.zeros((0, 5)), np.zeros((3, 0), dtype=np.int8), memoryview(b"")):
        peer.send(empty)
        assert bytes(b.recv(timeout=LONG)) == b""


def test_items_of_any_kind_are_sent_as_their_bytes():
    _, b, peer = pair()
    records = np.array([(1, 2.5), (3, 4.5)], dtype=[("a", "<i4"), ("b", "<f8")])
    for array in (records, np.array(1.5), np.float64(2.5), np.arange(3, dtype=">i4"), np.array([1 + 2j])):
        peer.send(array)
        assert bytes(b.recv(timeout=LONG)) == array.tobytes()


def test_subinterpreters_are_refused():
    interpreters = pytest.importorskip("_xxsubinterpreters")
    other = interpreters.create()
    with pytest.raises(Exception, match="does not support loading in subinterpreters"):
        interpreters.run_string(other, "import denrei")
    interpreters.destroy(other)


def test_a_view_keeps_the_message():
    a, b, peer = pair()
    peer.send(bytes(range(256)) * 100)
    view = memoryview(b.recv(timeout=LONG))
    del b
    gc.collect()
    assert view[255] == 255 and view.readonly and view.nbytes == 25_600


def test_offered_messages_are_received_into_an_array():
    a = denrei.Node()
    b = denrei.Node(offers="ask", offer_above_bytes="64KiB")
    peer = a.connect(b.address)
    data = np.random.default_rng(7).integers(0, 255, 2_000_000, dtype=np.uint8)
    peer.send(data)
    offered = event(b, "offered")
    # The size that is offered depends on the sender's setting; ask for one that is.
    assert offered.bytes == data.nbytes
    into = np.zeros_like(data)
    offered.peer.accept(offered.channel, offered.number, into)
    message = b.recv(timeout=LONG)
    assert len(message) == 0 and np.array_equal(into, data)
    peer.send(data)
    offered = event(b, "offered")
    offered.peer.accept(offered.channel, offered.number, queued=True)
    b.send_queued()
    assert bytes(b.recv(timeout=LONG)) == data.tobytes()
    peer.send(data)
    offered = event(b, "offered")
    with pytest.raises(ValueError, match="written"):
        offered.peer.accept(offered.channel, offered.number, bytes(10))
    offered.peer.refuse(offered.channel, offered.number)
    assert event(a, "refused").number == offered.number
    with pytest.raises(KeyError):
        offered.peer.refuse(offered.channel, offered.number)


def test_objects_are_pickled():
    a, b, peer = pair()
    thing = {"a": [1, 2.5, None], "b": ("x", {"y"})}
    peer.send_object(thing)
    assert b.recv(timeout=LONG).object() == thing
    peer.send(pickle.dumps(thing))
    assert b.recv(timeout=LONG).object() == thing


def test_waiting_releases_the_interpreter_and_ends_in_time():
    a, b, peer = pair()
    counted = 0
    done = threading.Event()

    def count():
        nonlocal counted
        while not done.is_set():
            counted += 1
            time.sleep(0.001)

    thread = threading.Thread(target=count)
    thread.start()
    began = time.monotonic()
    with pytest.raises(TimeoutError):
        b.recv(timeout=0.3)
    waited = time.monotonic() - began
    # On a busy machine it takes more than one wait until the other thread has had its turns.
    while counted <= 20 and time.monotonic() < began + LONG:
        with pytest.raises(TimeoutError):
            b.recv(timeout=0.3)
    done.set()
    thread.join()
    assert 0.28 <= waited < 3 and counted > 20
    assert b.try_recv() is None
    assert event(b, "connected").peer.address == a.address
    assert b.try_next() is None
    with pytest.raises(ValueError):
        b.recv(timeout=-1)


def test_several_are_queued_and_drained_with_one_call_each():
    a, b, peer = pair()
    assert [peer.queue(b"%d" % n, channel=n % 2) for n in range(4)] == [0, 0, 1, 1]
    large = bytearray(100_000)
    assert peer.queue(large, channel=2, completion="acknowledged") == 0
    a.send_queued()
    assert b.wait_incoming(timeout=LONG)
    assert event(a, "acknowledged").channel == 2
    assert peer.flush(timeout=LONG)
    back = event(b, "connected").peer
    some = b.drain(channels=[(back, 1), (back, 7)])
    assert [bytes(message) for message in some] == [b"1", b"3"]
    assert b.drain(leave=[0, 2]) == []
    assert b.drain(1)[0].channel in (0, 2) and b.drain(0) == []
    assert {message.channel for message in b.drain()} <= {0, 2} and b.drain() == []
    assert not b.wait_incoming(timeout=0)
    with pytest.raises(denrei.QueueFull):
        for _ in range(10_000):
            peer.queue(bytes(100_000), channel=3)
    peer.abort(reason="enough")
    with pytest.raises(denrei.PeerLost):
        peer.queue(b"x")
    with pytest.raises(TypeError):
        b.drain(channels=[1])


def test_a_node_is_closed_at_once_and_what_was_taken_stays():
    a, b, peer = pair()
    peer.send(b"x" * 5000)
    message = b.recv(timeout=LONG)
    waiting = threading.Thread(target=lambda: pytest.raises(denrei.DenreiError, b.recv))
    waiting.start()
    address = b.address
    b.close()
    b.close()
    waiting.join(LONG)
    assert not waiting.is_alive(), "a wait without limit ends"
    assert bytes(message) == b"x" * 5000 and b.address == address and repr(b)
    for call in (b.recv, b.peers, b.poll, lambda: message.peer.send(b"y"), lambda: message.peer.flow):
        with pytest.raises(denrei.DenreiError, match="closed"):
            call()
    lost = event(a, "peer_lost")
    assert lost.address == address and lost.code == 4 and "closed" in lost.reason
    with denrei.Node(address) as again:
        assert again.address == address, "the port is free"
    view = memoryview(message)
    del message
    assert view[4999] == ord("x")


def test_views_do_not_keep_the_port():
    a, b, peer = pair()
    peer.send(bytes(range(256)) * 100)
    array, address = np.frombuffer(b.recv(timeout=LONG).data, dtype=np.uint8), b.address
    del b
    gc.collect()
    denrei.Node(address).close()
    assert array[255] == 255


def test_threads_share_a_node():
    a, b, peer = pair()
    each, threads = 500, 4

    def produce(channel):
        for number in range(each):
            assert peer.send(number.to_bytes(8, "little"), channel=channel) == number

    workers = [threading.Thread(target=produce, args=(channel,)) for channel in range(threads)]
    for worker in workers:
        worker.start()
    expected = [0] * threads
    for _ in range(each * threads):
        message = b.recv(timeout=LONG)
        assert int.from_bytes(bytes(message), "little") == expected[message.channel]
        expected[message.channel] += 1
    for worker in workers:
        worker.join()
    assert expected == [each] * threads
    assert peer.flush(timeout=LONG)


def test_flow_is_seen_and_steered():
    a, b, peer = pair()
    peer.send(b"x")
    message = b.recv(timeout=LONG)
    assert peer.flush(timeout=LONG)
    flow = peer.flow
    assert flow is not None and flow.phase == "open" and 0 < flow.srtt < 1
    assert flow.addr == b.address == peer.address and flow.incarnation == b.incarnation
    assert peer.queue_length == 0 and peer.wait(1000, timeout=LONG)
    assert a.peers() == [peer] and a.peer_at(b.address) == peer and hash(peer) == hash(a.peers()[0])
    peer.set_priority(2, 0)
    message.peer.set_weight(50)
    message.peer.set_rate(0)
    assert event(a, "rate_set").bytes == 0
    number = peer.send_within(b"late", 0.02)
    assert event(a, "expired").number == number
    with pytest.raises(ValueError, match="burst_bytes is missing.*0 lifts the limit"):
        message.peer.set_rate(10**9)
    message.peer.set_rate(10**9, 0)
    assert message.peer.flow.rate_set == (10**9, 0) and message.peer.flow.weight == 50
    assert flow.rate_set is None and flow.bytes_sent > 0 and flow.duplicates == flow.excess == 0
    asked, status = peer.request_status(), event(a, "status")
    assert (asked, status.bytes, status.count) == (status.number, 0, 0)
    assert 0 <= peer.retransmit() < 10
    assert peer.send_within(b"in time", LONG, channel=6, completion="delivered") == 0
    assert bytes(b.recv(timeout=LONG)) == b"in time"
    assert event(a, "delivered").channel == 6
    message.peer.send(b"look", channel=5)
    assert a.ready(timeout=LONG) == (peer, 5, 4) and a.ready(timeout=0.01) is not None
    assert bytes(a.recv(timeout=LONG)) == b"look" and a.ready(timeout=0.01) is None
    assert a.counters["datagrams"] > 0 and a.counters["malformed"] == 0
    assert a.io_counters["sent_datagrams"] > 0 and a.capabilities["recv_buffer_bytes"] > 0
    with pytest.raises(ValueError, match="1"):
        message.peer.set_weight(0)
    with pytest.raises(ValueError):
        peer.send(b"", channel=65_000)


def test_a_full_queue_and_a_lost_peer_are_told():
    a, b, peer = pair(send_buffer_bytes="10000", channel_credit_bytes="64KiB", offer_above_bytes="60000")
    # Until `b`, which takes nothing, gives no more credit: what waits is not acknowledged meanwhile.
    with pytest.raises(denrei.QueueFull):
        for _ in range(1000):
            peer.send(bytes(5000), timeout=0.5)
    peer.abort(reason="enough")
    lost = event(a, "peer_lost")
    assert "aborted" in lost.reason and lost.unacknowledged
    with pytest.raises(denrei.PeerLost):
        peer.send(b"x")


def test_a_wait_for_a_channel_ends_when_no_more_comes():
    a, b, peer = pair()
    peer.send(b"last")
    peer.close_write()
    back = b.recv(timeout=LONG).peer
    with pytest.raises(EOFError, match="no more messages"):
        back.recv()
    peer.abort(reason="enough")
    event(b, "peer_lost")
    for gone in (peer, back):
        with pytest.raises(denrei.PeerLost):
            gone.recv()
        assert gone.try_recv() is None


def test_wrong_use_says_what_to_do():
    with pytest.raises(ValueError, match="one of"):
        denrei.Node(no_such_setting=1)
    with pytest.raises(ValueError, match="no address"):
        denrei.Node("nowhere")
    with pytest.raises(denrei.DenreiError, match="keygen"):
        denrei.Node("0.0.0.0:0")
    with pytest.raises(ValueError, match="nowhere.key"):
        denrei.Node(key_file="/nowhere.key")
    with pytest.raises(ValueError, match="nowhere.allowed: No such file"):
        denrei.Node(allow_file="/nowhere.allowed")
    assert "allow_file" in denrei.SETTINGS
    a = denrei.Node()
    with pytest.raises(OSError) as refused:
        denrei.Node(a.address)
    assert refused.value.errno == 98
    with pytest.raises(ValueError, match="completion"):
        a.connect(a.address.rsplit(":", 1)[0] + ":9").send(b"", completion="soon")
    assert "channel_credit_bytes" in denrei.SETTINGS


def test_one_where_there_may_be_several_is_refused_in_words():
    a, b, _ = pair()
    group = "239.255.80.1:9"
    for name, call in [
        ("members", lambda: a.open_group(group, b.address)),
        ("addresses", lambda: denrei.Collective(a, a.address, group)),
        ("paths", lambda: a.cast_send("/etc/hostname", [b.address])),
        ("members", lambda: a.cast_send(["/etc/hostname"], b.address)),
        ("members", lambda: a.cast_send_stream(0, b.address)),
        ("routes", lambda: denrei.Relay(b.address)),
    ]:
        with pytest.raises(TypeError, match="'.*' is a single one: it takes a list of them") as refused:
            call()
        assert refused.value.__notes__ == [f"while processing '{name}'"]
    with pytest.raises(ValueError, match='"10.0.0.1" is no address with a port, such as node1:7411'):
        a.connect("10.0.0.1")


def test_a_number_that_its_type_does_not_hold_is_refused_with_what_it_may_be():
    a, b, peer = pair()
    calls = [
        ("channel", 65_535, lambda n: peer.send(b"", channel=n)),
        ("channel", 65_535, lambda n: peer.queue(b"", channel=n)),
        ("channel", 65_535, lambda n: peer.send_object(None, channel=n)),
        ("channel", 65_535, lambda n: peer.send_within(b"", LONG, channel=n)),
        ("channel", 65_535, lambda n: peer.recv(n, 0)),
        ("channel", 65_535, peer.try_recv),
        ("channel", 65_535, lambda n: peer.accept(n, 0)),
        ("channel", 65_535, lambda n: peer.refuse(n, 0)),
        ("channel", 65_535, lambda n: peer.set_priority(n, 0)),
        ("channel", 65_535, lambda n: denrei.Collective(a, [a.address], "239.255.80.1:9", channel=n)),
        ("channels", 65_535, lambda n: a.drain(channels=[(peer, 0), (peer, n)])),
        ("leave", 65_535, lambda n: a.drain(leave=[0, n])),
        ("code", 65_535, lambda n: peer.abort(n)),
        ("number", 2**64 - 1, lambda n: peer.accept(0, n)),
        ("number", 2**64 - 1, lambda n: peer.refuse(0, n)),
        ("length", 2**64 - 1, lambda n: peer.wait(n, 0)),
        ("most", 2**64 - 1, a.drain),
    ]
    for name, most, call in calls:
        for number in (-1, most + 1, 10**10_000):
            with pytest.raises(ValueError, match=f"it takes whole numbers from 0 to {most}") as refused:
                call(number)
            assert number == 10**10_000 or str(number) in str(refused.value)
            assert refused.value.__notes__ == [f"while processing '{name}'"]
    route = [("127.0.0.1:0", b.address)]
    narrower = [
        ("priority", 0, 7, lambda n: peer.set_priority(0, n)),
        ("weight", 1, 10_000, peer.set_weight),
        ("bytes_per_s", 0, 2**50, lambda n: peer.set_rate(n, 1000)),
        ("burst_bytes", 0, 2**50, lambda n: peer.set_rate(1000, n)),
        ("pair_bytes", 2**16, 2**30, lambda n: denrei.Relay(route, pair_bytes=n)),
        ("max_pairs", 1, 1024, lambda n: denrei.Relay(route, max_pairs=n)),
    ]
    for name, least, most, call in narrower:
        for number in (-1, 2**64):
            with pytest.raises(ValueError, match=f"{number}: it takes whole numbers from {least} to {most}\\b") as refused:
                call(number)
            assert refused.value.__notes__ == [f"while processing '{name}'"]
        with pytest.raises(ValueError, match=f"{name} is {most + 1}, but has to be"):
            call(most + 1)
    with pytest.raises(ValueError, match="from -2147483648 to 2147483647"):
        a.cast_receive_stream(2**31)
    with pytest.raises(TypeError, match="integer"):
        peer.send(b"", channel="0")


def test_impossible_settings_are_refused_with_what_is_possible():
    files = {"key_file", "identity_file", "allow_file"}
    for name in set(denrei.SETTINGS) - files - {"host_directory", "status_directory"}:
        for value in (-1, "soon", 2**64, None):
            with pytest.raises(ValueError) as refused:
                denrei.Node(**{name: value})
            assert f"{name} is " in str(refused.value) and denrei.SETTINGS[name] in str(refused.value)
    for settings, expected in [
        ({"failure_timeout": "0s"}, "at least 10ms"),
        ({"failure_timeout": "8s"}, "keepalive is 5s, but has to be between 1ms and half of failure_timeout"),
        ({"max_peers": 0}, "between 1 and 16777215"),
        ({"channel_credit_bytes": "2TiB"}, "between 65536 .* and 1099511627776"),
        ({"offer_above_bytes": "4MiB"}, "at most 4194240"),
        ({"rate_request_bytes_per_s": 2**50 + 1}, "at most 1125899906842624"),
        ({"connected_sockets": 32}, "at most 31"),
        ({"shards": 2, "drive": "thread"}, "has to be 1"),
        (
            {"shards": 32, "drive": "pipelined", "receive_memory_bytes": "64MiB"},
            "receive_memory_bytes is 67108864, but has to be at least 134217728",
        ),
    ]:
        with pytest.raises(ValueError, match=expected):
            denrei.Node(**settings)


def test_who_drives_a_node_is_what_the_environment_says_if_the_program_does_not():
    program = """
import denrei, os, sys
node = denrei.Node(**dict(zip(["drive"], sys.argv[1:])))
print(len(os.listdir("/proc/self/task")) - 1)
"""

    def run(variable, *drive):
        environment = {**os.environ, "DENREI_DRIVE": variable}
        done = subprocess.run([sys.executable, "-c", program, *drive], env=environment, capture_output=True, text=True)
        return done.stdout.strip() or done.stderr

    assert run("") == run("thread") == run("inline", "thread") == "1"
    assert run("inline") == run("", "inline") == "0"
    assert run("thread", "inline") == "1", "inline is the default, which the environment may change"
    for refused in run("fast"), run("fast", "thread"):
        assert 'ValueError: DENREI_DRIVE is "fast"' in refused and "inline, thread or pipelined" in refused


def test_closing_with_lent_memory_under_way_does_not_hang():
    for _ in range(20):
        a, b, peer = pair()
        peer.send(bytearray(1_000_000))
        del a, b, peer
        gc.collect()


def test_a_program_ends_while_its_node_gives_lent_memory_back():
    # Nothing is closed, nothing awaited: the Node is at work while the interpreter is taken down.
    code = """
import sys, denrei
a, b = denrei.Node(drive=sys.argv[1]), denrei.Node(drive="thread")
peer = a.connect(b.address)
for _ in range(200):
    peer.send(bytearray(20_000))
b.recv(timeout=10.0)
"""
    for drive in ("thread", "pipelined") * 8:
        subprocess.run([sys.executable, "-c", code, drive], check=True, timeout=30)


def test_what_a_forked_child_lets_go_of_is_not_the_parents():
    # Threads that are there when this process forks are pytest's, of other tests' nodes.
    code = """
import os, sys, denrei
LONG = 10.0
for drive in ("inline", "thread", "pipelined"):
    a, b = denrei.Node(drive=drive), denrei.Node(drive="thread")
    peer = a.connect(b.address)
    peer.send(b"before")
    assert peer.flush(timeout=LONG)
    b.recv(timeout=LONG)
    listener = a.join_group("239.255.78.77:7477")
    one, relay = denrei.Collective(a, [a.address], "239.255.78.78:7477"), denrei.Relay([("127.0.0.1:0", b.address)])
    child = os.fork()
    if child == 0:
        try:
            peer.send(b"of the child")
        except denrei.DenreiError as error:
            assert f"is process {os.getppid()}'s" in str(error)
            try:
                one.barrier(timeout=LONG)
                sys.exit(2)
            except denrei.DenreiError:
                pass
            assert relay.pairs == []
            listener.close()
            one.close()
            relay.close()
            a.close()
            b.close()
            del a, b, peer, listener, one, relay
            sys.exit(0)
        sys.exit(1)
    assert os.waitpid(child, 0)[1] == 0, drive
    peer.send(b"after")
    assert peer.flush(timeout=LONG)
    assert bytes(b.recv(timeout=LONG)) == b"after", drive
    kinds = {event.kind for event in iter(b.try_event, None)}
    assert "peer_lost" not in kinds, (drive, kinds)
    one.barrier(timeout=LONG)
    one.close()
    relay.close()
    b.close()
    a.close()
print("ok")
"""
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert said.stdout == "ok\n", said.stderr
