//! Leader election by a `Lease` (`coordination.k8s.io/v1`).
//!
//! The rules are those of client-go, so that other programs can take part. The holder renews the
//! lease. The others take it when they have seen no change for `leaseDurationSeconds` **by their
//! own clocks**; the times in the lease are for people. Every write carries a `resourceVersion`, so
//! of two programs that take an expired lease one fails.
//!
//! A leader may have been stopped for a minute without noticing. It therefore holds a [`Term`] that
//! is good until some time before the lease ends, and **each writer checks it before each write**
//! ([`Leadership::is_leading`]). The check uses the monotonic clock and the wall clock, which
//! continues while a machine sleeps. A write that starts within a term must end before the lease
//! does ([`Term::ends`]), by default five seconds later. [`Term::since`] shows a gap in leadership.
//!
//! Two leaders remain possible if a person deletes the lease or clears its holder by hand.

mod elector;
mod record;
#[cfg(test)]
mod tests;

use std::time::{Duration, SystemTime};

use tokio::time::Instant;

pub use elector::Elector;

/// Name, identity and times of an election.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseOptions {
    /// Namespace of the lease.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Identity of this program, unique among the programs that may run at the same time. A program
    /// that restarts with the same identity leads at once; the pod's name is a good identity.
    pub identity: String,
    /// Address of this program's admin server, `HOST:PORT`, for programs that read the lease. While
    /// this program holds the lease, the annotation [`ANNOTATION_ADDRESS`] has it; `None` removes
    /// the annotation, and is right for a pod.
    ///
    /// [`ANNOTATION_ADDRESS`]: octavo_api::names::ANNOTATION_ADDRESS
    pub address: Option<String>,
    /// Time without renewal after which others may take the lease, in whole seconds. 15 s by
    /// default.
    pub duration: Duration,
    /// Time after the last renewal for which a leader may act. 10 s by default.
    pub renew_deadline: Duration,
    /// Interval of renewals and checks. 2 s by default.
    pub retry: Duration,
}

/// Why the options are invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LeaseError {
    /// A name is empty.
    #[error("the lease needs a namespace, a name and an identity that are not empty")]
    Nameless,
    /// The times contradict one another.
    #[error(
        "the lease's times contradict one another: its duration ({duration:?}) must be in whole seconds and longer \
         than the renew deadline ({renew_deadline:?}), and that longer than twice the retry period \
         ({retry:?})"
    )]
    Times {
        /// [`LeaseOptions::duration`].
        duration: Duration,
        /// [`LeaseOptions::renew_deadline`].
        renew_deadline: Duration,
        /// [`LeaseOptions::retry`].
        retry: Duration,
    },
}

/// Whether this program leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Leadership {
    /// It leads during the term.
    Leading(Term),
    /// It does not lead.
    Following {
        /// The leader, if known.
        holder: Option<String>,
    },
}

/// The time for which this program may act as leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Term {
    /// Writes may start until then.
    pub until: Deadline,
    /// End of the lease; others may lead from then on.
    pub ends: Deadline,
    /// Number of the term (`leaseTransitions`). It stays the same until another program leads.
    pub number: i32,
    /// Start of uninterrupted leadership: when the write that took the lease was answered. A
    /// renewal keeps it, unless its answer came after the previous term: others may have led in
    /// between, so their writes must be read.
    pub since: Instant,
}

/// An instant by two clocks. It has come when either clock says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadline {
    /// By the monotonic clock.
    pub at: Instant,
    /// By the wall clock.
    pub system: SystemTime,
}

impl LeaseOptions {
    /// Options with the times of Kubernetes' own components.
    pub fn new(namespace: &str, name: &str, identity: &str) -> Self {
        Self {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            identity: identity.to_owned(),
            address: None,
            duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry: Duration::from_secs(2),
        }
    }

    fn check(&self) -> Result<(), LeaseError> {
        if [&self.namespace, &self.name, &self.identity].iter().any(|text| text.is_empty()) {
            return Err(LeaseError::Nameless);
        }
        let &Self { duration, renew_deadline, retry, .. } = self;
        let is_whole = duration.subsec_nanos() == 0 && i32::try_from(duration.as_secs()).is_ok();
        if !is_whole || duration <= renew_deadline || renew_deadline <= retry * 2 || retry.is_zero()
        {
            return Err(LeaseError::Times { duration, renew_deadline, retry });
        }
        Ok(())
    }
}

impl Leadership {
    /// Whether a write may start now.
    pub fn is_leading(&self) -> bool {
        self.is_leading_at(Instant::now(), SystemTime::now())
    }

    /// Whether a write may start at the given time.
    pub fn is_leading_at(&self, now: Instant, system: SystemTime) -> bool {
        match self {
            Self::Leading(term) => !term.until.has_come(now, system),
            Self::Following { .. } => false,
        }
    }
}

impl Term {
    /// The term that follows from a write of the lease, with the times of its start and of its
    /// answer.
    fn after(
        before: &Leadership,
        options: &LeaseOptions,
        number: i32,
        begun: Deadline,
        answered: Deadline,
    ) -> Self {
        let since = match before {
            Leadership::Leading(term)
                if term.number == number && !term.until.has_come(answered.at, answered.system) =>
            {
                term.since
            }
            _ => answered.at,
        };
        Self {
            until: Deadline::after(begun, options.renew_deadline),
            ends: Deadline::after(begun, options.duration),
            number,
            since,
        }
    }
}

impl Deadline {
    /// The deadline a given time after another.
    fn after(begin: Self, time: Duration) -> Self {
        let system = begin.system.checked_add(time).unwrap_or(begin.system);
        Self { at: begin.at + time, system }
    }

    fn now() -> Self {
        Self { at: Instant::now(), system: SystemTime::now() }
    }

    /// Whether it has come.
    pub fn has_come(&self, now: Instant, system: SystemTime) -> bool {
        now >= self.at || system >= self.system
    }
}
