//! The single runs that options ask for.

use std::sync::Arc;
use std::time::Instant;

use octavo_engine::Shape;
use octavo_engine::fragmentation::TypicalPods;

use super::replayer::Replay;
use super::{Options, Order, Policy, ReplayError, ReplayObserver, Run, policy};
use crate::arrivals::{self, Arrivals};
use crate::metrics::DecisionTimes;
use crate::trace::Trace;
use crate::trace_cluster;

/// A policy with a seed.
#[derive(Clone, Copy, Debug)]
pub(super) struct RunSpec {
    policy: Policy,
    seed: i64,
}

/// Policy by policy, seed by seed.
pub(super) fn all(options: &Options) -> Vec<RunSpec> {
    let seeds =
        |policy: Policy| options.seeds.iter().map(move |seed| RunSpec { policy, seed: *seed });
    options.policies.iter().flat_map(|policy| seeds(*policy)).collect()
}

/// Inputs that all runs on a trace share.
pub(super) struct SharedInputs<'a> {
    trace: &'a Trace,
    shapes: Vec<Arc<Shape>>,
    typical: Arc<TypicalPods>,
}

impl<'a> SharedInputs<'a> {
    pub(super) fn new(trace: &'a Trace) -> Self {
        let shapes = trace_cluster::shapes(trace);
        let typical = Arc::new(trace_cluster::typical(trace, &shapes));
        Self { trace, shapes, typical }
    }

    pub(super) fn run(
        &self,
        spec: RunSpec,
        options: &Options,
        observer: &dyn ReplayObserver,
    ) -> Result<Run, ReplayError> {
        let begin = Instant::now();
        let order = match options.order {
            Order::File => arrivals::Order::Listed,
            Order::Created => arrivals::Order::ByCreationTime,
            Order::Shuffled => {
                arrivals::Order::Shuffled { seed: spec.seed, factor: options.inflate }
            }
        };
        let arrivals = Arrivals::of(self.trace, order)?;
        let replay = Replay {
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
            seed: spec.seed,
            popularity: options.popularity,
        };
        let mut packing = spec.policy.build(&setup)?;
        let result = replay.run(&mut *packing, observer)?;
        let run = Run {
            policy: spec.policy,
            popularity: spec.policy.popularity(options.popularity),
            seed: spec.seed,
            placement_hash: result.log.hash(),
            valid: result.verdict.is_ok(),
            violation: result.verdict.err(),
            times: DecisionTimes::of(result.times),
            metrics: result.metrics,
            curve: result.curve,
            log: result.log,
            wall_time_s: begin.elapsed().as_secs_f64(),
        };
        observer.finished(&run);
        Ok(run)
    }
}
