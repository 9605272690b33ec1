//! The yardstick: one TCP connection per receiver, NODELAY, a message to one after the other; every
//! receiver answers with one byte when it has the whole message.

use super::protocol::{Answer, Job, LIMIT, MemberReport, Order, SenderReport, WARMUP, Wire, start, stop};
use crate::bench::clock::{Meter, now_ns, tcp_counts};
use crate::bench::control::PacketCounts;
use crate::orders::{Orders, answer};
use anyhow::{Context, Result};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};

/// Bytes of IPv4 and TCP headers, with timestamps.
const HEADER_BYTES: u64 = 52;
/// Payload of a full segment.
const SEGMENT_BYTES: u64 = 1448;

/// One side.
pub fn obey(orders: &Orders<Order>, job: &Job) -> Result<()> {
    let listener =
        TcpListener::bind((job.bind, 0)).with_context(|| format!("cannot listen on {}", job.bind))?;
    answer(&Answer::Ready(listener.local_addr()?))?;
    let addresses = start(orders)?;
    match job.index {
        0 => send_all(job, &addresses[1..])?,
        _ => receive_all(job, &listener)?,
    }
    stop(orders)
}

fn send_all(job: &Job, members: &[SocketAddr]) -> Result<()> {
    let mut streams = members.iter().map(connect).collect::<Result<Vec<TcpStream>>>()?;
    let message = vec![0x5a; job.size as usize];
    let mut report = SenderReport::default();
    for _ in 0..WARMUP {
        exchange(&mut streams, &message)?;
    }
    let before = tcp_counts();
    let meter = Meter::start();
    let mut calls = 0;
    for _ in 0..job.iters {
        let began = now_ns();
        for stream in &mut streams {
            calls += write(stream, &message)?;
        }
        report.began.push(began);
        report.sent.push(now_ns() - began);
        await_answers(&mut streams)?;
        report.done.push(now_ns() - began);
    }
    report.cpu_ns = meter.cpu_ns();
    report.wire = wire(job, members, calls, tcp_counts().since(before));
    answer(&Answer::Sent(report))
}

/// What the sender has put onto the network, of what was counted on its host.
fn wire(job: &Job, members: &[SocketAddr], calls: u64, counted: PacketCounts) -> Wire {
    let (messages, payload) = (job.iters * members.len() as u64, job.size);
    // Members on the same host have it count their answers, too.
    let beside = members.iter().filter(|member| member.ip() == job.bind).count() as u64;
    // The kernel counts segments; how many of them are bare acknowledgements it does not say.
    let segments = messages * payload.div_ceil(SEGMENT_BYTES);
    let packets = counted.sent.saturating_sub(job.iters * beside).max(segments);
    let bytes = messages * payload + packets * HEADER_BYTES;
    Wire { calls, packets, bytes, received: 0, repairs: counted.retransmitted, needed: 0 }
}

fn connect(addr: &SocketAddr) -> Result<TcpStream> {
    let stream =
        TcpStream::connect_timeout(addr, LIMIT).with_context(|| format!("cannot connect to {addr}"))?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(LIMIT))?;
    Ok(stream)
}

fn exchange(streams: &mut [TcpStream], message: &[u8]) -> Result<()> {
    for stream in &mut *streams {
        write(stream, message)?;
    }
    await_answers(streams)
}

/// Writes all; how many calls it took.
fn write(stream: &mut TcpStream, message: &[u8]) -> Result<u64> {
    let (mut rest, mut calls) = (message, 0);
    while !rest.is_empty() {
        let written = stream.write(rest).context("cannot send")?;
        rest = &rest[written..];
        calls += 1;
    }
    Ok(calls)
}

fn await_answers(streams: &mut [TcpStream]) -> Result<()> {
    for stream in streams {
        stream.read_exact(&mut [0]).context("a receiver does not answer")?;
    }
    Ok(())
}

fn receive_all(job: &Job, listener: &TcpListener) -> Result<()> {
    let mut stream = crate::bench::transport::accept_tcp(listener)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(LIMIT))?;
    let mut report = MemberReport::default();
    let mut meter = Meter::start();
    // Memory that has been used before, as the group's member gets it.
    let mut message = Vec::with_capacity(job.size as usize);
    for number in 0..WARMUP + job.iters {
        if number == WARMUP {
            meter = Meter::start();
        }
        message.clear();
        (&mut stream).take(job.size).read_to_end(&mut message).context("cannot receive")?;
        anyhow::ensure!(message.len() as u64 == job.size, "the connection ended within a message");
        if number >= WARMUP {
            report.arrived.push(now_ns());
        }
        stream.write_all(&[1]).context("cannot answer")?;
    }
    report.cpu_ns = meter.cpu_ns();
    answer(&Answer::Received(report))
}

#[cfg(test)]
mod tests {
    use super::super::{Backend, Way};
    use super::*;

    #[test]
    fn what_members_answer_is_not_the_senders() {
        let bind = [10, 0, 0, 1].into();
        let group = ([239, 255, 90, 1], 7401).into();
        let way = Way { backend: Backend::Tcp, sealed: false };
        let job = Job { way, size: 16, iters: 50, index: 0, bind, group };
        let at = |host: u8| SocketAddr::from(([10, 0, 0, host], 9));
        let counted = |sent| PacketCounts { sent, ..PacketCounts::default() };
        for (members, sent) in [([at(1), at(1)], 200), ([at(1), at(2)], 150), ([at(2), at(3)], 100)] {
            let wire = wire(&job, &members, 100, counted(sent));
            assert_eq!((wire.packets, wire.bytes), (100, 100 * (16 + 52)), "{members:?}");
        }
    }
}
