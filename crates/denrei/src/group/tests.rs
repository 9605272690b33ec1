use super::*;
use std::thread;

#[test]
fn who_begins_to_listen_hears_though_another_stops_just_then() {
    let node = Node::bind("127.0.0.1:0", crate::Config::default()).unwrap();
    let address = "239.255.71.93:7193".parse().unwrap();
    let listen = || {
        for _ in 0..3_000 {
            let listener = node.join_group(address).unwrap();
            let anew = node.shared().with_io(|io| io.socket.join_multicast(address));
            assert!(!listener.is_heard() || !anew.unwrap(), "nothing would have come");
        }
    };
    thread::scope(|scope| [(); 2].map(|()| scope.spawn(listen)).map(|thread| thread.join().unwrap()));
}
