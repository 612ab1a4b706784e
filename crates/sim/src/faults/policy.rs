//! What a policy decides: which servers the job uses, which leave for good, and how it goes on after
//! a failure.

use std::fmt;

use clap::ValueEnum;
use serde::Serialize;

/// A policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Policy {
    /// All servers are chosen again after each failure
    RequeueAll,
    /// One lost server is replaced in place; with several, all are chosen again
    SwapOne,
    /// All lost servers are replaced in place
    SwapAll,
    /// AIReSim: servers in the order of the list, repaired ones last; none is retired
    List,
    /// The same; a server with two failures in seven days is retired
    ListWindow,
    /// The same; a server with two failures in all is retired
    ListLifetime,
    /// AIReSim's rules with a choice by chance; none is retired
    Uniform,
    /// The same; a server with two failures in seven days is retired
    UniformWindow,
    /// The same; a server with two failures in all is retired
    UniformLifetime,
    /// AIReSim: servers with the fewest failures first; none is retired
    Fewest,
    /// The same; a server with two failures in seven days is retired
    FewestWindow,
    /// The same; a server with two failures in all is retired
    FewestLifetime,
    /// Servers by their risk from history alone; all lost ones are replaced in place
    Risk,
    /// Octavo: the same, with servers on probation last, and spares are ordered before idle servers are worse than they
    Octavo,
    /// The same with knowledge of which servers are bad: what the choice of servers can gain at most, not a policy
    Oracle,
}

/// How servers are ordered when some are chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Choice {
    /// As listed; a server that comes back is last.
    List,
    /// By chance.
    Uniform,
    /// By the number of failures.
    Fewest,
    /// By the probability that they are bad, from their history.
    Risk,
    /// The same; servers on probation after a repair are last.
    Settled,
    /// Good ones first.
    Oracle,
}

/// When a server leaves for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Retirement {
    Never,
    /// At two failures in seven days.
    Window,
    /// At two failures.
    Lifetime,
}

/// How the job goes on after a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Recovery {
    /// All servers are chosen again.
    Requeue,
    /// One lost server is replaced by the first idle one.
    SwapOne,
    /// Any number of lost servers is replaced by the first idle ones.
    SwapAll,
    /// Lost servers are replaced by those that stand by. Once they are used up, all are chosen again.
    Standbys,
}

/// The parts of a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rules {
    pub(super) choice: Choice,
    pub(super) retirement: Retirement,
    pub(super) recovery: Recovery,
    /// Whether an alarm without a failure waits for the next checkpoint.
    pub(super) alarms_wait: bool,
    /// Whether spares are ordered while the job computes, before idle servers are worse than they.
    pub(super) orders_spares: bool,
}

impl Policy {
    /// The name in flags and results.
    pub fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }

    pub(super) fn rules(self) -> Rules {
        let rules = |choice, retirement, recovery| Rules {
            choice,
            retirement,
            recovery,
            alarms_wait: matches!(self, Self::Risk | Self::Octavo | Self::Oracle),
            orders_spares: self == Self::Octavo,
        };
        let standbys = |choice, retirement| rules(choice, retirement, Recovery::Standbys);
        match self {
            Self::RequeueAll => rules(Choice::List, Retirement::Never, Recovery::Requeue),
            Self::SwapOne => rules(Choice::List, Retirement::Never, Recovery::SwapOne),
            Self::SwapAll => rules(Choice::List, Retirement::Never, Recovery::SwapAll),
            Self::List => standbys(Choice::List, Retirement::Never),
            Self::ListWindow => standbys(Choice::List, Retirement::Window),
            Self::ListLifetime => standbys(Choice::List, Retirement::Lifetime),
            Self::Uniform => standbys(Choice::Uniform, Retirement::Never),
            Self::UniformWindow => standbys(Choice::Uniform, Retirement::Window),
            Self::UniformLifetime => standbys(Choice::Uniform, Retirement::Lifetime),
            Self::Fewest => standbys(Choice::Fewest, Retirement::Never),
            Self::FewestWindow => standbys(Choice::Fewest, Retirement::Window),
            Self::FewestLifetime => standbys(Choice::Fewest, Retirement::Lifetime),
            Self::Risk => rules(Choice::Risk, Retirement::Never, Recovery::SwapAll),
            Self::Octavo => rules(Choice::Settled, Retirement::Never, Recovery::SwapAll),
            Self::Oracle => rules(Choice::Oracle, Retirement::Never, Recovery::SwapAll),
        }
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_flags_are_those_of_results() {
        for policy in Policy::value_variants() {
            assert_eq!(serde_json::to_value(policy).unwrap(), policy.name());
            assert_eq!(policy.to_string(), policy.name());
        }
    }

    #[test]
    fn policies_differ() {
        let all = Policy::value_variants();
        for (index, policy) in all.iter().enumerate() {
            assert!(all[..index].iter().all(|other| other.rules() != policy.rules()), "{policy}");
        }
    }
}
