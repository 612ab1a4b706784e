//! What came of a job.

use serde::Serialize;

use super::number::float;
use super::study::Study;

/// What came of a job under one policy with one seed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Outcome {
    /// Whether it ran to its end. It does not if too many servers are retired, or if failures come
    /// faster than checkpoints.
    pub is_finished: bool,
    /// From start to end, in milliseconds.
    pub elapsed_ms: u64,
    /// Computing time that was not lost, in milliseconds.
    pub computed_ms: u64,
    /// Computing time that was lost since the last checkpoints, in milliseconds.
    pub lost_ms: u64,
    /// Failures of servers.
    pub failures: u64,
    /// Alarms without a failure.
    pub false_alarms: u64,
    /// Failures of parts that several servers depend on, as far as the job noticed.
    pub parent_failures: u64,
    /// Interruptions after which lost servers were replaced.
    pub swaps: u64,
    /// Interruptions after which all servers were chosen again.
    pub requeues: u64,
    /// Spares that were fetched.
    pub fetched: u64,
    /// How often the job waited for a repair.
    pub waits: u64,
    /// Servers that left for good.
    pub retired: u64,
}

impl Outcome {
    /// The effective training time ratio: computing time that was not lost, of all time.
    pub fn ettr(&self) -> f64 {
        if self.elapsed_ms == 0 { 0.0 } else { float(self.computed_ms) / float(self.elapsed_ms) }
    }

    /// From start to end, in hours.
    pub fn hours(&self) -> f64 {
        float(self.elapsed_ms) / 3_600_000.0
    }

    /// Failures of servers, as a figure.
    pub fn failures(&self) -> f64 {
        float(self.failures)
    }

    /// Hours of computing between two failures, lost ones included.
    pub fn hours_between_failures(&self) -> Option<f64> {
        let computed = float(self.computed_ms + self.lost_ms) / 3_600_000.0;
        (self.failures > 0).then(|| computed / float(self.failures))
    }

    /// GPU-hours of the job in which it made no progress.
    pub fn lost_gpu_hours(&self, study: &Study) -> f64 {
        let gpus = u64::from(study.job.servers) * u64::from(study.fleet.gpus_per_server);
        float(self.elapsed_ms.saturating_sub(self.computed_ms)) / 3_600_000.0 * float(gpus)
    }
}
