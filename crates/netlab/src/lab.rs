//! The lab: hosts, their links, and what can be done to them.
//!
//! Inputs → outputs: calls → `ip`, `tc` and `nft` commands inside the lab's own namespaces.
//! Topology: one namespace per host with `eth0`, a veth pair to `port<i>` of a bridge that lives in
//! a namespace of its own. Host i has 10.77.x.y/16 and fd77:77::n/64, counted from 1.

use crate::LabError;
use crate::cleanup;
use crate::tool::{feed, run};
use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Most hosts of one lab: a Linux bridge has 1,023 ports; beyond a few hundred namespaces a
/// machine is busy with their timers alone.
pub const MAX_HOSTS: usize = 512;

/// What a token bucket lets through at once, as time at its rate. Long enough for a kernel timer
/// to keep up, short enough that the bucket is the bottleneck and not a loophole.
const BUCKET_MICROS: u64 = 100;

/// Least size of a token bucket: it has to hold one frame of the largest Ethernet MTU, bytes.
const MIN_BUCKET_BYTES: u64 = 9_216;

/// Of a bucket, the part that a train of segments (TSO, UDP GSO) may take and still go as one. A train waits until
/// the bucket holds all of it; what the timer is late beyond a full bucket is lost for good: with trains of eight
/// Ethernet frames, 12,112 bytes to a bucket of 12,500, an eighth of 1 Gbit/s.
const WHOLE_SHARE: u64 = 2;

/// A bucket of so many bytes holds the largest train, 67 kB, and what comes while the timer is late.
const ROOMY_BUCKET_BYTES: u64 = 100_000;

/// `tbf` cuts what the bucket of its peak rate does not hold, so there is one that never has to be waited for,
/// Mbit/s; and what it is rounded to multiples of, up or down: `tc` counts in 64 ns.
const PEAK_MBIT: u64 = 200_000;
const PEAK_TICK_BYTES: u64 = 1_600;

/// Octets of an Ethernet frame besides its packet, with a VLAN's tag.
const FRAME_BYTES: u64 = 18;

/// Queue before a slow link on the host's own side: a network card's usual thousand frames, bytes.
const HOST_QUEUE_BYTES: u64 = 1_500_000;

/// Longest wait for the bridge to hand on what comes by a port. The kernel tells it of a carrier when it has told
/// nobody of another for a second.
const PORT_LIMIT: Duration = Duration::from_secs(5);

/// How the links of a lab are built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LabConfig {
    /// Largest IP packet of every link, bytes; 1280 ..= 9000.
    pub mtu: u32,
    /// Whether senders may hand packets of several segments (TSO, UDP GSO) to a link as one. As on
    /// a real network card the kernel then works less; but loss takes all segments at once. Without
    /// it every packet travels alone, as on the cable.
    pub offload: bool,
}

impl Default for LabConfig {
    fn default() -> Self {
        Self { mtu: 1500, offload: true }
    }
}

/// Hosts on a bridge. Dropping it removes everything, and kills the processes started inside.
#[derive(Debug)]
pub struct Lab {
    bridge: String,
    hosts: Vec<String>,
    ipv6: bool,
    config: LabConfig,
}

impl Lab {
    /// Builds `hosts` hosts (1 ..= [`MAX_HOSTS`]) on one bridge, with an MTU of 1500.
    ///
    /// # Errors
    /// Without root or `ip`, or if the kernel refuses namespaces. Nothing remains then.
    pub fn bridge(hosts: usize) -> Result<Self, LabError> {
        Self::with_config(hosts, LabConfig::default())
    }

    /// Builds `hosts` hosts (1 ..= [`MAX_HOSTS`]) on one bridge.
    ///
    /// # Errors
    /// As [`bridge`](Self::bridge), and for an impossible setting.
    pub fn with_config(hosts: usize, config: LabConfig) -> Result<Self, LabError> {
        in_range("the number of hosts", hosts as u64, 1..=MAX_HOSTS as u64, "between 1 and 512")?;
        in_range("the MTU", config.mtu.into(), 1280..=9000, "between 1280 and 9000")?;
        if !nix::unistd::geteuid().is_root() {
            return Err(LabError::NotRoot);
        }
        cleanup::sweep()?;
        cleanup::watch_signals()?;
        static LABS: AtomicUsize = AtomicUsize::new(0);
        let number = LABS.fetch_add(1, Ordering::Relaxed);
        let lab = Self {
            bridge: cleanup::namespace_name(number, "br"),
            hosts: (0..hosts).map(|host| cleanup::namespace_name(number, &host.to_string())).collect(),
            ipv6: Path::new("/proc/net/if_inet6").exists(),
            config,
        };
        // From here on an error drops `lab`, which removes what has been built.
        lab.build()?;
        Ok(lab)
    }

