use super::classes::is_constrained;
use super::curve::Ticks;
use super::over_time::Integral;
use super::published_bin::PublishedBin;
use super::{CurvePoint, Fragments, Metrics, float, ratio};
use crate::trace::PodRow;

/// Facts about a run that are known before it starts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MeterSetup {
    pub(crate) nodes: usize,
    pub(crate) gpus: u64,
    /// Demand that the arrivals were brought to, in parts of the GPUs.
    pub(crate) target: Option<f64>,
    /// Time of the first and last event of a run in which pods leave.
    pub(crate) span: Option<(u64, u64)>,
}

/// The cluster after an event.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClusterUsage {
    /// Seconds since the start of the trace.
    pub(crate) time: Option<u64>,
    /// Allocated thousandths of GPUs.
    pub(crate) used: u64,
    pub(crate) unused_gpus: i64,
    pub(crate) fragments: Fragments,
}

/// Measures a run, event by event.
pub(crate) struct Meter {
    metrics: Metrics,
    capacity: u64,
    wanted: u64,
    used: u64,
    bin: Option<PublishedBin>,
    integral: Option<Integral>,
    ticks: Ticks,
    curve: Vec<CurvePoint>,
    has_reached_0_9: bool,
}

impl Meter {
    pub(crate) fn new(setup: MeterSetup) -> Self {
        let metrics = Metrics { nodes: setup.nodes, gpus: setup.gpus, ..Metrics::default() };
        Self {
            metrics,
            capacity: setup.gpus * 1000,
            wanted: 0,
            used: 0,
            bin: setup.target.map(PublishedBin::at),
            integral: setup.span.map(|_| Integral::default()),
            ticks: setup
                .span
                .map_or_else(Ticks::by_demand, |(first, last)| Ticks::by_time(first, last)),
            curve: Vec::new(),
            has_reached_0_9: false,
        }
    }

    /// Advances the time to the next event.
    pub(crate) fn advance(&mut self, at: Option<u64>) {
        if let (Some(integral), Some(at)) = (&mut self.integral, at) {
            integral.advance(at, self.wanted, self.used);
        }
    }

    /// A pod came and was placed or skipped.
    pub(crate) fn arrived(&mut self, pod: &PodRow, is_placed: bool, usage: &ClusterUsage) {
        self.wanted += pod.total_gpu_milli();
        self.used = usage.used;
        let wanted = ratio(self.wanted, self.capacity).unwrap_or_default();
        let metrics = &mut self.metrics;
        metrics.pods += 1;
        metrics.accepted.count(pod, is_placed, wanted);
        if !is_placed {
            metrics.skipped += 1;
            metrics.first_skip_any.get_or_insert(wanted);
            if pod.num_gpu > 0 && !is_constrained(pod) {
                metrics.first_skip.get_or_insert(wanted);
            }
        }
        metrics.wanted_ratio = wanted;
        metrics.allocated_ratio = ratio(self.used, self.capacity).unwrap_or_default();
        metrics.idle_gpus = float(self.capacity.saturating_sub(self.used)) / 1000.0;
        metrics.unused_gpus = usage.unused_gpus;
        metrics.fragmentation = usage.fragments;
        if let Some(bin) = &mut self.bin {
            bin.note(self.wanted, self.used, metrics.gpus);
        }
        if let Some(integral) = &mut self.integral {
            integral.note_peak(self.used);
        }
        // Without GPUs, no demand is ever reached.
        if !self.has_reached_0_9 && self.capacity > 0 && self.wanted * 10 >= self.capacity * 9 {
            self.has_reached_0_9 = true;
            metrics.allocated_at_0_9 = Some(metrics.allocated_ratio);
            metrics.fragmentation_at_0_9 = Some(usage.fragments);
        }
        self.tick(usage);
    }

    /// Records that a skipped pod would have fit a node.
    pub(crate) fn refused(&mut self) {
        self.metrics.refused += 1;
    }

    /// Records the end of a pod's lifetime; the pod may have been skipped.
    pub(crate) fn departed(&mut self, pod: &PodRow, usage: &ClusterUsage) {
        self.wanted = self.wanted.saturating_sub(pod.total_gpu_milli());
        self.used = usage.used;
        self.tick(usage);
    }

    /// Ends the measurement.
    pub(crate) fn finish(mut self, usage: &ClusterUsage) -> (Metrics, Vec<CurvePoint>) {
        self.metrics.accepted_multi_gpu = self.metrics.accepted.multi_gpu.ratio;
        self.metrics.allocated_ratio_published = self.bin.as_ref().and_then(PublishedBin::finish);
        self.metrics.over_time = self.integral.as_ref().and_then(|sums| sums.finish(self.capacity));
        // The curve includes the end, whatever the ticks are.
        let last = self.point(usage);
        if self.curve.last().is_none_or(|point| *point != last) {
            self.curve.push(last);
        }
        (self.metrics, self.curve)
    }

    fn tick(&mut self, usage: &ClusterUsage) {
        if self.ticks.take_due(usage.time, self.wanted, self.capacity) {
            let point = self.point(usage);
            self.curve.push(point);
        }
    }

    fn point(&self, usage: &ClusterUsage) -> CurvePoint {
        CurvePoint {
            time: usage.time,
            wanted: ratio(self.wanted, self.capacity).unwrap_or_default(),
            allocated: ratio(self.used, self.capacity).unwrap_or_default(),
            fragmentation: usage.fragments.ratio,
            skipped: self.metrics.skipped,
        }
    }
}
