//! L8's figures as SVG: time per PDU against packet size, and four times against credit.
//!
//! Inputs → outputs: the points of a run → a panel for each figure: what was measured, what the
//! [model](super::model) says of a core for each layer, and what the paper says, its microseconds as if they
//! were nanoseconds.

use super::{Figure, MAX_LAYERS, Row};
use crate::bench::picture::{Area, drawing};
use anyhow::Result;
use plotters::element::DashedPathElement;
use plotters::prelude::*;
use std::path::Path;

/// One panel, pixels.
const PANEL: (u32, u32) = (480, 340);
/// The legend below all panels, pixels.
const LEGEND_HEIGHT: u32 = 70;
/// Lines, by number of layers.
const COLOURS: [RGBColor; MAX_LAYERS] = [
    RGBColor(0x33, 0x33, 0x33),
    RGBColor(0x1f, 0x77, 0xb4),
    RGBColor(0x2c, 0xa0, 0x2c),
    RGBColor(0xd6, 0x27, 0x28),
];
const PAPER: RGBColor = RGBColor(0x88, 0x88, 0x88);

/// How a line was come by, and how it looks.
const KINDS: [(&str, &str); 5] = [
    ("together", "one thread"),
    ("cores", "as many threads as cores"),
    ("each", "a thread per layer, beyond the cores"),
    ("model", "a core per layer (model)"),
    ("paper", "the paper, microseconds"),
];

/// Writes the file: a panel for each figure that has rows.
pub fn write(path: &Path, rows: &[Row]) -> Result<()> {
    let figures: Vec<Figure> =
        Figure::ALL.into_iter().filter(|figure| rows.iter().any(|row| row.figure == figure.name())).collect();
    let lines = figures.len().div_ceil(2).max(1);
    let height = PANEL.1 * lines as u32;
    let root = SVGBackend::new(path, (2 * PANEL.0, height + LEGEND_HEIGHT)).into_drawing_area();
    root.fill(&WHITE).map_err(drawing)?;
    let (panels, below) = root.split_vertically(height);
    for (figure, area) in figures.into_iter().zip(panels.split_evenly((lines, 2))) {
        let rows: Vec<&Row> = rows.iter().filter(|row| row.figure == figure.name()).collect();
        panel(&area, figure, &rows)?;
    }
    legend(&below)?;
    root.present().map_err(drawing)
}

/// One line of a panel.
struct Line {
    layers: usize,
    kind: &'static str,
    points: Vec<(f64, f64)>,
}

