//! One Node opens a group of three and gives an order to all of them at once.

use denrei::{Config, Drive, GroupPolicy, Node};
use std::net::SocketAddr;
use std::time::Duration;

pub(crate) fn main() -> Result<(), Box<dyn std::error::Error>> {
    let open = || Node::bind("127.0.0.1:0", Config { drive: Drive::Thread, ..Config::default() });
    let address: SocketAddr = "239.255.78.62:7411".parse()?;

    // Members join the address first, then the opener names them.
    let nodes = [open()?, open()?, open()?];
    let listeners = nodes.iter().map(|node| node.join_group(address)).collect::<Result<Vec<_>, _>>()?;
    let members: Vec<SocketAddr> = nodes.iter().map(Node::local_addr).collect();

    let opener = open()?;
    let patience = Duration::from_secs(5);
    let group = opener.open_group(address, &members, GroupPolicy::Eject { after: patience })?;
    group.send("march")?;

    for listener in &listeners {
        let membership = listener.accept(patience).ok_or("nobody opened a group")?;
        let order = membership.recv()?;
        println!("member {} was told: {}", membership.member(), String::from_utf8_lossy(&order.data));
    }
    println!("all have it: {}", group.flush(patience));
    Ok(())
}
