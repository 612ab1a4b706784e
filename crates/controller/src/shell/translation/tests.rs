//! The webhook against an API server of scripted answers.

mod certificates;
mod collector;
mod server;
mod templates;

use prometheus_client::registry::Registry;

use crate::metrics::Metrics;
use crate::shell::leader::Leader;
use crate::shell::leadership::Leadership;

fn metrics() -> Metrics {
    Metrics::new(&mut Registry::default())
}

fn leader() -> Leader {
    Leader { leadership: Leadership::always(), metrics: metrics() }
}