    /// How many hosts there are.
    pub fn len(&self) -> usize {
        self.hosts.len()
    }

    /// Whether there is no host: never.
    pub fn is_empty(&self) -> bool {
        self.hosts.is_empty()
    }

    /// Host `index`, counted from 0.
    ///
    /// # Panics
    /// If there is no such host.
    pub fn host(&self, index: usize) -> Host<'_> {
        assert!(index < self.len(), "host {index} of {}", self.len());
        Host { lab: self, index }
    }

    /// All hosts.
    pub fn hosts(&self) -> impl Iterator<Item = Host<'_>> {
        (0..self.len()).map(|index| self.host(index))
    }

    /// Pulls the cable of host `index`: both ends lose the carrier, addresses remain.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn link_down(&self, index: usize) -> Result<(), LabError> {
        self.set_port(index, "down")
    }

    /// Puts the cable of host `index` back, and waits until the bridge hands on what comes by it.
    ///
    /// # Errors
    /// If the kernel refuses, or the bridge does not within five seconds.
    pub fn link_up(&self, index: usize) -> Result<(), LabError> {
        self.set_port(index, "up")?;
        self.wait_for_ports(&["dev", &format!("port{index}")], 1)
    }

    /// Takes host `index`'s interface away with all that was set there, and gives it a new one with the same addresses:
    /// another index and MAC address, no group joined.
    ///
    /// # Errors
    /// If the kernel refuses, or the bridge does not hand on what comes by it within five seconds.
    pub fn replace_interface(&self, index: usize) -> Result<(), LabError> {
        let (host, port) = (self.host(index), format!("port{index}"));
        run("ip", &["-n", &self.bridge, "link", "del", &port])?;
        feed("ip", &["-n", &self.bridge, "-batch", "-"], &host.cable_script(self.config))?;
        feed("ip", &["-n", host.namespace(), "-batch", "-"], &host.script(self.config))?;
        self.wait_for_ports(&["dev", &port], 1)
    }

    /// Makes host `index` lose this share of the IP packets it receives, at random; 0 ends it.
    ///
    /// # Errors
    /// Without `nft`, or for more than 1000 ‰.
    pub fn loss(&self, index: usize, permille: u32) -> Result<(), LabError> {
        in_range("the loss in permille", permille.into(), 0..=1000, "between 0 and 1000")?;
        let host = self.host(index);
        let rule = match permille {
            0 => String::new(),
            1000 => "iifname eth0 drop".to_owned(),
            _ => format!("iifname eth0 numgen random mod 1000 < {permille} drop"),
        };
        // `add` before `delete`: the latter fails where there is no such table yet.
        let script = format!(
            "add table inet lab\ndelete table inet lab\ntable inet lab {{\n chain loss {{\n  \
             type filter hook input priority filter; policy accept;\n  {rule}\n }}\n}}\n"
        );
        let prefix = ["netns", "exec", host.namespace(), "nft", "-f", "-"];
        // Asked for by itself first: `ip netns exec` would hide that it is not installed.
        run("nft", &["--version"])?;
        feed("ip", &prefix, &script).map(drop)
    }

    /// Keeps two hosts from reaching each other, as if they were in different networks, for good.
    ///
    /// # Errors
    /// Without `nft`.
    pub fn keep_apart(&self, a: usize, b: usize) -> Result<(), LabError> {
        // Asked for by itself first: `ip netns exec` would hide that it is not installed.
        run("nft", &["--version"])?;
        for (at, other) in [(a, b), (b, a)] {
            let script = format!(
                "table ip apart {{\n chain in {{\n  type filter hook input priority filter; policy accept;\n  \
                 ip saddr {} drop\n }}\n}}\n",
                self.host(other).ipv4()
            );
            feed("ip", &["netns", "exec", self.host(at).namespace(), "nft", "-f", "-"], &script)?;
        }
        Ok(())
    }

    /// Gives host `index` a link of `mbit` Mbit/s in both directions, with a switch queue of
    /// `queue_bytes` towards it. What overflows the queue is lost.
    ///
    /// # Errors
    /// Without `tc`, or for a rate or queue of 0.
    pub fn rate(&self, index: usize, mbit: u64, queue_bytes: u64) -> Result<(), LabError> {
        self.rate_towards(index, mbit, queue_bytes)?;
        self.shape(self.host(index).namespace(), "eth0", mbit, queue_bytes.max(HOST_QUEUE_BYTES))?;
        keep_order(&self.bridge, &format!("port{index}"))
    }

    /// Gives the switch a link of `mbit` Mbit/s towards host `index`, with a queue of `queue_bytes`;
    /// the other direction stays as it is. What overflows the queue is lost.
    ///
    /// # Errors
    /// As [`rate`](Self::rate).
    pub fn rate_towards(&self, index: usize, mbit: u64, queue_bytes: u64) -> Result<(), LabError> {
        in_range("the link rate in Mbit/s", mbit, 1..=400_000, "between 1 and 400000")?;
        in_range("the queue in bytes", queue_bytes, 1..=1 << 32, "between 1 and 4294967296")?;
        self.shape(&self.bridge, &format!("port{index}"), mbit, queue_bytes)?;
        keep_order(self.host(index).namespace(), "eth0")
    }

    /// Whether the bridge carries multicast to its ports. Snooping has to be off: a bridge that knows who
    /// listens carries it to those all the same.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn multicast(&self, carried: bool) -> Result<(), LabError> {
        let flood = if carried { "on" } else { "off" };
        (0..self.len()).try_for_each(|index| {
            let port = format!("port{index}");
            let set =
                ["-n", &self.bridge, "link", "set", &port, "type", "bridge_slave", "mcast_flood", flood];
            run("ip", &set).map(drop)
        })
    }

    /// Makes the bridge carry multicast only to ports behind which somebody has joined the group (IGMP,
    /// MLD), and ask for that itself; or to all.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn snooping(&self, on: bool) -> Result<(), LabError> {
        let value = if on { "1" } else { "0" };
        let place = ["-n", &self.bridge, "link", "set", "br0", "type", "bridge"];
        let wish = ["mcast_snooping", value, "mcast_querier", value];
        run("ip", &[&place[..], &wish[..]].concat()).map(drop)
    }

    fn shape(&self, namespace: &str, device: &str, mbit: u64, queue_bytes: u64) -> Result<(), LabError> {
        let bucket = (mbit * BUCKET_MICROS / 8).max(MIN_BUCKET_BYTES);
        let whole = (bucket / WHOLE_SHARE).max(u64::from(self.config.mtu) + FRAME_BYTES);
        let mut shape = format!("tbf rate {mbit}mbit burst {bucket} limit {queue_bytes}");
        if bucket < ROOMY_BUCKET_BYTES {
            let _ = write!(shape, " peakrate {PEAK_MBIT}mbit mtu {}", whole + PEAK_TICK_BYTES);
        }
        let place = ["-n", namespace, "qdisc", "replace", "dev", device, "root"];
        run("tc", &place.into_iter().chain(shape.split(' ')).collect::<Vec<_>>()).map(drop)
    }

    fn set_port(&self, index: usize, state: &str) -> Result<(), LabError> {
        assert!(index < self.len(), "host {index} of {}", self.len());
        run("ip", &["-n", &self.bridge, "link", "set", &format!("port{index}"), state]).map(drop)
    }

    /// Waits until `count` of the ports that `ip link show` selects forward.
    fn wait_for_ports(&self, selection: &[&str], count: usize) -> Result<(), LabError> {
        let show = ["-n", &self.bridge, "-o", "-d", "link", "show"];
        let arguments = [&show[..], selection].concat();
        let end = Instant::now() + PORT_LIMIT;
        loop {
            let ports = run("ip", &arguments)?;
            let forwarding = ports.matches("bridge_slave state forwarding").count();
            if forwarding == count {
                return Ok(());
            }
            if Instant::now() > end {
                let stderr = format!("{forwarding} of {count} ports forward after {PORT_LIMIT:?}");
                return Err(LabError::Refused { command: format!("ip {}", arguments.join(" ")), stderr });
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn build(&self) -> Result<(), LabError> {
        for namespace in self.namespaces() {
            cleanup::register(namespace);
            run("ip", &["netns", "add", namespace])?;
        }
        feed("ip", &["-n", &self.bridge, "-batch", "-"], &self.bridge_script())?;
        for host in self.hosts() {
            feed("ip", &["-n", host.namespace(), "-batch", "-"], &host.script(self.config))?;
        }
        self.wait_for_ports(&["master", "br0"], self.len())
    }

    /// Multicast snooping is off: the bridge floods groups like a plain switch, at once, where a
    /// snooping one would first wait for a querier.
    fn bridge_script(&self) -> String {
        let mut script = String::from("link set lo up\nlink add br0 type bridge mcast_snooping 0\n");
        self.hosts().for_each(|host| script.push_str(&host.cable_script(self.config)));
        let _ = writeln!(script, "link set br0 mtu {} up", self.config.mtu);
        script
    }

    fn namespaces(&self) -> impl Iterator<Item = &str> {
        std::iter::once(&self.bridge).chain(&self.hosts).map(String::as_str)
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        cleanup::yield_to_signal();
        let namespaces: Vec<String> = self.namespaces().map(str::to_owned).collect();
        cleanup::remove_all(&namespaces);
    }
}

/// One host of a [`Lab`].
#[derive(Clone, Copy, Debug)]
pub struct Host<'a> {
    lab: &'a Lab,
    index: usize,
}

impl<'a> Host<'a> {
    /// Its number, from 0.
    pub fn index(&self) -> usize {
        self.index
    }

    /// The name of its namespace, for `ip netns exec`.
    pub fn namespace(&self) -> &'a str {
        &self.lab.hosts[self.index]
    }

    /// Its IPv4 address, in 10.77.0.0/16.
    pub fn ipv4(&self) -> Ipv4Addr {
        let number = self.index as u16 + 1;
        Ipv4Addr::new(10, 77, (number / 250) as u8, (number % 250) as u8 + 1)
    }

    /// Its IPv6 address, in fd77:77::/64; `None` where the kernel has no IPv6.
    pub fn ipv6(&self) -> Option<Ipv6Addr> {
        let address = Ipv6Addr::new(0xfd77, 0x77, 0, 0, 0, 0, 0, self.index as u16 + 1);
        self.lab.ipv6.then_some(address)
    }

    /// Its IPv4 address, as an address of either family.
    pub fn ip(&self) -> IpAddr {
        self.ipv4().into()
    }

    /// A command that runs `program` on this host. The process has the pid that `spawn` reports.
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        cleanup::yield_to_signal();
        let mut command = Command::new("ip");
        command.args(["netns", "exec", self.namespace()]).arg(program);
        command
    }

    /// The link between it and the bridge.
    fn cable_script(&self, config: LabConfig) -> String {
        let port = format!("port{}", self.index);
        let mut script = format!("link add {port} type veth peer name eth0 netns {}\n", self.namespace());
        let _ = writeln!(script, "link set {port} mtu {} master br0", config.mtu);
        script.push_str(&offload_line(&port, config));
        let _ = writeln!(script, "link set {port} up");
        script
    }

    fn script(&self, config: LabConfig) -> String {
        let mut script = format!("link set lo up\nlink set eth0 mtu {}\n", config.mtu);
        script.push_str(&offload_line("eth0", config));
        let _ = writeln!(script, "addr add {}/16 broadcast + dev eth0", self.ipv4());
        if let Some(address) = self.ipv6() {
            // Nobody else can have the address: no need to wait for duplicate detection.
            let _ = writeln!(script, "addr add {address}/64 dev eth0 nodad");
        }
        script.push_str("link set eth0 up multicast on\nroute add 224.0.0.0/4 dev eth0\n");
        script
    }
}

/// Lets what comes by `device` wait for one core per flow (receive packet steering). A shaped link is emptied by
/// whatever core its timer fires on, and each core hands on what it took by itself: packets would overtake each other,
/// which they do not on a cable.
fn keep_order(namespace: &str, device: &str) -> Result<(), LabError> {
    // 32 cores: the first word of the mask.
    let cores = std::thread::available_parallelism().map_or(1, usize::from).min(32);
    let file = format!("/sys/class/net/{device}/queues/rx-0/rps_cpus");
    let set = format!("echo {:x} > {file}", (1_u64 << cores) - 1);
    run("ip", &["netns", "exec", namespace, "sh", "-c", &set]).map(drop)
}

fn offload_line(device: &str, config: LabConfig) -> String {
    // A limit of one segment makes the kernel split packets before they enter the link.
    if config.offload { String::new() } else { format!("link set {device} gso_max_segs 1\n") }
}

fn in_range(
    setting: &'static str,
    value: u64,
    range: std::ops::RangeInclusive<u64>,
    expected: &'static str,
) -> Result<(), LabError> {
    if range.contains(&value) { Ok(()) } else { Err(LabError::BadSetting { setting, value, expected }) }
}
