//! Ring and pool beside their yardsticks, by turns in one run: `cargo bench -p denrei-layers --bench
//! beside`. Interleaved, so that what disturbs one disturbs the other; figures are medians over the
//! turns, ratios the medians of the ratios within a turn.

mod work;

use std::time::Duration;

/// Turns: an odd number, so that the median is one of them.
const TURNS: usize = 21;

type Work = fn(u64) -> Duration;

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Measures contenders by turns and prints a line each; the first is what others are compared with.
fn compare(title: &str, unit: &str, count: u64, per_item: f64, contenders: &[(&str, Work)]) {
    let mut times = vec![Vec::new(); contenders.len()];
    for turn in 0..TURNS {
        for place in 0..contenders.len() {
            let which = (turn + place) % contenders.len();
            let elapsed = contenders[which].1(count);
            times[which].push(elapsed.as_nanos() as f64 / count as f64 * per_item);
        }
    }
    println!("{title}");
    for ((name, _), own) in contenders.iter().zip(&times) {
        let ratios = times[0].iter().zip(own).map(|(first, own)| first / own).collect();
        println!("  {name:<18} {:8.2} {unit}   {:.3} of it is ours", median(own.clone()), median(ratios));
    }
}

fn main() {
    // `cargo test --benches` only wants to see that it runs.
    let scale = if std::env::args().any(|arg| arg == "--bench") { 1 } else { 1000 };
    let streams: [(&str, Work); 4] = [
        ("ring", work::stream_denrei),
        ("ring, batches", work::stream_denrei_batched),
        ("rtrb", work::stream_rtrb),
        ("ArrayQueue", work::stream_array_queue),
    ];
    compare("time per value, streaming", "ns", 2_000_000 / scale, 1.0, &streams);
    let trips: [(&str, Work); 3] =
        [("ring", work::trips_denrei), ("rtrb", work::trips_rtrb), ("ArrayQueue", work::trips_array_queue)];
    compare("latency, one way", "ns", 100_000 / scale, 0.5, &trips);
    let buffers: [(&str, Work); 4] = [
        ("pool", work::buffers_pool),
        ("malloc (C library)", work::buffers_malloc),
        ("mimalloc", work::buffers_mimalloc),
        ("ring alone", work::buffers_none),
    ];
    compare("allocate, hand over, free in the other thread", "ns", 500_000 / scale, 1.0, &buffers);
}
