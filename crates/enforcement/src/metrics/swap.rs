//! Metrics of memory that is moved between GPUs and the host.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};

use super::ShareLabels;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct MoveLabels {
    #[prometheus(flatten)]
    share: ShareLabels,
    direction: &'static str,
    result: &'static str,
}

const DIRECTIONS: [&str; 2] = ["out", "in"];
const RESULTS: [&str; 2] = ["moved", "failed"];

/// The metrics.
#[derive(Debug, Default)]
pub(super) struct SwapMetrics {
    swapped: Family<ShareLabels, Gauge>,
    moves: Family<MoveLabels, Counter>,
    seconds: Family<MoveLabels, Counter<f64, AtomicU64>>,
}

impl SwapMetrics {
    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register_with_unit(
            "octavo_agent_share_memory_swapped",
            "Memory of a share that is on the host",
            Unit::Bytes,
            self.swapped.clone(),
        );
        registry.register(
            "octavo_agent_share_swaps",
            "Moves of a share's memory to the host (out) and back (in)",
            self.moves.clone(),
        );
        registry.register_with_unit(
            "octavo_agent_share_swap",
            "Time that moves of a share's memory took",
            Unit::Seconds,
            self.seconds.clone(),
        );
    }

    pub(super) fn set(&self, share: &ShareLabels, bytes: u64) {
        self.swapped.get_or_create(share).set(i64::try_from(bytes).unwrap_or(i64::MAX));
    }

    pub(super) fn count(&self, share: &ShareLabels, is_out: bool, is_done: bool, took: Duration) {
        let labels =
            labels(share, DIRECTIONS[usize::from(!is_out)], RESULTS[usize::from(!is_done)]);
        self.moves.get_or_create(&labels).inc();
        self.seconds.get_or_create(&labels).inc_by(took.as_secs_f64());
    }

    pub(super) fn remove(&self, share: &ShareLabels) {
        self.swapped.remove(share);
        for direction in DIRECTIONS {
            for result in RESULTS {
                let labels = labels(share, direction, result);
                self.moves.remove(&labels);
                self.seconds.remove(&labels);
            }
        }
    }
}

fn labels(share: &ShareLabels, direction: &'static str, result: &'static str) -> MoveLabels {
    MoveLabels { share: share.clone(), direction, result }
}
