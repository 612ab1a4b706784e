use std::sync::Arc;
use std::time::{Duration, Instant};

use octavo_engine::fragmentation::TypicalPods;
use octavo_engine::{Choice, Cluster, Packing, Shape, fit};

use super::log::{Entry, Log, Place};
use super::{ReplayError, ReplayObserver};
use crate::arrivals::{Arrivals, Change};
use crate::metrics::{
    ClusterFragmentation, ClusterUsage, CurvePoint, Fragments, Meter, MeterSetup, Metrics,
};
use crate::trace::{PodRow, Trace};
use crate::trace_cluster::TraceCluster;
use crate::validate::Totals;

/// Events between two progress reports.
const PROGRESS_INTERVAL: usize = 256;

/// The inputs of a replay.
pub(super) struct Replay<'a> {
    pub(super) trace: &'a Trace,
    /// Of each pod of the trace.
    pub(super) shapes: &'a [Arc<Shape>],
    pub(super) arrivals: &'a Arrivals,
    pub(super) departures: bool,
    /// Demand over capacity that the arrivals were brought to.
    pub(super) target: Option<f64>,
    pub(super) typical: &'a Arc<TypicalPods>,
}

/// The result of a replay.
#[derive(Clone, Debug)]
pub struct ReplayResult {
    /// Figures.
    pub metrics: Metrics,
    /// The curve.
    pub curve: Vec<CurvePoint>,
    /// The placement of each pod.
    pub log: Log,
    /// Time of each decision, in order.
    pub times: Vec<Duration>,
    /// The validator's result.
    pub verdict: Result<Totals, String>,
}

/// Replays arrivals with any policy: for benchmarks and for policies without a name here. Without
/// `departures`, departure events are ignored.
pub fn replay_with(
    trace: &Trace,
    arrivals: &Arrivals,
    departures: bool,
    policy: &mut dyn Packing,
) -> Result<ReplayResult, ReplayError> {
    let shapes = crate::trace_cluster::shapes(trace);
    let typical = Arc::new(crate::trace_cluster::typical(trace, &shapes));
    let replay =
        Replay { trace, shapes: &shapes, arrivals, departures, target: None, typical: &typical };
    replay.run(policy, &super::NoObserver)
}

/// A run in active.
struct ActiveReplay<'a> {
    replay: &'a Replay<'a>,
    nodes: TraceCluster,
    policy: &'a mut dyn Packing,
    meter: Meter,
    fragmentation: ClusterFragmentation,
    log: Log,
    times: Vec<Duration>,
    /// Placement of each placed pod, by its index in the arrivals.
    placements: Vec<Option<octavo_engine::Placement>>,
}

impl Replay<'_> {
    pub(super) fn run(
        &self,
        policy: &mut dyn Packing,
        observer: &dyn ReplayObserver,
    ) -> Result<ReplayResult, ReplayError> {
        let nodes = TraceCluster::new(self.trace, &self.arrivals.node_order)?;
        let times = self.arrivals.events.iter().filter_map(|event| event.at);
        let span = times.clone().min().zip(times.max()).filter(|_| self.departures);
        let setup = MeterSetup {
            nodes: self.trace.nodes.len(),
            gpus: self.trace.nodes.iter().map(|node| u64::from(node.gpus)).sum(),
            target: self.target.filter(|_| !self.departures),
            span,
        };
        let active = ActiveReplay {
            replay: self,
            nodes,
            policy,
            meter: Meter::new(setup),
            fragmentation: ClusterFragmentation::new(Arc::clone(self.typical)),
            log: Log::of(self.trace, self.arrivals),
            times: Vec::with_capacity(self.arrivals.pods.len()),
            placements: vec![None; self.arrivals.pods.len()],
        };
        Ok(active.run(observer))
    }
}

impl<'a> ActiveReplay<'a> {
    fn run(mut self, observer: &dyn ReplayObserver) -> ReplayResult {
        let events = &self.replay.arrivals.events;
        let mut stopped = None;
        let mut now = None;
        for (index, event) in events.iter().enumerate() {
            if let (Change::Depart(_), false) = (event.change, self.replay.departures) {
                continue;
            }
            now = event.at;
            self.meter.advance(now);
            let done = match event.change {
                Change::Arrive(pod) => self.arrive(pod, now),
                Change::Depart(pod) => self.depart(pod, now),
            };
            if let Err(misfit) = done {
                stopped = Some(misfit);
                break;
            }
            if (index + 1) % PROGRESS_INTERVAL == 0 {
                observer.advanced(PROGRESS_INTERVAL, events.len());
            }
        }
        let verdict = self.check_log(stopped);
        let usage = self.usage(now);
        let (metrics, curve) = self.meter.finish(&usage);
        ReplayResult { metrics, curve, log: self.log, times: self.times, verdict }
    }

