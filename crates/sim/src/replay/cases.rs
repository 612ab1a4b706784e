//! The single runs that options ask for.

use std::sync::Arc;
use std::time::Instant;

use octavo_engine::Shape;
use octavo_engine::fragmentation::TypicalPods;

use super::play::Stage;
use super::{Options, Order, Policy, ReplayError, Run, Watch, policy};
use crate::arrivals::{self, Arrivals};
use crate::cluster_from;
use crate::metrics::DecisionTimes;
use crate::trace::Trace;

/// A policy with a seed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Case {
    policy: Policy,
    seed: i64,
}

/// Policy by policy, seed by seed.
pub(super) fn of(options: &Options) -> Vec<Case> {
    let seeds = |policy: Policy| options.seeds.iter().map(move |seed| Case { policy, seed: *seed });
    options.policies.iter().flat_map(|policy| seeds(*policy)).collect()
}

/// What all runs on a trace have in common.
pub(super) struct Ground<'a> {
    trace: &'a Trace,
    shapes: Vec<Arc<Shape>>,
    typical: Arc<TypicalPods>,
}

impl<'a> Ground<'a> {
    pub(super) fn of(trace: &'a Trace) -> Self {
        let shapes = cluster_from::shapes(trace);
        let typical = Arc::new(cluster_from::typical(trace, &shapes));
        Self { trace, shapes, typical }
    }

    pub(super) fn run(
        &self,
        case: Case,
        options: &Options,
        watch: &dyn Watch,
    ) -> Result<Run, ReplayError> {
        let begin = Instant::now();
        let order = match options.order {
            Order::File => arrivals::Order::Listed,
            Order::Created => arrivals::Order::ByCreationTime,
            Order::Shuffled => {
                arrivals::Order::Shuffled { seed: case.seed, factor: options.inflate }
            }
        };
        let arrivals = Arrivals::of(self.trace, order)?;
        let stage = Stage {
            trace: self.trace,
            shapes: &self.shapes,
            arrivals: &arrivals,
            departures: options.departures,
            target: options.inflate.map(arrivals::Factor::value),
            typical: &self.typical,
        };
        let setup = policy::Setup {
            shapes: &self.shapes,
            typical: &self.typical,
            seed: case.seed,
            popularity: options.popularity,
        };
        let mut packing = case.policy.build(&setup)?;
        let played = stage.play(&mut *packing, watch)?;
        let run = Run {
            policy: case.policy,
            popularity: case.policy.popularity(options.popularity),
            seed: case.seed,
            placement_hash: played.log.hash(),
            valid: played.verdict.is_ok(),
            violation: played.verdict.err(),
            times: DecisionTimes::of(played.times),
            metrics: played.metrics,
            curve: played.curve,
            log: played.log,
            wall_s: begin.elapsed().as_secs_f64(),
        };
        watch.finished(&run);
        Ok(run)
    }
}
