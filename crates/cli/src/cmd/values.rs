//! Values of options, with what is possible in the words that refuse a wrong one.
//!
//! Inputs → outputs: an argument's text → a number, a time, an address, or why it is none. For clap's
//! `value_parser`, whose own parsers say what is possible only of numbers that can be read.

use std::fmt::Display;
use std::net::SocketAddr;
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
        let wrong =
            || format!("{text:?} is no time from {least} to {most} s: give a number of seconds alone");
        seconds.map(Duration::from_secs_f64).ok_or_else(wrong)
    }
}

/// Parses an address with a port that two hosts name alike: none of one link, to which each has an interface
/// of its own.
pub fn address(text: &str) -> Result<SocketAddr, String> {
    let address = denrei::resolve(text)?;
    match address {
        SocketAddr::V6(v6) if v6.ip().is_unicast_link_local() => Err(format!(
            "{text} is an address of one link, which the two hosts name differently: take one that both name alike, \
             such as 10.0.0.7:{port} or [2001:db8::7]:{port}",
            port = v6.port()
        )),
        _ => Ok(address),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(target_os = "linux")]
    #[test]
    fn addresses_of_one_link_are_none_for_two_hosts() {
        assert_eq!(address("10.0.0.7:7411"), Ok(([10, 0, 0, 7], 7411).into()));
        assert!(address("[::1]:7411").is_ok());
        for text in ["[fe80::7%lo]:7411", "[fe80::7]:7411"] {
            assert!(address(text).unwrap_err().contains("such as 10.0.0.7:7411"));
        }
        assert!(address("10.0.0.7").unwrap_err().contains("no address with a port"));
    }

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
        for wrong in ["-1", "600.1", "2s", "soon", "NaN", "inf", ""] {
            let error = parse(wrong).unwrap_err();
            assert_eq!(
                error,
                format!("{wrong:?} is no time from 0 to 600 s: give a number of seconds alone")
            );
        }
    }
}
