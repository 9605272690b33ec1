//! What stands in the cells of tables: figures, short enough to be read.

use comfy_table::{Cell, CellAlignment};

/// Bytes with a binary prefix.
pub fn human_bytes(bytes: f64) -> String {
    let (value, unit) = scaled(bytes, 1024.0, &["B", "KiB", "MiB", "GiB", "TiB"]);
    format!("{value} {unit}")
}

/// A count with a decimal prefix.
pub fn human_count(count: Option<f64>) -> String {
    let Some(count) = count else { return dash() };
    let (value, unit) = scaled(count, 1000.0, &["", " k", " M", " G"]);
    format!("{value}{unit}")
}

fn scaled(mut value: f64, step: f64, units: &[&'static str]) -> (String, &'static str) {
    let mut unit = 0;
    while value >= step && unit + 1 < units.len() {
        value /= step;
        unit += 1;
    }
    let digits = if value.fract() == 0.0 || value >= 100.0 { 0 } else { 2 };
    (format!("{value:.digits$}"), units[unit])
}

/// A number with so many digits after the point.
pub fn number(value: Option<f64>, digits: usize) -> String {
    value.map_or_else(dash, |value| format!("{value:.digits$}"))
}

/// What has no value.
pub fn dash() -> String {
    "–".to_owned()
}

/// Content that stands at the right of its column.
pub fn right(text: String) -> Cell {
    Cell::new(text).set_alignment(CellAlignment::Right)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        assert_eq!(human_bytes(64.0), "64 B");
        assert_eq!(human_bytes(65_536.0), "64 KiB");
        assert_eq!(human_bytes(5.3 * 1024.0 * 1024.0 * 1024.0), "5.30 GiB");
        assert_eq!(human_count(Some(2_200_000.0)), "2.20 M");
        assert_eq!(human_count(None), "–");
    }
}
