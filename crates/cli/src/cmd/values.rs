//! Values of options, with what is possible in the words that refuse a wrong one.
//!
//! Inputs → outputs: an argument's text → a number, an address, or why it is none. For clap's
//! `value_parser`, whose own parsers say what is possible only of numbers that can be read.

use std::fmt::Display;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::str::FromStr;

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

/// Parses an address with a port.
pub fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| {
        format!("{text:?} is no IP address with a port, such as 192.0.2.7:7411 or [2001:db8::7]:7411")
    })
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
    fn addresses_have_ports() {
        assert!(address("127.0.0.1:7411").is_ok() && address("[::1]:0").is_ok());
        for wrong in ["127.0.0.1", "::1", "127.0.0.1:99999", "node1:7411", ""] {
            assert!(address(wrong).unwrap_err().contains("such as 192.0.2.7:7411"), "{wrong}");
        }
    }
}
