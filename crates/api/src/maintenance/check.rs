//! A maintenance as written becomes one by which to decide.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use super::{Drain, MaintenanceSpec, Window};

/// A maintenance whose values were checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Labels of the nodes; none if nodes are named alone.
    pub node_selector: BTreeMap<String, String>,
    /// Names of nodes.
    pub node_names: BTreeSet<String>,
    /// When.
    pub window: Window,
    /// What becomes of pods when it begins.
    pub drain: Drain,
    /// How long before the start owners of pods get an event, in seconds; `None` if they get none.
    pub notice: Option<u64>,
    /// Why, for the owners of pods.
    pub reason: Option<String>,
}

/// Why a maintenance is not carried out. Nothing is changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MaintenanceError {
    /// No nodes.
    #[error("nodeSelector and nodeNames are both empty; name at least one label or node")]
    NoNodes,
    /// A time that is none.
    #[error("{field}: {value:?} is no time of RFC 3339, such as 2026-01-05T12:00:00Z")]
    Time {
        /// The field.
        field: &'static str,
        /// The value as written.
        value: String,
    },
    /// An end that is not after the start.
    #[error("endTime: it must be after startTime {start}, and is {end}")]
    Order {
        /// The start as written.
        start: String,
        /// The end as written.
        end: String,
    },
    /// A number that is too low or too high.
    #[error("noticeSeconds: it is {found}, and must be from 0 to {most}")]
    Notice {
        /// The value as written.
        found: i64,
        /// The most that is valid.
        most: i64,
    },
}

impl Plan {
    /// Whether a node with these labels is meant.
    pub fn is_meant(&self, name: &str, labels: &BTreeMap<String, String>) -> bool {
        let has = |(key, value): (&String, &String)| labels.get(key) == Some(value);
        self.node_names.contains(name)
            || (!self.node_selector.is_empty() && self.node_selector.iter().all(has))
    }
}

impl MaintenanceSpec {
    /// The plan, if all values are valid. Whether its end has come is the caller's question: this has no clock.
    pub fn check(&self) -> Result<Plan, MaintenanceError> {
        if self.node_selector.is_empty() && self.node_names.is_empty() {
            return Err(MaintenanceError::NoNodes);
        }
        let start = seconds("startTime", &self.start_time)?;
        let end = seconds("endTime", &self.end_time)?;
        if end <= start {
            let (start, end) = (self.start_time.clone(), self.end_time.clone());
            return Err(MaintenanceError::Order { start, end });
        }
        let notice = u64::try_from(self.notice_seconds).ok();
        let notice = notice.filter(|_| self.notice_seconds <= YEAR);
        let found = self.notice_seconds;
        let notice = notice.ok_or(MaintenanceError::Notice { found, most: YEAR })?;
        Ok(Plan {
            node_selector: self.node_selector.clone(),
            node_names: self.node_names.iter().cloned().collect(),
            window: Window { start, end },
            drain: self.drain,
            notice: (notice > 0).then_some(notice),
            reason: self.reason.clone(),
        })
    }
}

/// A year, in seconds.
const YEAR: i64 = 31_536_000;

/// Seconds since 1970 of a time; those before are as 1970.
fn seconds(field: &'static str, text: &str) -> Result<u64, MaintenanceError> {
    let wrong = || MaintenanceError::Time { field, value: text.to_owned() };
    let at: Timestamp = text.parse().map_err(|_| wrong())?;
    Ok(u64::try_from(at.as_second()).unwrap_or_default())
}
