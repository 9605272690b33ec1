//! Ping-pong and stream as SVG: a curve for each transport, over the size of messages.
//!
//! Inputs → outputs: rows → a file with two panels, of latencies or of throughput and what it costs.

use super::picture::{Curve, drawing, size_panel};
use super::result::Row;
use anyhow::Result;
use plotters::prelude::*;
use std::path::Path;

/// One panel, pixels.
const PANEL: (u32, u32) = (460, 330);

/// What is drawn of a row.
struct Figure {
    name: &'static str,
    unit: &'static str,
    of: fn(&Row) -> Option<f64>,
    /// What a message takes grows towards large ones; throughput has come near its most long before.
    legend: SeriesLabelPosition,
}

const LATENCIES: [Figure; 2] = [
    Figure { name: "median", unit: "µs", of: |row| row.median_us, legend: SeriesLabelPosition::UpperLeft },
    Figure {
        name: "99th percentile",
        unit: "µs",
        of: |row| row.p99_us,
        legend: SeriesLabelPosition::UpperLeft,
    },
];

const THROUGHPUT: [Figure; 2] = [
    Figure {
        name: "throughput",
        unit: "MB/s",
        of: |row| row.bytes_per_s.map(|rate| rate / 1e6),
        legend: SeriesLabelPosition::LowerRight,
    },
    Figure {
        name: "processor, both sides",
        unit: "µs per message",
        of: |row| row.cpu_us_per_msg,
        legend: SeriesLabelPosition::UpperLeft,
    },
];

/// Writes the file. Latencies are drawn where there are any.
pub fn write(path: &Path, rows: &[Row]) -> Result<()> {
    let has_latencies = rows.iter().any(|row| row.median_us.is_some());
    let figures = if has_latencies { LATENCIES } else { THROUGHPUT };
    let root = SVGBackend::new(path, (figures.len() as u32 * PANEL.0, PANEL.1)).into_drawing_area();
    root.fill(&WHITE).map_err(drawing)?;
    let bench = rows.first().map_or("", |row| row.bench);
    let areas = root.split_evenly((1, figures.len()));
    for (Figure { name, unit, of, legend }, area) in figures.into_iter().zip(areas) {
        let mut curves = Vec::new();
        for row in rows {
            if let Some(value) = of(row) {
                Curve::extend(&mut curves, row.transport, (row.size as f64, value));
            }
        }
        size_panel(&area, &format!("{bench}: {name}"), unit, &curves, legend)?;
    }
    root.present().map_err(drawing)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(transport: &'static str, size: usize, median_us: Option<f64>) -> Row {
        let mut row = Row::named("pingpong", transport, size, &[]);
        (row.median_us, row.p99_us) = (median_us, median_us.map(|us| 2.0 * us));
        (row.bytes_per_s, row.cpu_us_per_msg) = (Some(1e9), Some(0.3));
        row
    }

    fn picture(rows: &[Row]) -> String {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("picture.svg");
        write(&path, rows).unwrap();
        std::fs::read_to_string(path).unwrap()
    }

    #[test]
    fn a_curve_for_each_transport_and_a_panel_for_each_figure() {
        let rows = [row("denrei", 16, Some(5.0)), row("tcp", 16, Some(7.0)), row("denrei", 1024, Some(6.0))];
        let latencies = picture(&rows);
        for text in ["denrei", "tcp", "99th percentile", "1 KiB"] {
            assert!(latencies.contains(text), "{text}");
        }
        let throughput = picture(&[row("denrei", 16, None)]);
        assert!(throughput.contains("MB/s") && !throughput.contains("99th percentile"));
    }

    #[test]
    fn nothing_measured_is_an_empty_picture() {
        assert!(picture(&[]).contains("<svg"));
    }
}
