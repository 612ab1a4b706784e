//! What must not happen.

use std::time::Duration;

use serde::Serialize;

use super::judge::DeviceName;

/// An invariant that did not hold, and when that was seen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Violation {
    /// Seconds since the begin of the run.
    pub(crate) at_seconds: u64,
    /// Its kind, for programs.
    pub(crate) kind: &'static str,
    /// What was seen, for people.
    pub(crate) message: String,
}

/// An invariant that did not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Broken {
    /// Two claims have one GPU.
    GivenTwice { device: DeviceName, claims: [String; 2] },
    /// A claim got a GPU that had a taint for long.
    GivenWhileTainted { device: DeviceName, claim: String, since: Duration },
    /// A pod had to leave whose GPU had no fault.
    PodKilled { pod: String, devices: Vec<DeviceName> },
    /// A GPU without a fault went out of service.
    FalseFence { device: DeviceName, state: String, reason: String },
    /// A GPU came back without a test or a release.
    UntestedReturn { device: DeviceName, attempt: i64 },
    /// A GPU came back although the driver does not call it well, so that no test can have passed.
    ReturnedSick { device: DeviceName },
    /// A GPU was reset more often than there were attempts.
    RemedyRepeated { device: DeviceName, resets: u64, attempts: u64 },
    /// A GPU retired without a bad board, a person's word, relapses or remedies that failed.
    RetiredWithoutCause { device: DeviceName, reason: String },
    /// The number of attempts of a GPU fell.
    AttemptsFell { device: DeviceName, from: i64, to: i64 },
    /// A GPU failed, and no fence was seen.
    NotFenced { device: DeviceName },
    /// A GPU is still out of service at the end.
    NotReturned { device: DeviceName, state: String, reason: String, waits: String },
    /// Pods do not run at the end, although there are GPUs for them.
    PodsMissing { wanted: usize, running: usize, others: Vec<String> },
}

impl Broken {
    /// As a violation.
    pub(super) fn at(&self, at: Duration) -> Violation {
        Violation { at_seconds: at.as_secs(), kind: self.kind(), message: self.message() }
    }

    fn kind(&self) -> &'static str {
        match self {
            Self::GivenTwice { .. } => "GivenTwice",
            Self::GivenWhileTainted { .. } => "GivenWhileTainted",
            Self::PodKilled { .. } => "PodKilled",
            Self::FalseFence { .. } => "FalseFence",
            Self::UntestedReturn { .. } => "UntestedReturn",
            Self::ReturnedSick { .. } => "ReturnedSick",
            Self::RemedyRepeated { .. } => "RemedyRepeated",
            Self::RetiredWithoutCause { .. } => "RetiredWithoutCause",
            Self::AttemptsFell { .. } => "AttemptsFell",
            Self::NotFenced { .. } => "NotFenced",
            Self::NotReturned { .. } => "NotReturned",
            Self::PodsMissing { .. } => "PodsMissing",
        }
    }

    fn message(&self) -> String {
        match self {
            Self::GivenTwice { device, claims: [one, other] } => {
                format!("{device} is allocated to the claims {one} and {other}")
            }
            Self::GivenWhileTainted { device, claim, since } => {
                format!(
                    "{device} was allocated to {claim}, and had a taint for {} s",
                    since.as_secs()
                )
            }
            Self::PodKilled { pod, devices } => {
                let devices: Vec<String> = devices.iter().map(ToString::to_string).collect();
                format!(
                    "pod {pod} had to leave, and no fault was made of its GPUs [{}]",
                    devices.join(", ")
                )
            }
            Self::FalseFence { device, state, reason } => {
                format!("{device} became {state} for {reason}, and no fault was made of it")
            }
            Self::UntestedReturn { device, attempt } => {
                format!("{device} returned without a test: its last attempt is {attempt} as before")
            }
            Self::ReturnedSick { device } => {
                format!("{device} returned while the driver advised to remedy it: no test passed")
            }
            Self::RemedyRepeated { device, resets, attempts } => {
                format!("{device} was reset {resets} times by {attempts} attempts")
            }
            Self::RetiredWithoutCause { device, reason } => {
                format!("{device} retired for {reason} without a cause that was made")
            }
            Self::AttemptsFell { device, from, to } => {
                format!("{device} had {from} attempts, and then {to}")
            }
            Self::NotFenced { device } => {
                format!("{device} failed, and was not fenced until the end")
            }
            Self::NotReturned { device, state, reason, waits } => {
                format!("{device} is {state} for {reason} at the end, and waits for {waits}")
            }
            Self::PodsMissing { wanted, running, others } => {
                let others = others.join(", ");
                format!(
                    "{running} of {wanted} pods run at the end, although there are GPUs for all; not [{others}]"
                )
            }
        }
    }
}
