//! What makes no sense in a study: each error names the field, its value and what is expected.

use super::{Length, Study};
use crate::faults::span::Span;

/// Most servers of a fleet. Larger ones would only exhaust memory.
const MOST_SERVERS: u32 = 1_000_000;

/// Most failures of a server per day: one each second.
const MOST_PER_DAY: f64 = 86_400.0;

/// Why a study makes no sense.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum StudyError {
    /// A share outside its range.
    #[error("{field} is {value}; expected a share from 0 to 1")]
    Share {
        /// The field.
        field: String,
        /// Its value.
        value: f64,
    },
    /// A number outside its range.
    #[error("{field} is {value}; expected a number from {least} to {most}")]
    Number {
        /// The field.
        field: String,
        /// Its value.
        value: f64,
        /// The least.
        least: f64,
        /// The most.
        most: f64,
    },
    /// A count outside its range.
    #[error("{field} is {value}; expected a whole number from {least} to {most}")]
    Count {
        /// The field.
        field: String,
        /// Its value.
        value: u32,
        /// The least.
        least: u32,
        /// The most.
        most: u32,
    },
    /// The job needs more servers than there are.
    #[error(
        "job.servers is {job} and job.standbys {standbys}, but fleet.servers is only {fleet}; \
         enlarge the fleet or make the job smaller"
    )]
    JobTooLarge {
        /// The job's servers.
        job: u32,
        /// Its standbys.
        standbys: u32,
        /// The fleet's servers.
        fleet: u32,
    },
    /// A time that must not be zero.
    #[error("{field} is 0s; expected a longer time")]
    NoTime {
        /// The field.
        field: &'static str,
    },
    /// Shares that do not sum up to 1.
    #[error("the shares of failures.detection sum up to {sum}; expected 1, or no line at all")]
    Detection {
        /// Their sum.
        sum: f64,
    },
}

/// A parameter of the risk as a number. Those beyond its precision are out of range.
#[expect(clippy::cast_precision_loss, reason = "numbers in range are far below 2^52")]
fn risk_value(value: u64) -> f64 {
    value as f64
}

impl Study {
    /// Checks every field.
    pub fn check(&self) -> Result<(), StudyError> {
        self.check_counts()?;
        let Self { failures, lemons, repair, octavo, .. } = self;
        for (field, value) in [
            ("failures.secondServer", failures.second_server),
            ("failures.wrongBlame", failures.wrong_blame),
            ("failures.memory.share", failures.memory.share),
            ("lemons.share", lemons.share),
            ("repair.automaticInVain", repair.automatic_in_vain),
            ("repair.manualInVain", repair.manual_in_vain),
            ("repair.manualShare", repair.manual_share),
            ("octavo.repairHelps", octavo.repair_helps),
        ] {
            share(field, value)?;
        }
        for (field, value, least, most) in [
            ("failures.perDay", failures.per_day, 0.0, MOST_PER_DAY),
            ("failures.falseAlarmsPerDay", failures.false_alarms_per_day, 0.0, MOST_PER_DAY),
            ("failures.memory.sigma", failures.memory.sigma, 0.0, 10.0),
            ("lemons.factor", lemons.factor, 1.0, 1e6),
            // A test that finds every repair in vain could repeat one that never helps for ever.
            ("repair.testFinds", repair.test_finds, 0.0, 0.99),
        ] {
            number(field, value, least, most)?;
        }
        let risk = octavo.risk.two_classes;
        for (field, value, least, most) in [
            // In billionths and in thousandths: a bad server fails no less often than a good one.
            ("octavo.risk.twoClasses.shareBad", risk.share_bad, 0.0, 1e9),
            ("octavo.risk.twoClasses.times", risk.times, 1e3, 1e9),
        ] {
            number(field, risk_value(value), least, most)?;
        }
        for parent in &self.fleet.parents {
            number(&parent_field(&parent.name, "perDay"), parent.per_day, 0.0, MOST_PER_DAY)?;
        }
        self.check_detection()?;
        let length = match self.job.length {
            Length::Computing(span) | Length::Elapsed(span) => span,
        };
        if length == Span::ZERO {
            return Err(StudyError::NoTime { field: "job.length" });
        }
        Ok(())
    }

    fn check_counts(&self) -> Result<(), StudyError> {
        let (fleet, job) = (&self.fleet, &self.job);
        for (field, value, least) in [
            ("fleet.servers", fleet.servers, 1),
            ("fleet.spares", fleet.spares, 0),
            ("fleet.gpusPerServer", fleet.gpus_per_server, 1),
            ("job.servers", job.servers, 1),
            ("job.standbys", job.standbys, 0),
        ] {
            count(field, value, least)?;
        }
        for parent in &fleet.parents {
            count(&parent_field(&parent.name, "servers"), parent.servers, 1)?;
        }
        if job.servers + job.standbys > fleet.servers {
            let (job, standbys, fleet) = (job.servers, job.standbys, fleet.servers);
            return Err(StudyError::JobTooLarge { job, standbys, fleet });
        }
        Ok(())
    }

    fn check_detection(&self) -> Result<(), StudyError> {
        let lines = &self.failures.detection;
        for line in lines {
            share("failures.detection.share", line.share)?;
        }
        let sum: f64 = lines.iter().map(|line| line.share).sum();
        if lines.is_empty() || (sum - 1.0).abs() < 1e-6 {
            Ok(())
        } else {
            Err(StudyError::Detection { sum })
        }
    }
}

fn parent_field(name: &str, field: &str) -> String {
    format!("fleet.parents.{name}.{field}")
}

fn share(field: &str, value: f64) -> Result<(), StudyError> {
    if (0.0..=1.0).contains(&value) {
        Ok(())
    } else {
        Err(StudyError::Share { field: field.to_owned(), value })
    }
}

fn number(field: &str, value: f64, least: f64, most: f64) -> Result<(), StudyError> {
    if (least..=most).contains(&value) {
        Ok(())
    } else {
        Err(StudyError::Number { field: field.to_owned(), value, least, most })
    }
}

fn count(field: &str, value: u32, least: u32) -> Result<(), StudyError> {
    if (least..=MOST_SERVERS).contains(&value) {
        Ok(())
    } else {
        Err(StudyError::Count { field: field.to_owned(), value, least, most: MOST_SERVERS })
    }
}
