//! `denrei bench layers` (L8): time per PDU through 1–4 layers of the same protocol over a loop-back,
//! in one thread, in as many as there are cores, and in one each.
//!
//! Inputs → outputs: [`LayersArgs`] → [`stacks`] of each figure, interleaved → a table or JSON lines, an
//! SVG, and what the [`model`] says about more cores.

mod compare;
mod cores;
mod model;
mod plot;
mod stacks;

use super::args::each_once;
use super::picture::PictureArgs;
use super::{Machine, result};
use crate::cmd::values::whole;
use anyhow::Result;
use clap::{Args, ValueEnum};
use comfy_table::{Table, presets::UTF8_FULL_CONDENSED};
use compare::{Compared, compare};
use cores::TwoCores;
use denrei_layers::pin;
use denrei_output::say;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;
use stacks::{Point, Protocol, Run, Threads};

/// Layers at most, as in the paper.
const MAX_LAYERS: usize = 4;
/// PDU size where that is not what varies, as in the paper.
const SIZE: usize = 1024;
const SIZES: [usize; 5] = [64, 256, 1024, 4096, 16_384];
const CREDITS: [u16; 5] = [2, 8, 32, 128, 512];
/// A credit that does not hold anybody up.
const AMPLE: u16 = 128;

/// Options of `denrei bench layers`.
#[derive(Args, Clone, Debug)]
pub struct LayersArgs {
    /// Which figures, separated by commas
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_value = "ip,tp4,tp4-retain,tp4-checksum,tp4-both,work",
        value_name = "NAME,..."
    )]
    figures: Vec<Figure>,

    /// PDUs per run; a twentieth of that where a checksum is computed
    #[arg(long, default_value_t = 200_000, value_parser = whole(100_u64..=100_000_000), value_name = "N")]
    iters: u64,

    /// Runs per point, interleaved; figures are medians over the runs
    #[arg(long, default_value_t = 3, value_parser = whole(1_u32..=1000), value_name = "N")]
    repeat: u32,

    /// Print one JSON object per line and per point instead of a table
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    picture: PictureArgs,
}

/// L8's figures; the last is the goal of equal work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Figure {
    /// IP against packet size
    Ip,
    /// TP4 against credit, nothing kept, no checksum
    Tp4,
    /// TP4 against credit, DTs kept for retransmission
    Tp4Retain,
    /// TP4 against credit, checksum in the top layer
    Tp4Checksum,
    /// TP4 against credit, both
    Tp4Both,
    /// TP4 against packet size, the checksum in every layer: equal work
    Work,
}

impl Figure {
    const ALL: [Self; 6] =
        [Self::Ip, Self::Tp4, Self::Tp4Retain, Self::Tp4Checksum, Self::Tp4Both, Self::Work];

