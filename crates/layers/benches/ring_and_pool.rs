//! Ring and pool with criterion, each contender by itself: `cargo bench -p denrei-layers --bench
//! ring_and_pool`. For comparisons see `beside`, which interleaves.

mod work;

use criterion::{Criterion, Throughput, criterion_main};
use std::time::Duration;

type Work = fn(u64) -> Duration;

/// One group: a time per value for each contender.
fn group(c: &mut Criterion, name: &str, contenders: &[(&str, Work)]) {
    let mut group = c.benchmark_group(name);
    group.throughput(Throughput::Elements(1)).sample_size(20).measurement_time(Duration::from_secs(2));
    for (name, work) in contenders {
        group.bench_function(*name, |bencher| bencher.iter_custom(work));
    }
    group.finish();
}

fn ring(c: &mut Criterion) {
    let streams: [(&str, Work); 4] = [
        ("denrei", work::stream_denrei),
        ("denrei batches", work::stream_denrei_batched),
        ("rtrb", work::stream_rtrb),
        ("ArrayQueue", work::stream_array_queue),
    ];
    group(c, "ring stream", &streams);
    let trips: [(&str, Work); 3] =
        [("denrei", work::trips_denrei), ("rtrb", work::trips_rtrb), ("ArrayQueue", work::trips_array_queue)];
    group(c, "ring round trip", &trips);
}

fn pool(c: &mut Criterion) {
    let buffers: [(&str, Work); 4] = [
        ("denrei", work::buffers_pool),
        ("malloc", work::buffers_malloc),
        ("mimalloc", work::buffers_mimalloc),
        ("ring alone", work::buffers_none),
    ];
    group(c, "allocate, free elsewhere", &buffers);
}

// The macro makes a public function without documentation.
#[allow(missing_docs)]
mod groups {
    use super::{pool, ring};
    criterion::criterion_group!(benches, ring, pool);
}

criterion_main!(groups::benches);
