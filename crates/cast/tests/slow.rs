//! A receiver whose reader is slow.

use denrei::{Config, Drive, Node};
use denrei_cast::{Destination, Members, ReceiveOptions, Receiver, SendOptions, Sender, Source};
use std::io::{Read, Write};
use std::net::{SocketAddr, UdpSocket};
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

fn node() -> Node {
    Node::bind("127.0.0.1:0", Config { drive: Drive::Thread, ..Config::default() }).unwrap()
}

/// Takes a twentieth of a second for whatever it is given.
struct Slow;

impl Write for Slow {
    fn write(&mut self, data: &[u8]) -> std::io::Result<usize> {
        std::thread::sleep(Duration::from_millis(50));
        Ok(data.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn one_whose_reader_is_slow_says_how_far_it_is_while_it_writes() {
    let port = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let group = SocketAddr::new([239, 255, 79, 3].into(), port.min(65_000));
    let receiver = Receiver::new(node(), Destination::Pipe(Box::new(Slow)), ReceiveOptions::new(group));
    let receiver = std::thread::spawn(move || {
        let (mut longest, mut last) = (Duration::ZERO, Instant::now());
        let received = receiver.run(|_| {
            longest = longest.max(last.elapsed());
            last = Instant::now();
            ControlFlow::Continue(())
        });
        (received.unwrap().new_bytes, longest)
    });
    // 76 pieces, written in 3.8 s, and most of them here within a moment.
    let source = Source::stream("s", std::io::repeat(7).take(20_000_000), 64 << 20).unwrap();
    let sender = Sender::new(node(), source, SendOptions::new(group, Members::AtLeast(1))).unwrap();
    assert!(sender.run(|_| ControlFlow::Continue(())).unwrap().is_complete());
    let (bytes, longest) = receiver.join().unwrap();
    assert_eq!(bytes, 20_000_000);
    assert!(longest < Duration::from_secs(2), "nothing was told for {longest:?}");
}