    fn name(self) -> &'static str {
        match self {
            Self::Ip => "ip",
            Self::Tp4 => "tp4",
            Self::Tp4Retain => "tp4-retain",
            Self::Tp4Checksum => "tp4-checksum",
            Self::Tp4Both => "tp4-both",
            Self::Work => "work",
        }
    }

    fn title(self) -> &'static str {
        match self {
            Self::Ip => "IP",
            Self::Tp4 => "TP4: no checksum, nothing kept",
            Self::Tp4Retain => "TP4: no checksum, DTs kept",
            Self::Tp4Checksum => "TP4: checksum in the top layer, nothing kept",
            Self::Tp4Both => "TP4: checksum in the top layer, DTs kept",
            Self::Work => "TP4: checksum in every layer",
        }
    }

    fn is_against_size(self) -> bool {
        matches!(self, Self::Ip | Self::Work)
    }

    /// Whether all layers cost the same, as the [`Model`] takes for granted.
    fn has_equal_layers(self) -> bool {
        !matches!(self, Self::Tp4Checksum | Self::Tp4Both)
    }

    /// What the paper gives in figures, us per PDU: IP with one layer, and with two to four; TP4 with a
    /// checksum, where the layer that computes it sets the pace. Its curves are only drawn.
    fn paper_us(self) -> &'static [f64] {
        match self {
            Self::Ip => &[60.0, 80.0],
            Self::Tp4Checksum | Self::Tp4Both => &[600.0],
            Self::Tp4 | Self::Tp4Retain | Self::Work => &[],
        }
    }

    /// The paper's time for so many layers with a processor each.
    fn paper_us_of(self, layers: usize) -> Option<f64> {
        let times = self.paper_us();
        times.get(layers - 1).or(times.last()).copied()
    }

    fn axis(self) -> &'static str {
        if self.is_against_size() { "packet size, octets" } else { "credit, DTs" }
    }

    fn axis_of(self, row: &Row) -> usize {
        if self.is_against_size() { row.common.size } else { row.credit.unwrap_or(0).into() }
    }

    fn protocol(self, credit: u16) -> Protocol {
        let tp4 = |retain, checksums| Protocol::Tp4 { credit, retain, checksums };
        match self {
            Self::Ip => Protocol::Ip,
            Self::Tp4 => tp4(false, 0),
            Self::Tp4Retain => tp4(true, 0),
            Self::Tp4Checksum => tp4(false, 1),
            Self::Tp4Both => tp4(true, 1),
            Self::Work => tp4(false, MAX_LAYERS),
        }
    }

    fn points(self) -> Vec<Point> {
        let (sizes, credits): (&[usize], &[u16]) =
            if self.is_against_size() { (&SIZES, &[AMPLE]) } else { (&[SIZE], &CREDITS) };
        let mut points = Vec::new();
        for layers in 1..=MAX_LAYERS {
            for threads in [Threads::Together, Threads::Cores, Threads::Each] {
                for (size, credit) in sizes.iter().flat_map(|size| credits.iter().map(move |c| (*size, *c))) {
                    let point = Point { protocol: self.protocol(credit), layers, threads, size };
                    let same = |other: &Point| {
                        Point { threads, ..*other } == point && other.groups() == point.groups()
                    };
                    if !points.iter().any(same) {
                        points.push(point);
                    }
                }
            }
        }
        points
    }
}

/// A line of `--json`.
#[derive(Clone, Debug, Serialize)]
struct Row {
    /// The fields of every benchmark; a message is a PDU, its latency the time per PDU.
    #[serde(flatten)]
    common: result::Row,
    figure: &'static str,
    layers: usize,
    /// together: one thread; cores: as many threads as cores; each: a thread per layer.
    mode: &'static str,
    threads: usize,
    credit: Option<u16>,
    retain: bool,
    /// Layers that compute a checksum over everything.
    checksums: usize,
    ns_per_pdu: f64,
    #[serde(flatten)]
    compared: Compared,
    /// Layers by thread.
    #[serde(skip)]
    groups: Vec<usize>,
}

/// A line of `--json`: a row, and what two cores were to each other before and after its figure was measured.
#[derive(Serialize)]
struct Line<'a> {
    #[serde(flatten)]
    row: &'a Row,
    /// Throughput of two cores that compute, in terms of one that is alone.
    cores_work_before: Option<f64>,
    cores_work_after: Option<f64>,
    /// The way from one to the other.
    cores_one_way_ns_before: Option<f64>,
    cores_one_way_ns_after: Option<f64>,
}

impl<'a> Line<'a> {
    fn new(row: &'a Row, [before, after]: [Option<TwoCores>; 2]) -> Self {
        let work = |cores: Option<TwoCores>| cores.map(|cores| cores.work);
        let one_way_ns = |cores: Option<TwoCores>| cores.map(|cores| cores.one_way.as_nanos() as f64);
        Self {
            row,
            cores_work_before: work(before),
            cores_work_after: work(after),
            cores_one_way_ns_before: one_way_ns(before),
            cores_one_way_ns_after: one_way_ns(after),
        }
    }
}

