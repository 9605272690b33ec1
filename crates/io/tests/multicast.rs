//! Groups of the network, on loopback.

use denrei_io::{RecvBuffers, SocketConfig, UdpSocket, Waiter};
use denrei_wire::{Ecn, Transmit, TransmitBuf};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

fn socket(addr: &str) -> UdpSocket {
    UdpSocket::bind(addr.parse().unwrap(), &SocketConfig::default()).unwrap()
}

/// What arrives until `count` datagrams are there, or nothing comes any more.
fn receive(socket: &mut UdpSocket, count: usize) -> Vec<Vec<u8>> {
    let waiter = Waiter::new().unwrap();
    let mut buffers = RecvBuffers::default();
    let mut got = Vec::new();
    let end = Instant::now() + Duration::from_secs(2);
    while got.len() < count && Instant::now() < end {
        let _ = waiter.wait(socket.raw_fds(), None, Some(Duration::from_millis(50)));
        socket.recv_all(&mut buffers, |_, datagram| got.push(datagram.to_vec())).unwrap();
    }
    got
}

fn send(socket: &mut UdpSocket, to: SocketAddr, count: usize, bytes: usize) {
    let mut buf = TransmitBuf::new(64);
    for datagram in 0..count {
        buf.put(&vec![datagram as u8; bytes]);
    }
    let segment_size = (count > 1).then_some(bytes);
    let transmit = Transmit { to, from: None, len: count * bytes, segment_size, ecn: Ecn::Ect0 };
    assert_eq!(socket.send(&transmit, &buf), denrei_io::SendOutcome::Sent);
}

fn a_train_reaches_all_who_listen(host: &str, group: &str) {
    let group: SocketAddr = group.parse().unwrap();
    let mut speaker = socket(host);
    if let Err(error) = speaker.enable_multicast(group, None) {
        eprintln!("SKIPPED multicast {group}: {error}");
        return;
    }
    let mut listeners: Vec<UdpSocket> = (0..3).map(|_| socket(host)).collect();
    for listener in &mut listeners[..2] {
        match listener.join_multicast(group) {
            Ok(joined) => assert!(joined),
            Err(error) => return eprintln!("SKIPPED multicast {group}: {error}"),
        }
        assert!(!listener.join_multicast(group).unwrap(), "a second time is nothing new");
    }
    send(&mut speaker, group, 20, 1000);
    assert_eq!(speaker.counters().send_calls, 1, "one call, however many listen");
    for listener in &mut listeners[..2] {
        let got = receive(listener, 20);
        assert_eq!(got.len(), 20);
        assert!(got.iter().enumerate().all(|(at, datagram)| *datagram == [at as u8; 1000]));
    }
    let own = listeners[0].local_addr();
    send(&mut speaker, own, 1, 10);
    assert_eq!(receive(&mut listeners[0], 1).len(), 1, "the port's own address still works");
    listeners[0].leave_multicast(group);
    send(&mut speaker, group, 1, 10);
    assert_eq!(receive(&mut listeners[1], 1).len(), 1);
    for listener in [0, 2] {
        let mut buffers = RecvBuffers::default();
        let heard = listeners[listener].recv_all(&mut buffers, |_, _| ()).unwrap();
        assert_eq!(heard, 0, "who does not listen hears nothing");
    }
}

#[test]
fn ipv4_groups() {
    a_train_reaches_all_who_listen("127.0.0.1:0", &format!("239.255.77.1:{}", free_port()));
}

#[test]
fn a_group_may_share_the_port_of_a_socket_that_is_bound_to_all_addresses() {
    let mut member = socket("0.0.0.0:0");
    let group = SocketAddr::from(([239, 255, 77, 2], member.local_addr().port()));
    let mut speaker = socket("127.0.0.1:0");
    assert!(member.join_multicast(group).expect("with or without a route for multicast"));
    send(&mut speaker, SocketAddr::from(([127, 0, 0, 1], group.port())), 1, 10);
    assert_eq!(receive(&mut member, 1).len(), 1);
    let again = UdpSocket::bind(member.local_addr(), &SocketConfig::default());
    assert!(again.is_err(), "nobody else slips onto the port");
}

#[test]
fn a_port_on_all_addresses_hears_groups_of_loopback_as_well() {
    let (mut member, mut speaker) = (socket("0.0.0.0:0"), socket("127.0.0.1:0"));
    let group: SocketAddr = format!("239.255.77.5:{}", free_port()).parse().unwrap();
    speaker.enable_multicast(group, None).expect("loopback speaks to groups");
    assert!(member.join_multicast(group).expect("with or without a route for multicast"));
    send(&mut speaker, group, 3, 100);
    assert_eq!(receive(&mut member, 3).len(), 3);
}