    fn arrive(&mut self, pod: usize, now: Option<u64>) -> Result<(), String> {
        let Some((row, shape)) = self.pod(pod) else { return Ok(()) };
        let begin = Instant::now();
        self.policy.arrived(shape);
        let choice = self.policy.choose(&self.nodes.cluster, shape);
        let placed = match &choice {
            Some(choice) => self.nodes.cluster.place(&shape.resources, &choice.placement),
            None => Ok(()),
        };
        if let (Some(choice), Ok(())) = (&choice, &placed) {
            self.policy.placed(shape, &choice.placement);
        }
        self.times.push(begin.elapsed());
        // Impossible placements are logged too, for the validator.
        let place = choice.as_ref().map(|choice| self.place(choice));
        let is_placed = place.is_some();
        self.log.entries.push(Entry::Arrived { pod, place });
        placed.map_err(|misfit| misfit.to_string())?;
        self.placements[pod] = choice.map(|choice| choice.placement);
        if !is_placed && has_room(&self.nodes.cluster, shape) {
            self.meter.refused();
        }
        let usage = self.usage(now);
        self.meter.arrived(row, is_placed, &usage);
        Ok(())
    }

    fn depart(&mut self, pod: usize, now: Option<u64>) -> Result<(), String> {
        let Some((row, shape)) = self.pod(pod) else { return Ok(()) };
        if let Some(placement) = self.placements.get_mut(pod).and_then(Option::take) {
            self.log.entries.push(Entry::Departed { pod });
            let released = self.nodes.cluster.release(&shape.resources, &placement);
            released.map_err(|misfit| misfit.to_string())?;
            self.policy.released(shape, &placement);
        }
        let usage = self.usage(now);
        self.meter.departed(row, &usage);
        Ok(())
    }

    fn pod(&self, pod: usize) -> Option<(&'a PodRow, &'a Arc<Shape>)> {
        let row = self.replay.arrivals.pods.get(pod)?.row;
        Some((self.replay.trace.pods.get(row)?, self.replay.shapes.get(row)?))
    }

    fn place(&self, choice: &Choice) -> Place {
        let placement = &choice.placement;
        let row = self.nodes.row(placement.node).and_then(|row| self.replay.trace.nodes.get(row));
        let gpu = |part: &octavo_engine::GpuPart| (u32::from(part.gpu), u32::from(part.milli));
        Place {
            node: row.map_or_else(String::new, |node| node.name.clone()),
            gpus: placement.gpus.iter().map(gpu).collect(),
        }
    }

    /// The current state of the cluster.
    fn usage(&mut self, time: Option<u64>) -> ClusterUsage {
        let amounts = self.fragmentation.total(&self.nodes.cluster);
        let totals = self.nodes.cluster.totals();
        ClusterUsage {
            time,
            used: u64::try_from(totals.used_milli).unwrap_or_default(),
            unused_gpus: totals.unused_gpus,
            fragments: Fragments::of(&amounts),
        }
    }

    /// The validator's word, and whether the engine and the validator agree on the sums.
    fn check_log(&self, stopped: Option<String>) -> Result<Totals, String> {
        let log = self.log.validate(self.replay.trace, self.replay.arrivals);
        let totals = log.map_err(|violation| violation.to_string())?;
        if let Some(misfit) = stopped {
            return Err(format!("the engine stopped the run: {misfit}"));
        }
        let used = self.nodes.cluster.totals().used_milli;
        if i64::try_from(totals.allocated_gpu_milli) != Ok(used) {
            return Err(format!(
                "the engine counts {used} milli of allocated GPUs, the log sums to {}",
                totals.allocated_gpu_milli
            ));
        }
        Ok(totals)
    }
}

/// Whether a pod fits some open node.
fn has_room(cluster: &Cluster, shape: &Shape) -> bool {
    cluster.states().iter().any(|(_, state, _)| fit::fits(cluster, state, shape))
}