impl Row {
    fn new(figure: Figure, point: &Point, runs: &[Run]) -> Self {
        let n = runs.iter().map(|run| run.counted).sum();
        let times = runs.iter().map(|run| run.ns_per_pdu).collect();
        let ns_per_pdu = result::median(times).expect("a point is measured at least once");
        let (credit, retain, checksums) = match point.protocol {
            Protocol::Ip => (None, false, 0),
            Protocol::Tp4 { credit, retain, checksums } => {
                (Some(credit), retain, checksums.min(point.layers))
            }
        };
        let common = result::Row {
            bench: "layers",
            transport: if credit.is_some() { "tp4" } else { "ip" },
            size: point.size,
            n,
            median_us: Some(ns_per_pdu / 1e3),
            p99_us: None,
            msgs_per_s: Some(1e9 / ns_per_pdu),
            bytes_per_s: Some(1e9 / ns_per_pdu * point.size as f64),
            lost: 0,
            retransmitted: result::sum_of_known(runs.iter().map(|run| run.retransmitted)),
            cpu_us_per_msg: None,
        };
        let mode = match point.threads {
            Threads::Together => "together",
            Threads::Cores => "cores",
            Threads::Each => "each",
        };
        let (figure, layers, groups) = (figure.name(), point.layers, point.layers_by_thread());
        let (threads, compared) = (groups.len(), Compared::default());
        Self {
            common,
            figure,
            layers,
            mode,
            threads,
            credit,
            retain,
            checksums,
            ns_per_pdu,
            compared,
            groups,
        }
    }
}

/// Measures, and prints or draws.
pub fn run(args: &LayersArgs) -> Result<()> {
    args.picture.check()?;
    let figures = each_once(&args.figures);
    let progress = progress(&figures, args.repeat)?;
    let before = TwoCores::measure();
    let (mut rows, mut after) = (Vec::new(), before);
    for figure in figures {
        progress.set_message(figure.name());
        let of_figure = measure(figure, args, &progress)?;
        let cores = [after, TwoCores::measure()];
        after = cores[1];
        if args.json {
            for row in &of_figure {
                say!("{}", serde_json::to_string(&Line::new(row, cores))?);
            }
        }
        rows.extend(of_figure);
    }
    progress.finish_and_clear();
    if !args.json {
        say!("{}\n{}", Machine::this(), table(&rows));
        say!("{}", two_cores(before, after));
        rows_of(&rows, "ip").map(|rows| say!("{}", verdict(&rows))).unwrap_or_default();
        rows_of(&rows, "work").map(|rows| say!("{}", equal_work(&rows))).unwrap_or_default();
    }
    args.picture.draw(|path| plot::write(path, &rows))
}

/// Drawn on standard error, and only if that is a terminal.
fn progress(figures: &[Figure], repeat: u32) -> Result<ProgressBar> {
    let points: usize = figures.iter().map(|figure| figure.points().len()).sum();
    let total = points as u64 * u64::from(repeat);
    let progress = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::stderr());
    progress.set_style(ProgressStyle::with_template("{msg:14} {wide_bar} {pos}/{len} runs, {eta} left")?);
    Ok(progress)
}

/// What two threads can be to each other here, before and after the figures were measured.
fn two_cores(before: Option<TwoCores>, after: Option<TwoCores>) -> String {
    let Some((before, after)) = before.zip(after) else { return "one core".to_owned() };
    let said = |cores: TwoCores| {
        format!("{:.2} times the work of one alone, {} ns one way", cores.work, cores.one_way.as_nanos())
    };
    format!("two cores: {} before, {} after", said(before), said(after))
}

fn measure(figure: Figure, args: &LayersArgs, progress: &ProgressBar) -> Result<Vec<Row>> {
    let points = figure.points();
    let heavy = matches!(figure, Figure::Tp4Checksum | Figure::Tp4Both | Figure::Work);
    let count = if heavy { (args.iters / 20).max(100) } else { args.iters };
    let mut runs = vec![Vec::new(); points.len()];
    for _ in 0..args.repeat {
        for (point, runs) in points.iter().zip(&mut runs) {
            progress.inc(1);
            runs.push(stacks::run(point, count)?);
        }
    }
    let rows = points.iter().zip(runs).map(|(point, runs)| Row::new(figure, point, &runs));
    let mut rows: Vec<Row> = rows.collect();
    compare(figure, pin::allowed_cores().len(), &mut rows);
    Ok(rows)
}

