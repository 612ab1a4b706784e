//! The settings of all decisions, as checked values. The crate `api` has the form in which administrators write them.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::budget::{BreakerRules, Budget};
use crate::remedy::Remedy;
use crate::risk::{Rate, Settings};
use crate::state::Rules;
use crate::xid::XidClass;
use crate::{DAY, ONE};

/// Whether decisions are acted upon.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Mode {
    /// States are kept and shown. Taints are for information; nothing is evicted, reset or tested.
    Observe,
    /// Devices go out of service and are tested before they return. Nothing is evicted, and remedies are a person's.
    #[default]
    Fence,
    /// All decisions are acted upon.
    Act,
}

/// What a device's test is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Test {
    /// The driver's word, then a load on the device: memory, computing, copies to peers.
    #[default]
    Probe,
    /// The driver's word alone: it reaches the device and advises nothing, rows and links are clear.
    Driver,
}

/// Whether faults of network cards are signs of the devices that they serve.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum NetworkCards {
    /// They are. A device whose card is at fault passes no test until the card is well.
    #[default]
    Count,
    /// Network cards are not looked at.
    Ignore,
}

/// A policy whose values were checked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    /// Labels of the nodes to which it applies.
    pub node_selector: BTreeMap<String, String>,
    /// Whether decisions are acted upon.
    pub mode: Mode,
    /// Whether pods on fenced devices are evicted.
    pub evict: bool,
    /// Times of states, and the ladder of remedies.
    pub rules: Rules,
    /// Remedies of the ladder that no program applies: a person is to.
    pub by_person: BTreeSet<Remedy>,
    /// Remedies of the ladder that another program applies, as the controller asks it: the agent begins them and waits for their end.
    pub by_template: BTreeSet<Remedy>,
    /// What the test of a device is.
    pub test: Test,
    /// Whether faults of network cards are signs of the devices that they serve.
    pub network_cards: NetworkCards,
    /// Classes of XIDs that go before those of the catalogue.
    pub xid_classes: BTreeMap<u32, XidClass>,
    /// How much may be disturbed at once.
    pub budget: Budget,
    /// When remedies stop.
    pub breaker: BreakerRules,
    /// How the history of a device is read.
    pub risk: Settings,
    /// From which risk on a device is watched.
    pub watch: RiskWatch,
    /// From which risk on pods leave a device before it fails; `None` if they never do.
    pub preventive_drain: Option<PreventiveDrain>,
}

/// From which risk on a device is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RiskWatch {
    /// Rate of failures before any evidence.
    pub base: Rate,
    /// The lower bound of the probability to fail, in billionths.
    pub probability: u64,
    /// Within this time, in seconds.
    pub horizon: u64,
}

/// From which risk on a device is suspect although it works: pods that can save their work leave it, and it is tested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PreventiveDrain {
    /// The lower bound of the probability to fail must be above this, in billionths: that at which a move pays
    /// ([`crate::moves::Move::threshold`]).
    pub probability: u64,
    /// Within this time, in seconds.
    pub horizon: u64,
}

impl Default for RiskWatch {
    /// A probability of 0.2% within a day is 5.5 times that of a usual GPU.
    fn default() -> Self {
        Self { base: Rate::GPU, probability: ONE / 500, horizon: DAY }
    }
}

impl Policy {
    /// Whether the policy applies to a node with some labels: it has all that the policy names.
    pub fn selects(&self, labels: &BTreeMap<String, String>) -> bool {
        self.node_selector.iter().all(|(name, value)| labels.get(name) == Some(value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_selects_nodes_that_have_all_its_labels() {
        let labels = |pool: &str| -> BTreeMap<String, String> {
            let pairs = [("pool", pool), ("zone", "a")];
            pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).into()
        };
        let node_selector = BTreeMap::from([("pool".to_owned(), "h100".to_owned())]);
        let policy = Policy { node_selector, ..Policy::default() };
        assert!(policy.selects(&labels("h100")));
        assert!(!policy.selects(&labels("a100")) && !policy.selects(&BTreeMap::new()));
    }
}
