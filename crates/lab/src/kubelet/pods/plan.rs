//! Run time of a pod's containers, and the state after it (pure).
//!
//! Simulated containers run until their pod is deleted, unless annotations say otherwise.
//! `lab.octavo.dev/run-for: 5s` ends them after a time, and `lab.octavo.dev/exit-code: "1"` sets
//! the exit code.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;

/// Annotation with the run time of the containers: `500ms`, `5s`, `2m`, `1h`.
pub(crate) const RUN_FOR_ANNOTATION: &str = "lab.octavo.dev/run-for";
/// Annotation with the exit code after [`RUN_FOR_ANNOTATION`].
pub(crate) const EXIT_CODE_ANNOTATION: &str = "lab.octavo.dev/exit-code";

/// Behaviour of a pod's containers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    /// Run time; `None`: until the pod is deleted.
    pub(crate) run_for: Option<Duration>,
    /// Exit code.
    pub(crate) exit_code: i32,
    /// Restart policy of the pod.
    policy: RestartPolicy,
}

/// Next step after the containers have exited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AfterExit {
    /// The containers are restarted after a delay.
    Restart,
    /// The pod is finished.
    Finish { succeeded: bool },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RestartPolicy {
    Always,
    OnFailure,
    Never,
}

impl Plan {
    /// Reads the plan of `pod`; the error is for the pod's owner.
    pub(crate) fn of(pod: &Pod) -> Result<Self, String> {
        let annotation = |name: &str| pod.annotations().get(name);
        let run_for = match annotation(RUN_FOR_ANNOTATION) {
            Some(text) => Some(duration(text).ok_or_else(|| {
                format!("annotation {RUN_FOR_ANNOTATION}: {text:?} is not a time like 500ms, 5s, 2m or 1h")
            })?),
            None => None,
        };
        let exit_code = match annotation(EXIT_CODE_ANNOTATION) {
            Some(text) => text.parse::<u8>().map_err(|_| {
                format!("annotation {EXIT_CODE_ANNOTATION}: {text:?} is not within 0 to 255")
            })?,
            None => 0,
        };
        let policy = match pod.spec.as_ref().and_then(|spec| spec.restart_policy.as_deref()) {
            Some("Never") => RestartPolicy::Never,
            Some("OnFailure") => RestartPolicy::OnFailure,
            _ => RestartPolicy::Always,
        };
        Ok(Self { run_for, exit_code: i32::from(exit_code), policy })
    }

    /// Next step after the containers have exited.
    pub(crate) fn after_exit(&self) -> AfterExit {
        let succeeded = self.exit_code == 0;
        match self.policy {
            RestartPolicy::Always => AfterExit::Restart,
            RestartPolicy::OnFailure if !succeeded => AfterExit::Restart,
            RestartPolicy::OnFailure | RestartPolicy::Never => AfterExit::Finish { succeeded },
        }
    }
}

/// Delay before the `restarts`th restart: 1 s, doubled up to a minute. The kubelet starts at 10 s;
/// a test bed has less time.
pub(crate) fn restart_delay(restarts: i32) -> Duration {
    let doublings = u32::try_from(restarts).unwrap_or_default().min(6);
    Duration::from_secs(1 << doublings).min(Duration::from_mins(1))
}

fn duration(text: &str) -> Option<Duration> {
    let digits = text.find(|c: char| !c.is_ascii_digit())?;
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().ok()?;
    let unit = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        _ => return None,
    };
    number.checked_mul(unit).map(Duration::from_millis)
}

#[cfg(test)]
mod tests;
