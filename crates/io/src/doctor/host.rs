//! What the system says about itself.
//!
//! Inputs → outputs: `/proc` and `/sys` of Linux, its interfaces → [`Check`]s. Elsewhere only what the standard
//! library knows. Parsing is apart from reading, so that it can be tested anywhere.

use super::Check;
use std::fs;
use std::io;
use std::path::Path;
use std::time::Instant;

/// Least MTU: IPv6's; below it every session has to find out first that its datagrams are too large.
const LEAST_MTU_BYTES: u64 = 1_280;
/// From here on an Ethernet carries jumbo frames.
const JUMBO_MTU_BYTES: u64 = 9_000;
/// A clock read is part of every exchange: more than this shows in the round trip.
const DEAR_CLOCK_NANOS: u128 = 200;
/// Readings to average over: below a millisecond even with a slow clock.
const CLOCK_READS: u32 = 1_000;
/// A node needs about twenty descriptors; the application wants some too.
const FEW_FILES: u64 = 256;
/// Share of datagrams lost to full receive buffers from which on it is worth a complaint.
const LOSS_RATIO: f64 = 1e-4;

pub(super) fn checks() -> Vec<Check> {
    let mut checks = vec![clock_cost(), cpus()];
    if cfg!(target_os = "linux") {
        checks.extend([interfaces(), clock_source(), busy_poll()]);
        let limits = fs::read_to_string("/proc/self/limits").unwrap_or_default();
        checks.extend([open_files(&limits), locked_memory(&limits)]);
        checks.push(udp_errors(&fs::read_to_string("/proc/net/snmp").unwrap_or_default()));
    }
    checks
}

fn clock_cost() -> Check {
    let start = Instant::now();
    let mut last = start;
    for _ in 0..CLOCK_READS {
        last = Instant::now();
    }
    let nanos = last.duration_since(start).as_nanos() / u128::from(CLOCK_READS);
    let found = format!("a reading costs {nanos} ns");
    if nanos <= DEAR_CLOCK_NANOS {
        return Check::ok("clock", found);
    }
    Check::warn("clock", found, "use a clock source that is read without a system call, see `clock source`")
}

fn cpus() -> Check {
    let count = std::thread::available_parallelism().map_or(1, usize::from);
    let found = format!("{count} usable");
    if count > 1 {
        return Check::ok("cpus", found);
    }
    Check::warn(
        "cpus",
        found,
        "use drive mode `inline` and let waits sleep: a polling peer would take the only CPU",
    )
}

fn interfaces() -> Check {
    match super::links::up() {
        Ok(found) => judge_interfaces(&found),
        Err(error) => interfaces_unknown(&error),
    }
}

fn interfaces_unknown(error: &io::Error) -> Check {
    let advice = super::advice_for(error, "see what `ip link` says: one has to be up");
    Check::warn("interfaces", format!("not known: {error}"), advice)
}

fn judge_interfaces(interfaces: &[(String, u64)]) -> Check {
    let name = "interfaces";
    let list: Vec<String> = interfaces.iter().map(|(name, mtu)| format!("{name} {mtu}")).collect();
    let found = format!("MTU in bytes: {}", list.join(", "));
    if interfaces.is_empty() {
        return Check::warn(name, "none is up", "bring an interface up (as root: ip link set lo up)");
    }
    if let Some((small, _)) = interfaces.iter().find(|(_, mtu)| *mtu < LEAST_MTU_BYTES) {
        let advice = format!("raise it to {LEAST_MTU_BYTES} or more (as root: ip link set {small} mtu 1500)");
        return Check::warn(name, found, advice);
    }
    let jumbo = interfaces.iter().any(|(name, mtu)| name != "lo" && *mtu >= JUMBO_MTU_BYTES);
    if jumbo || interfaces.iter().all(|(name, _)| name == "lo") {
        return Check::ok(name, found);
    }
    Check::ok(name, found).with_advice(
        "if all switches and hosts of the cluster can, an MTU of 9000 moves large messages faster",
    )
}

