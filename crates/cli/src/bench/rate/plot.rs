//! The curves of R9 as SVG.
//!
//! Inputs → outputs: rows → a file with a panel for throughput and one for recoveries per receiver;
//! a line per burst, a dashed line where throughput equals rate, a point for what was learnt.

use super::Receiver;
use super::figures::{Row, tracking};
use crate::bench::picture::{Area, Curve, draw_curves, drawing};
use anyhow::Result;
use plotters::prelude::*;
use std::path::Path;

/// One panel, pixels.
const PANEL: (u32, u32) = (460, 330);

/// Writes the file.
pub fn write(path: &Path, rows: &[Row]) -> Result<()> {
    let receivers: Vec<Receiver> =
        Receiver::ALL.into_iter().filter(|receiver| !tracking(rows, *receiver).is_empty()).collect();
    let size = (2 * PANEL.0, PANEL.1 * receivers.len().max(1) as u32);
    let root = SVGBackend::new(path, size).into_drawing_area();
    root.fill(&WHITE).map_err(drawing)?;
    let panels = root.split_evenly((receivers.len().max(1), 2));
    for (receiver, panels) in receivers.into_iter().zip(panels.chunks(2)) {
        let rows = tracking(rows, receiver);
        let throughput = |row: &Row| row.common.bytes_per_s.unwrap_or(0.0) / 1e6;
        let title = format!("{} receiver: throughput, MB/s", receiver.name());
        panel(&panels[0], &title, &curves(&rows, throughput), true)?;
        let title = format!("{} receiver: recoveries per 1000 packets", receiver.name());
        panel(&panels[1], &title, &curves(&rows, |row| row.recoveries_per_1000), false)?;
    }
    root.present().map_err(drawing)
}

/// A curve per burst; last, what was learnt, at the rate that was reached.
fn curves(rows: &[&Row], figure: impl Fn(&Row) -> f64) -> Vec<Curve> {
    let mut curves: Vec<Curve> = Vec::new();
    let (fixed, learnt): (Vec<&Row>, Vec<&Row>) = rows.iter().copied().partition(|row| row.rate.is_some());
    for row in fixed {
        let name = format!("burst {} B", row.burst.unwrap_or(0));
        let point = (row.rate.unwrap_or(0) as f64 / 1e6, figure(row));
        Curve::extend(&mut curves, &name, point);
    }
    for row in learnt {
        let at = row.common.bytes_per_s.unwrap_or(0.0) / 1e6;
        Curve::extend(&mut curves, "auto", (at, figure(row)));
    }
    curves
}

fn panel(area: &Area<'_>, title: &str, curves: &[Curve], diagonal: bool) -> Result<()> {
    let largest = |of: fn(&(f64, f64)) -> f64| {
        curves.iter().flat_map(|curve| &curve.points).map(of).fold(1e-3, f64::max) * 1.05
    };
    let (right, top) = (largest(|point| point.0), largest(|point| point.1));
    let mut chart = ChartBuilder::on(area)
        .caption(title, ("sans-serif", 15))
        .margin(10)
        .x_label_area_size(35)
        .y_label_area_size(50)
        .build_cartesian_2d(0.0..right, 0.0..top)
        .map_err(drawing)?;
    chart.configure_mesh().x_desc("rate, MB/s").light_line_style(WHITE).draw().map_err(drawing)?;
    if diagonal {
        let end = right.min(top);
        let ideal = LineSeries::new([(0.0, 0.0), (end, end)], BLACK.mix(0.3));
        chart.draw_series(ideal).map_err(drawing)?;
    }
    // Throughput rises with the rate; bursts that are too large are repaired most at low ones.
    let legend = if diagonal { SeriesLabelPosition::UpperLeft } else { SeriesLabelPosition::UpperRight };
    draw_curves(&mut chart, curves, legend)
}
