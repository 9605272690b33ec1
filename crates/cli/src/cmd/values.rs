//! Values of options, with what is possible in the words that refuse a wrong one.
//!
//! Inputs → outputs: an argument's text → a number, a time, or why it is none. For clap's
//! `value_parser`, whose own parsers say what is possible only of numbers that can be read.

use std::fmt::Display;
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
}