#[test]
fn a_port_on_all_addresses_may_choose_the_interface_of_its_groups() {
    let config =
        SocketConfig { multicast_interface: Some("127.0.0.1".parse().unwrap()), ..SocketConfig::default() };
    let open = || UdpSocket::bind("0.0.0.0:0".parse().unwrap(), &config).unwrap();
    let (mut speaker, mut listener) = (open(), open());
    let group: SocketAddr = format!("239.255.77.3:{}", free_port()).parse().unwrap();
    speaker.enable_multicast(group, None).expect("loopback speaks to groups if it is told to");
    assert!(listener.join_multicast(group).expect("loopback hears groups if it is told to"));
    send(&mut speaker, group, 3, 100);
    assert_eq!(receive(&mut listener, 3).len(), 3);
}

#[test]
fn ipv6_groups() {
    a_train_reaches_all_who_listen("[::1]:0", &format!("[ff15::7777]:{}", free_port()));
}

#[cfg(target_os = "linux")]
#[test]
fn the_interface_says_how_large_datagrams_to_a_group_may_be() {
    let speaker = socket("127.0.0.1:0");
    let bytes = speaker.multicast_datagram_bytes("239.255.77.4:7000".parse().unwrap(), None);
    let mtu = std::fs::read_to_string("/sys/class/net/lo/mtu").unwrap();
    assert_eq!(bytes, Some((mtu.trim().parse::<u32>().unwrap() - 28).min(65_507) as u16));
}

#[test]
fn a_group_of_the_other_family_is_refused_with_advice() {
    let mut speaker = socket("127.0.0.1:0");
    let error = speaker.enable_multicast("[ff11::1]:7000".parse().unwrap(), None).unwrap_err();
    assert!(error.to_string().contains("bind to an address of its family"), "{error}");
    assert!(speaker.join_multicast("127.0.0.1:7000".parse().unwrap()).is_err());
}

#[test]
fn a_group_of_one_link_without_its_interface_is_refused_with_advice() {
    for group in ["[ff02::1]:7000", "[ff11::1]:7000"] {
        let group = group.parse().unwrap();
        let mut socket = socket("[::1]:0");
        for error in
            [socket.enable_multicast(group, None).unwrap_err(), socket.join_multicast(group).unwrap_err()]
        {
            assert!(error.to_string().contains("of one link: give the index of the interface"), "{error}");
        }
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_group_of_one_link_is_that_of_the_ports_address_or_of_the_way_to_somebody() {
    let (group, there): (SocketAddr, SocketAddr) =
        ("[ff02::7]:7000".parse().unwrap(), "[::1]:9".parse().unwrap());
    let scope = |socket: &UdpSocket, other| match socket.on_its_link(group, other) {
        SocketAddr::V6(v6) => v6.scope_id(),
        other => panic!("{other}"),
    };
    // Loopback's.
    assert_eq!(scope(&socket("[::1]:0"), None), 1);
    let anywhere = socket("[::]:0");
    // Or of the route that groups of a site have, if there is one.
    let of_route = denrei_io::source_towards("[ff05::7]:7000".parse().unwrap());
    let of_route = of_route.map_or(0, |own| if let SocketAddr::V6(own) = own { own.scope_id() } else { 0 });
    assert_eq!((scope(&anywhere, None), scope(&anywhere, Some(there))), (of_route, 1));
    assert_eq!(
        anywhere.on_its_link("[ff05::7]:7000".parse().unwrap(), Some(there)).to_string(),
        "[ff05::7]:7000"
    );
}

#[test]
fn a_port_on_all_addresses_speaks_to_a_group_from_the_address_that_reaches_its_members() {
    let group: SocketAddr = format!("239.255.77.6:{}", free_port()).parse().unwrap();
    let (mut speaker, mut listener) = (socket("0.0.0.0:0"), socket("127.0.0.1:0"));
    let source = speaker.group_source(group, listener.local_addr());
    assert_eq!(source, Some("127.0.0.1".parse().unwrap()));
    assert_eq!(listener.group_source(group, speaker.local_addr()), None, "it has one address");
    assert_eq!(speaker.group_source(group, "[::1]:9".parse().unwrap()), None, "of the other family");
    speaker.enable_multicast(group, source).expect("with or without a route for multicast");
    assert!(listener.join_multicast(group).unwrap());
    let mut buf = TransmitBuf::new(64);
    buf.put(&[7; 100]);
    let transmit = Transmit { to: group, from: source, len: 100, segment_size: None, ecn: Ecn::Ect0 };
    assert_eq!(speaker.send(&transmit, &buf), denrei_io::SendOutcome::Sent);
    assert_eq!(receive(&mut listener, 1).len(), 1);
}

#[test]
fn a_group_without_a_route_is_refused_with_advice() {
    let Err(error) = socket("[::1]:0").enable_multicast("[ff15::1]:7000".parse().unwrap(), None) else {
        return eprintln!("SKIPPED: this host routes groups of IPv6 by loopback");
    };
    assert_eq!(error.kind(), std::io::ErrorKind::NetworkUnreachable);
    assert!(error.to_string().contains("use a group of IPv4"), "{error}");
}

fn free_port() -> u16 {
    std::net::UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}
