#!/bin/bash
# How long udpcast and UFTP take for one file to N receivers, between namespaces on a bridge, as
# `denrei bench bcast --netns` has them. Needs root; what is not installed is skipped.
#
# docs/groups/others.sh [receivers, 8] [bytes, 67108864]
# Prints seconds from the sender's start to its end: each waits until all have the file.
set -euo pipefail
receivers=${1:-8} bytes=${2:-67108864}
work=$(mktemp -d /dev/shm/others.XXXXXX)
name() { echo "others$$-$1"; }

clean_up() {
    for host in $(seq 0 "$receivers") bridge; do
        ip netns pids "$(name "$host")" 2>/dev/null | xargs -r kill 2>/dev/null || true
        ip netns del "$(name "$host")" 2>/dev/null || true
    done
    rm -rf "$work"
}
trap clean_up EXIT

ip netns add "$(name bridge)"
ip -n "$(name bridge)" link add br0 type bridge
ip -n "$(name bridge)" link set br0 up
for host in $(seq 0 "$receivers"); do
    ip netns add "$(name "$host")"
    ip -n "$(name bridge)" link add "port$host" type veth peer name eth0 netns "$(name "$host")"
    ip -n "$(name bridge)" link set "port$host" master br0 up
    ip -n "$(name "$host")" addr add "10.78.0.$((host + 1))/24" brd + dev eth0
    ip -n "$(name "$host")" link set eth0 up
    ip -n "$(name "$host")" link set lo up
    ip -n "$(name "$host")" route add 224.0.0.0/4 dev eth0
done
head -c "$bytes" /dev/urandom >"$work/file"

on() { local host=$1; shift; ip netns exec "$(name "$host")" "$@"; }

timed() {
    local what=$1 began ended; shift
    began=$(date +%s%N)
    timeout 60 ip netns exec "$(name 0)" "$@" >"$work/log" 2>&1 || { tail -3 "$work/log"; exit 1; }
    ended=$(date +%s%N)
    echo "$what: $(((ended - began) / 1000000)) ms for $bytes bytes to $receivers"
}

if command -v udp-sender >/dev/null; then
    for host in $(seq "$receivers"); do
        on "$host" udp-receiver --nokbd --interface eth0 --mcast-rdv-address 239.255.3.3 \
            --file /dev/null >/dev/null 2>&1 &
    done
    sleep 1
    timed udpcast udp-sender --nokbd --interface eth0 --full-duplex --mcast-rdv-address 239.255.3.3 \
        --min-receivers "$receivers" --file "$work/file"
else
    echo "SKIPPED udpcast: udp-sender is not installed (apt-get install udpcast)"
fi

if command -v uftp >/dev/null; then
    for host in $(seq "$receivers"); do
        mkdir -p "$work/$host/tmp"
        on "$host" uftpd -d -I eth0 -D "$work/$host" -T "$work/$host/tmp" -B 4194304 >/dev/null 2>&1 &
    done
    sleep 1
    timed UFTP uftp -I eth0 -R -1 -B 4194304 -Y none "$work/file"
else
    echo "SKIPPED UFTP: uftp is not installed (apt-get install uftp)"
fi
