//! L8's figures as SVG: time per PDU against packet size, and four times against credit.

use super::{Figure, Row};
use anyhow::{Result, anyhow};
use plotters::prelude::*;
use std::path::Path;

/// One panel, pixels.
const PANEL: (u32, u32) = (480, 340);
/// Lines, by number of layers.
const COLOURS: [RGBColor; 4] = [
    RGBColor(0x33, 0x33, 0x33),
    RGBColor(0x1f, 0x77, 0xb4),
    RGBColor(0x2c, 0xa0, 0x2c),
    RGBColor(0xd6, 0x27, 0x28),
];

/// Writes the file: a panel for each figure that has rows.
pub fn write(path: &Path, rows: &[Row]) -> Result<()> {
    let figures: Vec<Figure> =
        Figure::ALL.into_iter().filter(|figure| rows.iter().any(|row| row.figure == figure.name())).collect();
    let lines = figures.len().div_ceil(2).max(1);
    let root = SVGBackend::new(path, (2 * PANEL.0, PANEL.1 * lines as u32)).into_drawing_area();
    root.fill(&WHITE).map_err(drawing)?;
    for (figure, area) in figures.into_iter().zip(root.split_evenly((lines, 2))) {
        panel(&area, figure, rows)?;
    }
    root.present().map_err(drawing)
}

fn panel(
    area: &DrawingArea<SVGBackend<'_>, plotters::coord::Shift>,
    figure: Figure,
    rows: &[Row],
) -> Result<()> {
    let rows: Vec<&Row> = rows.iter().filter(|row| row.figure == figure.name()).collect();
    let at = |row: &Row| figure.axis_of(row) as f64;
    let right = rows.iter().map(|row| at(row)).fold(1.0, f64::max);
    let top = rows.iter().map(|row| row.ns_per_pdu).fold(1.0, f64::max);
    let least = rows.iter().map(|row| row.ns_per_pdu).fold(top, f64::min);
    let mut chart = ChartBuilder::on(area)
        .caption(figure.title(), ("sans-serif", 15))
        .margin(10)
        .x_label_area_size(35)
        .y_label_area_size(55)
        .build_cartesian_2d((1.0..right * 1.1).log_scale(), (least * 0.8..top * 1.2).log_scale())
        .map_err(drawing)?;
    let axis =
        chart.configure_mesh().x_desc(figure.axis()).y_desc("ns per PDU").light_line_style(WHITE).draw();
    axis.map_err(drawing)?;
    let mut names: Vec<(usize, &str)> = rows.iter().map(|row| (row.layers, row.mode)).collect();
    names.sort_unstable();
    names.dedup();
    for (layers, mode) in names {
        let colour = COLOURS[(layers - 1) % COLOURS.len()];
        // One thread: thin. As many as cores: bold. More than cores: pale.
        let style = match mode {
            "together" => colour.stroke_width(1),
            "cores" => colour.stroke_width(3),
            _ => colour.mix(0.35).stroke_width(2),
        };
        let points = rows.iter().filter(|row| row.layers == layers && row.mode == mode);
        let line = LineSeries::new(points.map(|row| (at(row), row.ns_per_pdu)), style);
        chart
            .draw_series(line)
            .map_err(drawing)?
            .label(format!("{layers} {mode}"))
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 15, y)], style));
    }
    let labels = chart.configure_series_labels().background_style(WHITE.mix(0.8)).draw();
    labels.map_err(drawing)
}

/// The error of a drawing borrows what is drawn on.
fn drawing(error: impl std::fmt::Display) -> anyhow::Error {
    anyhow!("{error}")
}
