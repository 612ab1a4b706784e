//! The document of a study: a fleet, one job on it, and what fails.
//!
//! Every field has a default. The defaults describe a fleet of A100 or H100 servers by what is
//! published: 6.5 failures in 1,000 server-days on average (Meta's RSC-1), bad servers as on 504
//! B200 GPUs (5 % fail 20 times as often), repairs as in AIReSim.

mod check;
#[cfg(test)]
mod tests;

use octavo_health::risk::{Model, Settings};
use serde::{Deserialize, Serialize};

use super::span::Span;

pub use check::StudyError;

/// A fleet, a job and what fails.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Study {
    /// The servers.
    pub fleet: Fleet,
    /// The job.
    pub job: Job,
    /// What fails, and what is seen of it.
    pub failures: Failures,
    /// The servers that fail more often.
    pub lemons: Lemons,
    /// What a repair does.
    pub repair: Repair,
    /// How the job starts again.
    pub restart: Restart,
    /// How the job saves its work.
    pub checkpoints: Checkpoints,
    /// What the policy `octavo` assumes.
    pub octavo: Assumed,
}

/// The servers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Fleet {
    /// Servers that the job may use at once, those that stand by included.
    pub servers: u32,
    /// Servers that are fetched when the others do not suffice.
    pub spares: u32,
    /// GPUs of a server, for figures in GPU-hours.
    pub gpus_per_server: u32,
    /// Parts that take several servers with them: racks, leaf switches, NVLink domains.
    pub parents: Vec<Parent>,
}

/// A kind of part that several servers depend on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Parent {
    /// Its name.
    pub name: String,
    /// Servers of each.
    pub servers: u32,
    /// Failures of each, per day.
    pub per_day: f64,
    /// Mean time until its servers are back.
    pub repair: Span,
}

/// The job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Job {
    /// Servers that it computes on.
    pub servers: u32,
    /// Servers that stand by with the job's processes started.
    pub standbys: u32,
    /// Its length.
    pub length: Length,
}

/// The length of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Length {
    /// Until it has computed for so long.
    Computing(Span),
    /// Until so much time has passed.
    Elapsed(Span),
}

/// What fails, and what is seen of it. Servers fail only while the job computes on them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Failures {
    /// Failures of a good server, per day.
    pub per_day: f64,
    /// The share of failures that hit a second server of the same parent.
    pub second_server: f64,
    /// The share of failures for which another server of the job is blamed.
    pub wrong_blame: f64,
    /// Alarms about a server without a failure, per server and day.
    pub false_alarms_per_day: f64,
    /// Memory errors, which come back until a repair helps.
    pub memory: Memory,
    /// The time until a failure is noticed: one line for each share of failures.
    pub detection: Vec<Detection>,
}

/// Memory errors.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Memory {
    /// The share of failures that are memory errors.
    pub share: f64,
    /// Median time until the next one, after a repair in vain.
    pub median: Span,
    /// Spread of that time's logarithm.
    pub sigma: f64,
}

/// The time until some failures are noticed.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Detection {
    /// The share of failures.
    pub share: f64,
    /// The time.
    pub after: Span,
}

/// Servers that fail more often until a repair helps.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Lemons {
    /// Their share of all servers.
    pub share: f64,
    /// Their failures, for one of a good server.
    pub factor: f64,
}

/// What a repair does. Times are means of exponential distributions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Repair {
    /// An automatic repair, with which each begins.
    pub automatic: Span,
    /// The share of automatic repairs that do not help.
    pub automatic_in_vain: f64,
    /// A manual repair after the automatic one.
    pub manual: Span,
    /// The share of manual repairs that do not help.
    pub manual_in_vain: f64,
    /// The share of repairs that need the manual one, too.
    pub manual_share: f64,
    /// A test after each repair.
    pub test: Span,
    /// The share of repairs in vain that the test finds; the repair is then repeated.
    pub test_finds: f64,
}