fn lines(figure: Figure, rows: &[&Row]) -> Vec<Line> {
    let at = |row: &Row| figure.axis_of(row) as f64;
    let mut names: Vec<(usize, &'static str)> = rows.iter().map(|row| (row.layers, row.mode)).collect();
    names.sort_unstable();
    names.dedup();
    let measured = names.into_iter().map(|(layers, kind)| {
        let of_line = rows.iter().filter(|row| row.layers == layers && row.mode == kind);
        Line { layers, kind, points: of_line.map(|row| (at(row), row.ns_per_pdu)).collect() }
    });
    let mut lines: Vec<Line> = measured.collect();
    if figure.has_equal_layers() {
        lines.extend((3..=MAX_LAYERS).map(|layers| modelled(figure, rows, layers)));
    }
    let ends = rows.iter().map(|row| at(row));
    let (left, right) = (ends.clone().fold(f64::MAX, f64::min), ends.fold(0.0, f64::max));
    let papers = figure.paper_us().iter();
    lines.extend(papers.map(|us| Line { layers: 0, kind: "paper", points: vec![(left, *us), (right, *us)] }));
    lines
}

/// What the model says of so many layers with a core each.
fn modelled(figure: Figure, rows: &[&Row], layers: usize) -> Line {
    let of_line = rows.iter().filter(|row| (row.layers, row.threads) == (layers, layers));
    let mut points: Vec<(usize, f64)> =
        of_line.filter_map(|row| Some((figure.axis_of(row), row.compared.model_ns?))).collect();
    points.sort_unstable_by_key(|(at, _)| *at);
    Line { layers, kind: "model", points: points.into_iter().map(|(at, ns)| (at as f64, ns)).collect() }
}

fn panel(area: &Area<'_>, figure: Figure, rows: &[&Row]) -> Result<()> {
    let lines = lines(figure, rows);
    let all = || lines.iter().flat_map(|line| &line.points);
    let range = |value: fn(&(f64, f64)) -> f64| {
        let (least, most) = (all().map(value).fold(f64::MAX, f64::min), all().map(value).fold(1.0, f64::max));
        let (from, to) = (least.min(most) * 0.8, most * 1.25);
        (from..to).log_scale().with_key_points(named(from, to))
    };
    let mut chart = ChartBuilder::on(area)
        .caption(figure.title(), ("sans-serif", 15))
        .margin(10)
        .x_label_area_size(35)
        .y_label_area_size(70)
        .build_cartesian_2d(range(|point| point.0), range(|point| point.1))
        .map_err(drawing)?;
    let mesh = &mut chart.configure_mesh();
    let axis = mesh.x_desc(figure.axis()).y_desc("ns per PDU").light_line_style(WHITE);
    axis.x_label_formatter(&f64::to_string).y_label_formatter(&f64::to_string).draw().map_err(drawing)?;
    for Line { layers, kind, points } in lines {
        let colour = layers.checked_sub(1).map_or(PAPER, |index| COLOURS[index % COLOURS.len()]);
        let drawn = match dashes(kind) {
            Some((dash, gap)) => {
                let series = DashedLineSeries::new(points, dash, gap, style(kind, colour));
                chart.draw_series(series).map(drop)
            }
            None => chart.draw_series(LineSeries::new(points, style(kind, colour))).map(drop),
        };
        drawn.map_err(drawing)?;
    }
    Ok(())
}

/// What an axis names: one, two and five of each decade. `plotters` names nothing below the first power of ten, and
/// where two decades begin nothing but those.
fn named(from: f64, to: f64) -> Vec<f64> {
    let decades = from.log10().floor() as i32..=to.log10().floor() as i32;
    let all = decades.flat_map(|decade| [1.0, 2.0, 5.0].map(|digit| digit * 10_f64.powi(decade)));
    all.filter(|value| (from..=to).contains(value)).collect()
}

fn style(kind: &str, colour: RGBColor) -> ShapeStyle {
    match kind {
        "cores" => colour.stroke_width(3),
        "each" => colour.mix(0.35).stroke_width(2),
        "model" => colour.stroke_width(2),
        _ => colour.stroke_width(1),
    }
}

/// Pixels of a dash and of the gap after it; `None`: a whole line.
fn dashes(kind: &str) -> Option<(u32, u32)> {
    match kind {
        "model" => Some((3, 5)),
        "paper" => Some((9, 5)),
        _ => None,
    }
}

fn legend(area: &Area<'_>) -> Result<()> {
    let font = ("sans-serif", 13).into_font();
    let entry = |x: i32, y: i32, text: &str, kind: &str, colour: RGBColor| -> Result<()> {
        let (from, to) = ((x, y + 7), (x + 40, y + 7));
        let drawn = match dashes(kind) {
            Some((dash, gap)) => {
                area.draw(&DashedPathElement::new([from, to], dash, gap, style(kind, colour)))
            }
            None => area.draw(&PathElement::new([from, to], style(kind, colour))),
        };
        drawn.map_err(drawing)?;
        area.draw(&Text::new(text.to_owned(), (x + 48, y), font.clone())).map_err(drawing)
    };
    for (index, colour) in COLOURS.into_iter().enumerate() {
        let layers = format!("{} layer{}", index + 1, if index > 0 { "s" } else { "" });
        entry(20 + 130 * index as i32, 5, &layers, "cores", colour)?;
    }
    for (index, (kind, says)) in KINDS.into_iter().enumerate() {
        let (column, row) = (index as i32 % 3, index as i32 / 3);
        entry(20 + 310 * column, 27 + 20 * row, says, kind, COLOURS[0])?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_axis_has_names_on_both_sides_of_a_power_of_ten() {
        assert_eq!(named(23.2, 212.5), [50.0, 100.0, 200.0]);
        assert_eq!(named(0.8, 12.0), [1.0, 2.0, 5.0, 10.0]);
        assert_eq!(named(1600.0, 6000.0), [2000.0, 5000.0]);
    }
}