fn table(rows: &[Row]) -> Table {
    let mut table = Table::new();
    table.load_preset(UTF8_FULL_CONDENSED);
    table.set_header(["figure", "size", "credit", "layers", "threads", "ns per PDU"]);
    for row in rows {
        let credit = row.credit.map_or("-".to_owned(), |credit| credit.to_string());
        let figures = [row.common.size.to_string(), credit, row.layers.to_string()];
        let threads = format!("{} ({})", row.threads, row.mode);
        let mut cells = vec![row.figure.to_owned()];
        cells.extend(figures);
        cells.extend([threads, format!("{:.1}", row.ns_per_pdu)]);
        table.add_row(cells);
    }
    table
}

fn rows_of<'a>(rows: &'a [Row], figure: &str) -> Option<Vec<&'a Row>> {
    let rows: Vec<&Row> = rows.iter().filter(|row| row.figure == figure).collect();
    (!rows.is_empty()).then_some(rows)
}

fn find<'a>(rows: &[&'a Row], size: usize, layers: usize, threads: usize) -> Option<&'a Row> {
    let is_it = |row: &&&Row| (row.common.size, row.layers, row.threads) == (size, layers, threads);
    rows.iter().find(is_it).copied()
}

/// Two layers in two threads, if those ran side by side.
fn find_split<'a>(rows: &[&'a Row], size: usize) -> Option<&'a Row> {
    find(rows, size, 2, 2).filter(|row| row.mode == "cores")
}

/// What is said where they do not.
const ONE_CORE: &str = "one core: nothing runs side by side";

/// The paper's 80/60, and what more cores would do.
fn verdict(rows: &[&Row]) -> String {
    let split = find_split(rows, SIZE).map(|row| &row.compared);
    let Some((split, ratio)) = split.and_then(|split| Some((split, split.of_one_layer?))) else {
        return ONE_CORE.to_owned();
    };
    let mut said =
        format!("IP: 2 layers on 2 cores take {ratio:.2} of the time of one (paper: 80/60 = 1.33)\n");
    let costs = split.model_user_ns.zip(split.model_layer_ns).zip(split.model_hand_over_ns);
    let Some(((user, layer), hand_over)) = costs else { return said };
    said += &format!("model: user {user:.1} ns, layer {layer:.1} ns, hand-over {hand_over:.1} ns per PDU\n");
    for layers in 3..=MAX_LAYERS {
        let predicted = |threads| {
            let row = find(rows, SIZE, layers, threads)?;
            Some((row, row.compared.model_ns?))
        };
        if let Some((Row { ns_per_pdu, .. }, predicted)) = predicted(2) {
            let error = (predicted / ns_per_pdu - 1.0) * 100.0;
            said += &format!(
                "  {layers} layers on 2 cores: {predicted:.1} ns predicted, {ns_per_pdu:.1} measured ({error:+.0} %)\n"
            );
        }
        if let Some((_, predicted)) = predicted(layers) {
            said += &format!("  {layers} layers on {layers} cores: {predicted:.1} ns predicted\n");
        }
    }
    said
}

/// Throughput of two layers with equal work on two cores against one.
fn equal_work(rows: &[&Row]) -> String {
    let gain = |size: usize| find_split(rows, size)?.compared.speedup;
    let gains = SIZES.iter().filter_map(|size| Some(format!("{:.2} at {size} B", gain(*size)?)));
    let gains: Vec<String> = gains.collect();
    if gains.is_empty() {
        return ONE_CORE.to_owned();
    }
    format!("equal work: 2 layers on 2 cores have {} times the throughput of one core", gains.join(", "))
}