fn clock_source() -> Check {
    let path = Path::new("/sys/devices/system/clocksource/clocksource0");
    let (current, available) =
        (read(&path.join("current_clocksource")), read(&path.join("available_clocksource")));
    judge_clock_source(&current, &available)
}

fn judge_clock_source(current: &str, available: &str) -> Check {
    let name = "clock source";
    match current {
        "tsc"
        | "kvm-clock"
        | "hyperv_clocksource_tsc_page"
        | "arch_sys_counter"
        | "riscv_clocksource"
        | "tod"
        | "timebase" => Check::ok(name, current),
        "" => Check::warn(name, "not known", "judge by the check `clock`"),
        slow => {
            let advice = if available.split_whitespace().any(|source| source == "tsc") {
                "as root: echo tsc > /sys/devices/system/clocksource/clocksource0/current_clocksource"
            } else {
                "boot with tsc=reliable if the CPU's counter is known to be good"
            };
            Check::warn(name, format!("{slow} (available: {available})"), advice)
        }
    }
}

fn busy_poll() -> Check {
    let sysctl = |name: &str| read(&Path::new("/proc/sys/net/core").join(name));
    let (poll, recv) = (sysctl("busy_poll"), sysctl("busy_read"));
    if poll.is_empty() {
        return Check::ok("busy polling", "not built into this kernel");
    }
    let check = Check::ok("busy polling", format!("busy_poll {poll} µs, busy_read {recv} µs"));
    if poll != "0" || recv != "0" {
        return check;
    }
    check.with_advice(
        "on hosts that may spend CPU for latency: sysctl -w net.core.busy_poll=50 net.core.busy_read=50",
    )
}

/// Soft limit called `name` in the text of `/proc/self/limits`; `u64::MAX` for unlimited.
fn soft_limit(limits: &str, name: &str) -> Option<u64> {
    let values = limits.lines().find_map(|line| line.strip_prefix(name))?;
    match values.split_whitespace().next()? {
        "unlimited" => Some(u64::MAX),
        number => number.parse().ok(),
    }
}

fn open_files(limits: &str) -> Check {
    let name = "open files";
    match soft_limit(limits, "Max open files") {
        Some(limit) if limit >= FEW_FILES => Check::ok(name, format!("limit {limit}; a node needs about 20")),
        Some(limit) => {
            Check::warn(name, format!("limit {limit}"), format!("raise it: ulimit -n {FEW_FILES}"))
        }
        None => Check::warn(name, "limit not known", format!("see that `ulimit -n` is at least {FEW_FILES}")),
    }
}

fn locked_memory(limits: &str) -> Check {
    let name = "locked memory";
    match soft_limit(limits, "Max locked memory") {
        Some(u64::MAX) => Check::ok(name, "no limit"),
        Some(limit) => Check::ok(name, format!("limit {limit} bytes; the socket backends lock none")),
        None => Check::ok(name, "limit not known; the socket backends lock none"),
    }
}

/// The UDP counter `name` in the text of `/proc/net/snmp`.
fn udp_counter(snmp: &str, name: &str) -> Option<u64> {
    let mut lines = snmp.lines().filter_map(|line| line.strip_prefix("Udp:"));
    let (names, values) = (lines.next()?, lines.next()?);
    let column = names.split_whitespace().position(|column| column == name)?;
    values.split_whitespace().nth(column)?.parse().ok()
}

