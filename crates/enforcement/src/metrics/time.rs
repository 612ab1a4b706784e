//! Metrics of the GPU time of shares, while there are leases.

use std::sync::atomic::AtomicU64;

use octavo_arbiter::ShareTime;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};

use super::ShareLabels;

/// Seconds that only grow.
type Seconds = Family<ShareLabels, Counter<f64, AtomicU64>>;

/// The metrics.
#[derive(Debug, Default)]
pub(super) struct TimeMetrics {
    used: Seconds,
    waited: Seconds,
    throttled: Seconds,
    turns: Family<ShareLabels, Counter>,
    debt: Family<ShareLabels, Gauge<f64, AtomicU64>>,
}

impl TimeMetrics {
    pub(super) fn register(&self, registry: &mut Registry) {
        let mut seconds = |name: &str, help: &str, family: &Seconds| {
            registry.register_with_unit(name, help, Unit::Seconds, family.clone());
        };
        seconds(
            "octavo_agent_share_time_used",
            "GPU time in which a share ran, or had the GPU alone and was not looked at",
            &self.used,
        );
        seconds(
            "octavo_agent_share_time_waited",
            "Time in which a share waited for other shares of its GPU",
            &self.waited,
        );
        seconds(
            "octavo_agent_share_time_throttled",
            "Time in which a share waited because of its limit",
            &self.throttled,
        );
        registry.register(
            "octavo_agent_share_turns",
            "Turns that a share had on its GPU",
            self.turns.clone(),
        );
        registry.register_with_unit(
            "octavo_agent_share_time_debt",
            "GPU time that a share used beyond what was due to it",
            Unit::Seconds,
            self.debt.clone(),
        );
    }

    /// Takes the time that a share has had since the agent began.
    pub(super) fn set(&self, share: &ShareLabels, time: ShareTime) {
        let ShareTime { used, waited, throttled, turns, debt, waiting: _ } = time;
        let totals = [(&self.used, used), (&self.waited, waited), (&self.throttled, throttled)];
        for (family, total) in totals {
            let counter = family.get_or_create(share);
            counter.inc_by((seconds(total) - counter.get()).max(0.0));
        }
        let counter = self.turns.get_or_create(share);
        counter.inc_by(turns.saturating_sub(counter.get()));
        self.debt.get_or_create(share).set(seconds(debt));
    }

    pub(super) fn remove(&self, share: &ShareLabels) {
        for family in [&self.used, &self.waited, &self.throttled] {
            family.remove(share);
        }
        self.turns.remove(share);
        self.debt.remove(share);
    }
}

/// Nanoseconds as seconds.
#[allow(clippy::cast_precision_loss, reason = "a metric needs no nanosecond of a century")]
fn seconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e9
}
