"""Casts and relays from Python."""

import os
import socket
import threading
import time

import denrei
import pytest

LONG = 10.0


def group_address(last):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        return f"239.255.81.{last}:{probe.getsockname()[1]}"


def test_a_directory_reaches_all(tmp_path):
    source = tmp_path / "orders"
    source.mkdir()
    content = os.urandom(2_000_000)
    (source / "large").write_bytes(content)
    (source / "empty").touch()
    group = group_address(1)
    receipts, seen = {}, []

    def receive(number, node):
        into = tmp_path / f"into{number}"
        into.mkdir()
        options = {"group": group, "wait": "30s", "name": f"n{number}"}
        receipts[number] = node.cast_receive(into, progress=seen.append, **options)

    nodes = [denrei.Node() for _ in range(2)]
    threads = [threading.Thread(target=receive, args=pair) for pair in enumerate(nodes)]
    for thread in threads:
        thread.start()
    told = []
    members = [node.address for node in nodes]
    report = denrei.Node().cast_send([source], members, progress=told.append, group=group)
    for thread in threads:
        thread.join(60)
    assert report.complete and report.bytes == len(content) and report.wire_bytes > len(content)
    assert {member.name for member in report.members} == {"n0", "n1"}
    assert all(member.state == "complete" and member.took > 0 for member in report.members)
    for number, receipt in receipts.items():
        assert (receipt.files, receipt.directories, receipt.bytes) == (2, 1, len(content))
        assert receipt.new_bytes == len(content) and receipt.resumed_bytes == 0
        assert (tmp_path / f"into{number}" / "orders" / "large").read_bytes() == content
        assert (tmp_path / f"into{number}" / "orders" / "empty").read_bytes() == b""
    assert told[-1].members[0].state == "complete" and seen[-1].bytes == len(content)


def test_a_stream_reaches_a_pipe_and_a_directory(tmp_path):
    content = os.urandom(3_000_000)
    (tmp_path / "source").write_bytes(content)
    group = group_address(4)
    nodes = [denrei.Node() for _ in range(2)]
    out, into = os.pipe()
    received, receipts = bytearray(), {}

    def read():
        while chunk := os.read(out, 65536):
            received.extend(chunk)

    def receive_pipe():
        receipts["pipe"] = nodes[0].cast_receive_stream(into, group=group, wait="30s")
        os.close(into)

    def receive_directory():
        receipts["directory"] = nodes[1].cast_receive(tmp_path, group=group, wait="30s")

    threads = [threading.Thread(target=target) for target in (read, receive_pipe, receive_directory)]
    for thread in threads:
        thread.start()
    told = []
    with open(tmp_path / "source", "rb") as source:
        options = {"group": group, "name": "copy", "retain_bytes": "16MiB"}
        members = [node.address for node in nodes]
        report = denrei.Node().cast_send_stream(source, members, progress=told.append, **options)
        assert not source.closed
    for thread in threads:
        thread.join(60)
    os.close(out)
    assert report.complete and report.bytes == len(content)
    assert received == content and (tmp_path / "copy").read_bytes() == content
    assert receipts["pipe"].bytes == receipts["directory"].bytes == len(content)
    assert {receipt.cast for receipt in receipts.values()} == {report.cast}
    assert told[-1].elapsed > 0 and told[-1].warnings == []


def test_what_is_no_descriptor_is_refused(tmp_path):
    node = denrei.Node()
    with pytest.raises(ValueError, match="-1"):
        node.cast_receive_stream(-1)
    with pytest.raises(OSError) as refused:
        node.cast_send_stream(9999, ["127.0.0.1:9"])
    assert refused.value.errno == 9
    with pytest.raises(AttributeError):
        node.cast_send_stream("path", ["127.0.0.1:9"])


def test_what_is_left_out_is_told(tmp_path):
    (tmp_path / "order").write_text("march")
    os.mkfifo(tmp_path / "fifo")
    seen = []

    def stop(progress):
        seen.extend(progress.warnings)
        return False

    with pytest.raises(denrei.CastFailed):
        denrei.Node().cast_send([tmp_path], ["127.0.0.1:9"], progress=stop)
    assert len(seen) == 1 and "fifo" in seen[0]