/// How the job starts again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Restart {
    /// After each failure, however the job goes on.
    pub recovery: Span,
    /// The choice of all servers, at the first start and with each requeue.
    pub select: Span,
    /// All processes start on servers that are chosen again.
    pub requeue: Span,
    /// Replacements take the lost servers' places; the others keep their processes.
    pub in_place: Span,
    /// Replacements take over from the state of running members.
    pub live: Span,
    /// Which of the two a swap is.
    pub swap: Swap,
    /// Added where a replacement did not stand by.
    pub cold_start: Span,
    /// The time until a spare has joined the fleet.
    pub fetch_spare: Span,
}

/// How a replacement joins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Swap {
    /// From the last checkpoint.
    #[default]
    InPlace,
    /// From running members: no work is lost.
    Live,
}

/// How the job saves its work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Checkpoints {
    /// Computing time between two; `0s` means that no work is ever lost.
    pub every: Span,
    /// The time for which the job stops to write one.
    pub write: Span,
}

/// What the policy `octavo` assumes before it has seen anything. It is the same for every fleet: a
/// study that assumes what it simulates would prove little.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Assumed {
    /// The model of evidence, in whole numbers as on a live cluster.
    pub risk: Settings,
    /// The share of repairs that help.
    pub repair_helps: f64,
}

impl Default for Fleet {
    fn default() -> Self {
        let rack =
            Parent { name: "rack".into(), servers: 16, per_day: 0.0004, repair: Span::hours(4) };
        Self { servers: 2144, spares: 16, gpus_per_server: 8, parents: vec![rack] }
    }
}

impl Default for Job {
    fn default() -> Self {
        Self { servers: 2048, standbys: 16, length: Length::Elapsed(Span::days(90)) }
    }
}

impl Default for Failures {
    fn default() -> Self {
        Self {
            per_day: 0.0033,
            second_server: 0.04,
            wrong_blame: 0.1,
            false_alarms_per_day: 0.0,
            memory: Memory::default(),
            detection: vec![
                Detection { share: 0.8, after: Span::seconds(5) },
                Detection { share: 0.1, after: Span::minutes(3) },
                Detection { share: 0.1, after: Span::minutes(20) },
            ],
        }
    }
}

impl Default for Memory {
    fn default() -> Self {
        Self { share: 0.22, median: Span::hours(20), sigma: 2.5 }
    }
}

impl Default for Lemons {
    fn default() -> Self {
        Self { share: 0.05, factor: 20.0 }
    }
}

impl Default for Repair {
    fn default() -> Self {
        Self {
            automatic: Span::hours(2),
            automatic_in_vain: 0.4,
            manual: Span::days(2),
            manual_in_vain: 0.2,
            manual_share: 0.8,
            test: Span::ZERO,
            test_finds: 0.0,
        }
    }
}

impl Default for Restart {
    fn default() -> Self {
        Self {
            recovery: Span::ZERO,
            select: Span::minutes(1),
            requeue: Span::minutes(10),
            in_place: Span::seconds(90),
            live: Span::seconds(20),
            swap: Swap::InPlace,
            cold_start: Span::minutes(2),
            fetch_spare: Span::minutes(20),
        }
    }
}

impl Default for Checkpoints {
    fn default() -> Self {
        Self { every: Span::minutes(30), write: Span::seconds(30) }
    }
}

impl Default for Assumed {
    fn default() -> Self {
        let risk = Settings { model: Model::TwoClasses, ..Settings::default() };
        Self { risk, repair_helps: 0.4 }
    }
}

impl Lemons {
    /// The mean rate of a server of the fleet, for a good one's rate of 1.
    pub fn mean_factor(self) -> f64 {
        1.0 + self.share * (self.factor - 1.0)
    }
}

impl Study {
    /// The same fleet with other bad servers and the same mean rate of failures.
    #[must_use]
    pub fn with_lemons(mut self, lemons: Lemons) -> Self {
        self.failures.per_day *= self.lemons.mean_factor() / lemons.mean_factor();
        self.lemons = lemons;
        self
    }
}
