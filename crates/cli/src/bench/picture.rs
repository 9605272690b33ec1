//! What the pictures of all benchmarks have in common: the option that asks for one, colours, and curves
//! with their names.

use crate::cells::human_bytes;
use crate::cmd::wrong_arguments;
use anyhow::{Context, Result, anyhow};
use clap::Args;
use plotters::coord::Shift;
use plotters::coord::ranged1d::{Ranged, ValueFormatter};
use plotters::prelude::*;
use std::fs::OpenOptions;
use std::path::{Path, PathBuf};

/// Where figures are drawn.
pub type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// Curves, in their order.
pub const COLOURS: [RGBColor; 6] = [
    RGBColor(0x1f, 0x77, 0xb4),
    RGBColor(0x2c, 0xa0, 0x2c),
    RGBColor(0xff, 0x7f, 0x0e),
    RGBColor(0xd6, 0x27, 0x28),
    RGBColor(0x94, 0x67, 0xbd),
    RGBColor(0x8c, 0x56, 0x4b),
];

/// How much further than its values a logarithmic axis goes.
const AXIS_MARGIN: f64 = 1.25;
/// The same where they are all but one value, so that there is a power of two on either side to write.
const LONE_MARGIN: f64 = 2.0;

/// Whether to draw.
#[derive(Args, Clone, Debug, Default)]
pub struct PictureArgs {
    /// Draw the figures as curves into this file, too
    #[arg(long, value_name = "FILE.svg")]
    svg: Option<PathBuf>,
}

impl PictureArgs {
    /// Whether a picture was asked for.
    pub fn is_wanted(&self) -> bool {
        self.svg.is_some()
    }

    /// Whether the picture has a place: to be asked before minutes of measuring.
    ///
    /// # Errors
    /// There is no such folder, or no file can be written there.
    pub fn check(&self) -> Result<()> {
        let Some(path) = &self.svg else { return Ok(()) };
        match path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() && !folder.is_dir() => {
                let folder = folder.display();
                return Err(wrong_arguments(format!("there is no folder {folder} for the file of --svg")));
            }
            _ => {}
        }
        let is_new = !path.exists();
        // A file that is there stays as it is until there is something to draw.
        OpenOptions::new().append(true).create(true).open(path).map_err(|error| {
            wrong_arguments(format!("cannot write {} for --svg: {error}", path.display()))
        })?;
        if is_new {
            std::fs::remove_file(path).with_context(|| format!("cannot write {}", path.display()))?;
        }
        Ok(())
    }

    /// Draws by `draw`, if a picture was asked for.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn draw(&self, draw: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
        let Some(path) = &self.svg else { return Ok(()) };
        draw(path).with_context(|| format!("cannot draw {}", path.display()))
    }
}

/// One curve.
pub struct Curve {
    pub name: String,
    pub points: Vec<(f64, f64)>,
}

impl Curve {
    /// Adds a point to the curve of this name, which is made if there is none.
    pub fn extend(curves: &mut Vec<Curve>, name: &str, point: (f64, f64)) {
        match curves.iter_mut().find(|curve| curve.name == name) {
            Some(curve) => curve.points.push(point),
            None => curves.push(Curve { name: name.to_owned(), points: vec![point] }),
        }
    }
}

/// Draws curves into a chart, and their names at `legend`.
pub fn draw_curves<'a, X, Y>(
    chart: &mut ChartContext<'a, SVGBackend<'a>, Cartesian2d<X, Y>>,
    curves: &[Curve],
    legend: SeriesLabelPosition,
) -> Result<()>
where
    X: Ranged<ValueType = f64> + ValueFormatter<f64>,
    Y: Ranged<ValueType = f64> + ValueFormatter<f64>,
{
    for (curve, colour) in curves.iter().zip(COLOURS.into_iter().cycle()) {
        let points = curve.points.iter().map(|point| Circle::new(*point, 3, colour.filled()));
        chart
            .draw_series(LineSeries::new(curve.points.iter().copied(), colour))
            .map_err(drawing)?
            .label(&curve.name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 15, y)], colour));
        chart.draw_series(points).map_err(drawing)?;
    }
    chart.configure_series_labels().position(legend).background_style(WHITE.mix(0.8)).draw().map_err(drawing)
}

/// A panel of curves over message sizes, both axes logarithmic; `legend`: where it covers none of them.
pub fn size_panel(
    area: &Area<'_>,
    title: &str,
    unit: &str,
    curves: &[Curve],
    legend: SeriesLabelPosition,
) -> Result<()> {
    let range = |of: fn(&(f64, f64)) -> f64| {
        let values = curves.iter().flat_map(|curve| &curve.points).map(of).filter(|value| *value > 0.0);
        let (least, most) = values.fold((f64::MAX, 1e-3), |(least, most), v| (v.min(least), v.max(most)));
        let least = least.min(most);
        let margin = if most < least * LONE_MARGIN { LONE_MARGIN } else { AXIS_MARGIN };
        least / margin..most * margin
    };
    let mut chart = ChartBuilder::on(area)
        .caption(title, ("sans-serif", 15))
        .margin(10)
        .x_label_area_size(35)
        .y_label_area_size(60)
        .build_cartesian_2d(
            range(|point| point.0).log_scale().base(2.0),
            range(|point| point.1).log_scale().base(2.0),
        )
        .map_err(drawing)?;
    chart
        .configure_mesh()
        .light_line_style(WHITE)
        .x_desc("message")
        .y_desc(unit)
        .x_label_formatter(&|size| human_bytes(*size))
        .y_label_formatter(&|value| format!("{}", (value * 1e3).round() / 1e3))
        .draw()
        .map_err(drawing)?;
    draw_curves(&mut chart, curves, legend)
}

/// The error of a drawing borrows what is drawn on.
pub fn drawing(error: impl std::fmt::Display) -> anyhow::Error {
    anyhow!("{error}")
}
