//! Values of options, with what is possible in the words that refuse a wrong one.
//!
//! Inputs → outputs: an argument's text → a number, an address, or why it is none. For clap's
//! `value_parser`, whose own parsers say what is possible only of numbers that can be read.

use nix::net::if_::if_nametoindex;
use std::fmt::Display;
use std::net::{SocketAddr, ToSocketAddrs};
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

/// Parses a whole number of `range`.
pub fn whole<N>(
    range: RangeInclusive<N>,
) -> impl Fn(&str) -> Result<N, String> + Clone + Send + Sync + 'static
where
    N: FromStr + PartialOrd + Display + Clone + Send + Sync + 'static,
{
    move |text| {
        let number = text.parse::<N>().ok().filter(|number| range.contains(number));
        let (least, most) = (range.start(), range.end());
        number.ok_or_else(|| format!("{text:?} is no whole number from {least} to {most}"))
    }
}

/// Parses a time of `range`, in seconds or parts of one.
pub fn seconds(
    range: RangeInclusive<f64>,
) -> impl Fn(&str) -> Result<Duration, String> + Clone + Send + Sync + 'static {
    move |text| {
        let seconds = text.parse::<f64>().ok().filter(|seconds| range.contains(seconds));
        let (least, most) = (range.start(), range.end());
        let seconds = seconds.ok_or_else(|| format!("{text:?} is no time from {least} to {most} s"))?;
        Ok(Duration::from_secs_f64(seconds))
    }
}

/// Parses a host's name or address with a port; the name's first address. One that a link alone has names this host's
/// interface to it: `[fe80::7%eth0]:7411`.
pub fn address(text: &str) -> Result<SocketAddr, String> {
    if let Ok(address) = text.parse() {
        return Ok(address);
    }
    let wrong = || format!("{text:?} is no address with a port, such as node1:7411 or [2001:db8::7]:7411");
    if let Some((ip, (interface, port))) =
        text.split_once('%').and_then(|(ip, rest)| Some((ip, rest.split_once("]:")?)))
    {
        let index = if_nametoindex(interface)
            .map_err(|_| format!("this host has no interface {interface:?}: `ip link` shows those it has"))?;
        return format!("{ip}%{index}]:{port}").parse().map_err(|_| wrong());
    }
    let (host, port) = text.rsplit_once(':').ok_or_else(wrong)?;
    let port = port.parse::<u16>().map_err(|_| wrong())?;
    if host.is_empty() || host.contains([':', ' ']) {
        return Err(wrong());
    }
    let found =
        (host, port).to_socket_addrs().map_err(|error| format!("cannot resolve {host:?}: {error}"))?;
    found.into_iter().next().ok_or_else(|| format!("{host:?} has no address"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_is_no_such_number_hears_which_are() {
        let parse = whole(2_u64..=64);
        assert_eq!(parse("2"), Ok(2));
        assert_eq!(parse("64"), Ok(64));
        for wrong in ["1", "65", "-3", "2.5", "x", "", "99999999999999999999"] {
            let error = parse(wrong).unwrap_err();
            assert_eq!(error, format!("{wrong:?} is no whole number from 2 to 64"));
        }
    }

    #[test]
    fn times_may_have_parts_of_a_second() {
        let parse = seconds(0.0..=600.0);
        assert_eq!(parse("0.5"), Ok(Duration::from_millis(500)));
        assert_eq!(parse("600"), Ok(Duration::from_secs(600)));
        for wrong in ["-1", "600.1", "soon", "NaN", "inf", ""] {
            assert_eq!(parse(wrong).unwrap_err(), format!("{wrong:?} is no time from 0 to 600 s"));
        }
    }

    #[test]
    fn addresses_have_ports_and_hosts_may_have_names() {
        assert_eq!(address("127.0.0.1:7411"), Ok(([127, 0, 0, 1], 7411).into()));
        assert!(address("[::1]:0").is_ok());
        let index = if_nametoindex("lo").unwrap();
        assert_eq!(address("[fe80::7%lo]:7411"), address(&format!("[fe80::7%{index}]:7411")));
        assert!(address("[fe80::7%no-such]:7411").unwrap_err().contains("ip link"));
        let named = address("localhost:7411").unwrap();
        assert!(named.ip().is_loopback() && named.port() == 7411);
        for wrong in ["127.0.0.1", "::1", "127.0.0.1:99999", "node1", "node1:", ":7411", "no such:7411", ""] {
            assert!(address(wrong).unwrap_err().contains("such as node1:7411"), "{wrong}");
        }
    }
}
