"""Casts and relays from Python."""

import os
import socket
import threading

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
        (pair,) = relay.pairs
        assert (pair.target, pair.forwarded_bytes, pair.returned_messages) == (far.address, 13, 1)
    assert relay.pairs == []
    with pytest.raises(ValueError, match="max_pairs"):
        denrei.Relay([("127.0.0.1:0", far.address)], max_pairs=5000)
    with pytest.raises(ValueError, match="here"):
        denrei.Relay([("127.0.0.1:0", far.address)], from_address="here")
