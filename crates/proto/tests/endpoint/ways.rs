//! The same tests with packets that are protected in different ways.

use denrei_proto::Config;
use denrei_proto::seal::ClusterKey;
use std::cell::Cell;
use std::panic::{catch_unwind, resume_unwind};
use std::sync::Arc;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Plain,
    Sealed,
    Staged,
}

thread_local! {
    static WAY: Cell<Way> = const { Cell::new(Way::Plain) };
}

/// Runs a test in one way. Where all run in one thread, those that follow one that fails are not in its way.
fn run_in(way: Way, test: fn()) {
    WAY.set(way);
    let ended = catch_unwind(test);
    WAY.set(Way::Plain);
    ended.unwrap_or_else(|panic| resume_unwind(panic));
}

/// Runs a test whose packets are protected by what it sets itself.
pub fn plain(test: fn()) {
    run_in(Way::Plain, test);
}

/// Runs a test where every endpoint has the cluster key.
pub fn sealed(test: fn()) {
    run_in(Way::Sealed, test);
}

/// Runs a test where packets are sealed and opened outside of the endpoints, as on other cores: all that arrive
/// together are opened before the first is handled.
pub fn staged(test: fn()) {
    run_in(Way::Staged, test);
}

/// Makes tests of functions, once in each of these ways: `tests! { plain sealed => { one, another, } }`. Of one that is left
/// out the compiler says that nobody uses it.
macro_rules! tests {
    ($($way:ident)* => $tests:tt) => {
        $(mod $way { crate::ways::tests!(@$way $tests); })*
    };
    (@$way:ident { $($test:ident,)* }) => {
        $(
            #[test]
            fn $test() {
                crate::ways::$way(super::$test);
            }
        )*
    };
}
pub(crate) use tests;

/// A configuration, with what the test's way adds.
pub fn secured(config: Config) -> Arc<Config> {
    let cluster_key = config.cluster_key.or_else(|| is_sealed().then(|| ClusterKey::from_bytes([0x5e; 32])));
    Arc::new(Config { cluster_key, ..config })
}

/// Whether every endpoint has the cluster key.
pub fn is_sealed() -> bool {
    WAY.get() != Way::Plain
}

/// Whether packets are sealed and opened outside of the endpoints.
pub fn is_staged() -> bool {
    WAY.get() == Way::Staged
}