fn udp_errors(snmp: &str) -> Check {
    let name = "udp losses";
    let counter = |name| udp_counter(snmp, name).unwrap_or(0);
    let (received, full) = (counter("InDatagrams"), counter("RcvbufErrors"));
    let damaged = counter("InCsumErrors");
    let found =
        format!("since boot: {received} received, {full} lost to full receive buffers, {damaged} damaged");
    if full as f64 > LOSS_RATIO * received as f64 {
        let advice = "look by `ss -uam` for the sockets that drop (d in skmem), give those larger receive buffers (a \
                      Node's are its setting socket_recv_buffer_bytes), or keep their programs from being descheduled";
        return Check::warn(name, found, advice);
    }
    if damaged as f64 > LOSS_RATIO * received as f64 {
        return Check::warn(name, found, "look for a faulty cable, network card or checksum offload");
    }
    Check::ok(name, found)
}

/// A small file's text without white space around it; empty if it cannot be read.
fn read(path: &Path) -> String {
    fs::read_to_string(path).map(|text| text.trim().to_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::super::Status;
    use super::*;

    const LIMITS: &str = "Limit                     Soft Limit           Hard Limit           Units     \n\
         Max open files            128                  20000                files     \n\
         Max locked memory         unlimited            unlimited            bytes     \n";
    const SNMP: &str = "Udp: InDatagrams NoPorts InErrors OutDatagrams RcvbufErrors SndbufErrors InCsumErrors\n\
         Udp: 100000 3 0 100 70 0 1\nUdpLite: InDatagrams\nUdpLite: 0\n";

    #[test]
    fn limits_are_read_and_judged() {
        assert_eq!(soft_limit(LIMITS, "Max open files"), Some(128));
        assert_eq!(soft_limit(LIMITS, "Max locked memory"), Some(u64::MAX));
        assert_eq!(soft_limit(LIMITS, "Max nothing"), None);
        assert_eq!(open_files(LIMITS).status, Status::Warn);
        assert_eq!(open_files("").status, Status::Warn);
        assert_eq!(locked_memory(LIMITS).status, Status::Ok);
    }

    #[test]
    fn udp_counters_are_read_and_judged() {
        assert_eq!(udp_counter(SNMP, "RcvbufErrors"), Some(70));
        assert_eq!(udp_counter(SNMP, "Missing"), None);
        assert_eq!(udp_errors(SNMP).status, Status::Warn);
        // Of other programs too: what Nodes are given is for another check, and says nothing of these.
        let advice = udp_errors(SNMP).advice.unwrap();
        assert!(advice.contains("socket_recv_buffer_bytes") && !advice.contains("see `"), "{advice}");
        assert_eq!(udp_errors(&SNMP.replace(" 70 ", " 7 ")).status, Status::Ok);
        assert!(udp_errors(&SNMP.replace("70 0 1", "0 0 99")).advice.unwrap().contains("cable"));
        assert_eq!(udp_errors("").status, Status::Ok);
    }

    #[test]
    fn clock_sources_and_interfaces_are_judged() {
        assert_eq!(judge_clock_source("tsc", "tsc hpet").status, Status::Ok);
        assert!(judge_clock_source("hpet", "tsc hpet").advice.unwrap().contains("echo tsc"));
        assert!(judge_clock_source("acpi_pm", "acpi_pm").advice.unwrap().contains("boot"));
        let of = |list: &[(&str, u64)]| {
            judge_interfaces(&list.iter().map(|(name, mtu)| ((*name).to_owned(), *mtu)).collect::<Vec<_>>())
        };
        assert_eq!(of(&[]).status, Status::Warn);
        // Where the system cannot be asked, that says nothing of interfaces.
        let unknown = interfaces_unknown(&io::Error::from_raw_os_error(libc::EMFILE));
        assert!(unknown.found.starts_with("not known: Too many open files"), "{unknown:?}");
        assert!(unknown.advice.unwrap().contains("ulimit -n"));
        assert_eq!(of(&[("eth0", 576), ("lo", 65_536)]).status, Status::Warn);
        assert!(of(&[("eth0", 1500), ("lo", 65_536)]).advice.unwrap().contains("9000"));
        assert_eq!(of(&[("eth0", 9000), ("lo", 65_536)]).advice, None);
    }
}