def test_a_cast_is_broken_off_by_who_watches_it(tmp_path):
    node = denrei.Node()
    (tmp_path / "order").write_text("wait")

    def refuse(progress):
        raise ArithmeticError(f"seen {len(progress.members)}")

    with pytest.raises(ArithmeticError, match="seen 1"):
        node.cast_send([tmp_path / "order"], ["127.0.0.1:9"], progress=refuse)
    with pytest.raises(denrei.CastFailed, match="broken off"):
        node.cast_receive(tmp_path, progress=lambda progress: False, group=group_address(2))


def test_what_cannot_be_cast_says_why(tmp_path):
    node = denrei.Node()
    with pytest.raises(OSError, match="/no/such") as missing:
        node.cast_send(["/no/such"], ["127.0.0.1:9"])
    assert missing.value.errno == 2
    with pytest.raises(TimeoutError, match="min_members"):
        node.cast_send([tmp_path])
    with pytest.raises(TimeoutError, match="wait|offer|sender"):
        node.cast_receive(tmp_path, wait="50ms", group=group_address(3))
    with pytest.raises(ValueError, match="patience"):
        node.cast_send([tmp_path], ["127.0.0.1:9"], colour="red")
    assert set(denrei.CAST_OPTIONS) >= {"group", "wait", "sync", "min_members"}


def test_a_relay_forwards():
    far, near = denrei.Node(), denrei.Node()
    with denrei.Relay([("127.0.0.1:0", far.address)], pair_bytes=1 << 20) as relay:
        peer = near.connect(relay.addresses[0])
        peer.send(b"over the hill")
        message = far.recv(timeout=LONG)
        assert bytes(message) == b"over the hill"
        message.peer.send(b"heard")
        assert bytes(near.recv(timeout=LONG)) == b"heard"
        # What has passed is counted when the relay hears that it has arrived.
        counted, until = (far.address, 13, 1), time.monotonic() + LONG
        while True:
            (pair,) = relay.pairs
            seen = (pair.target, pair.forwarded_bytes, pair.returned_messages)
            if seen == counted or time.monotonic() > until:
                break
            time.sleep(0.01)
        assert seen == counted
    assert relay.pairs == []
    with pytest.raises(ValueError, match="max_pairs"):
        denrei.Relay([("127.0.0.1:0", far.address)], max_pairs=5000)
    with pytest.raises(ValueError, match="pair_bytes is 4611686018427387904, .* 1073741824"):
        denrei.Relay([("127.0.0.1:0", far.address)], pair_bytes=2**62)
    with pytest.raises(ValueError, match="routes is empty, .* one route at least"):
        denrei.Relay([])
    with pytest.raises(ValueError, match="here"):
        denrei.Relay([("127.0.0.1:0", far.address)], from_address="here")


def test_casts_and_the_opening_of_groups_end_when_their_node_is_closed(tmp_path):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as silent:
        silent.bind(("127.0.0.1", 0))
        nobody, address = "{}:{}".format(*silent.getsockname()), group_address(9)
        for wait in (
            lambda node: node.cast_receive(tmp_path, group=address),
            lambda node: node.cast_send(["/etc/hostname"], [nobody], group=address, patience="60s"),
            lambda node: node.open_group(address, [nobody], open_timeout="60s"),
        ):
            node, ends = denrei.Node(), []

            def work(node=node, wait=wait, ends=ends):
                try:
                    ends.append(wait(node))
                except Exception as end:
                    ends.append(end)

            waiting = threading.Thread(target=work, daemon=True)
            waiting.start()
            time.sleep(0.3)
            assert not ends
            node.close()
            waiting.join(LONG)
            assert len(ends) == 1 and isinstance(ends[0], denrei.DenreiError), ends
            denrei.Node(node.address).close()
