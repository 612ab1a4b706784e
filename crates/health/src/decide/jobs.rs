//! Which jobs had application errors on which devices.

use serde::{Deserialize, Serialize};

use crate::signal::JobId;
use crate::unit::DeviceId;

/// Application errors of late. Those whose job is not known may all be of one job, also of one that is known.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct Jobs(Vec<Record>);

/// The last error of a job on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Record {
    job: JobId,
    device: DeviceId,
    at: u64,
}

impl Jobs {
    /// Notes an error of a job on a device. Returns whether the device is suspect: within `window` seconds several jobs had
    /// errors on it, and on no other device. A job with errors on several devices is itself to blame. An error without a known job
    /// is no error of another job.
    pub(super) fn note(
        &mut self,
        job: Option<JobId>,
        device: DeviceId,
        at: u64,
        window: u64,
    ) -> bool {
        let Some(job) = job else { return false };
        self.0.retain(|record| at.saturating_sub(record.at) < window);
        match self.0.iter_mut().find(|record| (record.job, record.device) == (job, device)) {
            Some(record) => record.at = record.at.max(at),
            None => self.0.push(Record { job, device, at }),
        }
        let of_job = |job| self.0.iter().filter(move |record| record.job == job);
        let here = self.0.iter().filter(|record| record.device == device);
        here.filter(|record| of_job(record.job).count() == 1).count() > 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GPU: DeviceId = DeviceId(0);

    fn notes(notes: &[(u64, DeviceId, u64)]) -> bool {
        let mut jobs = Jobs::default();
        let note = |(job, device, at): &(u64, DeviceId, u64)| {
            jobs.note(Some(JobId(*job)), *device, *at, 100)
        };
        notes.iter().map(note).last().unwrap_or_default()
    }

    #[test]
    fn several_jobs_on_one_device_blame_it() {
        assert!(!notes(&[(1, GPU, 0)]));
        assert!(!notes(&[(1, GPU, 0), (1, GPU, 5)]), "a job that fails again is one job");
        assert!(notes(&[(1, GPU, 0), (2, GPU, 99)]));
        assert!(!notes(&[(1, GPU, 0), (2, GPU, 100)]), "too long ago");
    }

    #[test]
    fn a_job_on_several_devices_is_to_blame() {
        assert!(!notes(&[(1, GPU, 0), (1, DeviceId(1), 0), (2, GPU, 1)]));
        assert!(notes(&[(1, GPU, 0), (1, DeviceId(1), 0), (2, GPU, 1), (3, GPU, 1)]));
    }

    #[test]
    fn unknown_jobs_are_no_other_jobs() {
        let mut jobs = Jobs::default();
        assert!(!jobs.note(None, GPU, 0, 100));
        assert!(!jobs.note(None, GPU, 1, 100));
        assert!(!jobs.note(Some(JobId(1)), GPU, 2, 100));
        assert!(!jobs.note(None, GPU, 3, 100));
        assert!(jobs.note(Some(JobId(2)), GPU, 4, 100));
    }
}
