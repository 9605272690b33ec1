//! A path between two Nodes of one host that can be cut.

use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// Longer than any test takes.
const LIFE: Duration = Duration::from_secs(60);

/// Carries what one Node sends to `addr` to another, and back what that answers.
pub struct Cable {
    /// Where the other Node seems to be.
    pub addr: SocketAddr,
    /// What goes to the other Node is lost.
    pub out_is_cut: Arc<AtomicBool>,
    /// What comes back is lost.
    pub back_is_cut: Arc<AtomicBool>,
}

impl Cable {
    /// To the Node at this address.
    pub fn to(node: SocketAddr) -> Self {
        let socket = || UdpSocket::bind("127.0.0.1:0").unwrap();
        let (near, far) = (socket(), socket());
        far.connect(node).unwrap();
        let cable = Self {
            addr: near.local_addr().unwrap(),
            out_is_cut: Arc::default(),
            back_is_cut: Arc::default(),
        };
        let first = Arc::new(OnceLock::new());
        for (from, to, is_cut) in [(&near, &far, &cable.out_is_cut), (&far, &near, &cable.back_is_cut)] {
            let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
            let (first, is_cut) = (first.clone(), is_cut.clone());
            let goes_out = from.local_addr().unwrap() == cable.addr;
            from.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
            std::thread::spawn(move || carry(&from, &to, goes_out, &first, &is_cut));
        }
        cable
    }
}

fn carry(
    from: &UdpSocket,
    to: &UdpSocket,
    goes_out: bool,
    first: &OnceLock<SocketAddr>,
    is_cut: &AtomicBool,
) {
    let until = Instant::now() + LIFE;
    let mut datagram = vec![0; 65_536];
    while Instant::now() < until {
        let Ok((len, source)) = from.recv_from(&mut datagram) else { continue };
        if goes_out {
            first.get_or_init(|| source);
        }
        if is_cut.load(SeqCst) {
            continue;
        }
        // Nobody may be there any more.
        let _ = match first.get() {
            Some(first) if !goes_out => to.send_to(&datagram[..len], first),
            _ => to.send(&datagram[..len]),
        };
    }
}
