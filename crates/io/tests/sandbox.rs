//! Sandboxes that forbid the calls for many datagrams: traffic goes on by those for one.
#![cfg(target_os = "linux")]

mod common;
#[path = "common/forbid.rs"]
mod forbid;

use common::{bind, pattern, payloads, transmit};
use denrei_io::{RecvBuffers, SendOutcome, SocketConfig, UdpSocket};
use forbid::forbid;

/// Sends so many datagrams that a call would be asked for several at a time, and sees that all arrive.
fn exchange(sender: &mut UdpSocket, receiver: &mut UdpSocket) {
    const DATAGRAMS: usize = 40;
    const BYTES: usize = 1_000;
    let bytes = pattern(DATAGRAMS * BYTES, 3);
    let (train, buf) = transmit(receiver.local_addr(), &bytes, Some(BYTES));
    assert_eq!(sender.send(&train, &buf), SendOutcome::Sent);
    assert_eq!(payloads(receiver, DATAGRAMS).concat(), bytes);
}

#[test]
fn who_may_not_send_and_receive_many_at_once_goes_one_by_one() {
    for errno in [libc::ENOSYS, libc::EPERM, libc::EINVAL, libc::EIO] {
        let sandboxed = std::thread::spawn(move || {
            let without_trains = SocketConfig { gso: false, ..SocketConfig::default() };
            let mut sender = UdpSocket::bind("127.0.0.1:0".parse().unwrap(), &without_trains).unwrap();
            let mut receiver = bind("127.0.0.1:0");
            exchange(&mut sender, &mut receiver);
            forbid([libc::SYS_sendmmsg, libc::SYS_recvmmsg], errno).unwrap();
            exchange(&mut sender, &mut receiver);
            exchange(&mut sender, &mut receiver);
            for (socket, call) in [(sender, "sendmmsg"), (receiver, "recvmmsg")] {
                let said = socket.warnings().iter().any(|warning| warning.starts_with(call));
                assert!(said, "{call}: {:?}", socket.warnings());
            }
        });
        sandboxed.join().unwrap();
    }
}

/// What a host that is short of something says of a receive call passes; only a call that can never work ends the port.
#[test]
fn whoever_cannot_receive_for_a_moment_goes_on() {
    const DATAGRAMS: usize = 3;
    let cases = [(libc::EIO, true), (libc::ENOBUFS, true), (libc::ENOMEM, true), (libc::ENOSYS, false)];
    for (errno, passes) in cases {
        let (mut sender, mut receiver) = (bind("127.0.0.1:0"), bind("127.0.0.1:0"));
        let (train, buf) = transmit(receiver.local_addr(), &pattern(DATAGRAMS * 100, 3), Some(100));
        assert_eq!(sender.send(&train, &buf), SendOutcome::Sent);
        let moment = std::thread::spawn(move || {
            forbid([libc::SYS_recvmsg, libc::SYS_recvmmsg], errno).unwrap();
            let outcome = receiver.recv(&mut RecvBuffers::default(), |_, _| {});
            (receiver, outcome)
        });
        let (mut receiver, outcome) = moment.join().unwrap();
        assert_eq!(
            outcome.map_err(|error| error.raw_os_error()),
            if passes { Ok(0) } else { Err(Some(errno)) }
        );
        assert_eq!(receiver.counters().recv_errors > 0, passes);
        assert_eq!(payloads(&mut receiver, DATAGRAMS).len(), DATAGRAMS);
    }
}
