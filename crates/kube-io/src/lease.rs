//! Who leads: one of several programs, by a `Lease` (`coordination.k8s.io/v1`).
//!
//! The rules are those of client-go's leader election, so that either side may be another program:
//! whoever holds the lease renews it; others wait until they have seen no change of it for as long as
//! its holder promised (`leaseDurationSeconds`), **by their own clocks**: times that somebody else
//! wrote are for people to read. Every write is guarded by `resourceVersion`, so of two who take an
//! expired lease one fails.
//!
//! A leader may have been stopped for a minute and not know it. What it holds is therefore a
//! [`Term`], good until an instant that lies before the lease's end, and **who writes asks at each
//! write** whether it still holds ([`Leadership::is_leading`]): by the clock that no one sets, and by
//! the wall clock, which goes on while a machine sleeps. A write that begins within a term must be over
//! when the lease ends ([`Term::ends`]): five seconds later, by default. Who leads anew after a gap sees it by
//! [`Term::since`].
//!
//! Two leaders remain possible where a person deletes the lease or empties its holder by hand.

mod elector;
mod record;
#[cfg(test)]
mod tests;

use std::time::{Duration, SystemTime};

use tokio::time::Instant;

pub use elector::Elector;

/// Which lease, in whose name, and how patiently.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseOptions {
    /// Namespace of the lease.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Who this is. No two programs that may run at the same time have the same. A program that comes
    /// back under the name that it had leads at once; the name of its pod is such a name.
    pub identity: String,
    /// How long others wait for a renewal. 15 s by default; whole seconds.
    pub duration: Duration,
    /// How long after its last renewal a leader believes in itself. 10 s by default.
    pub renew_deadline: Duration,
    /// How often the lease is renewed or looked at. 2 s by default.
    pub retry: Duration,
}

/// Why options make no election.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LeaseError {
    /// Something has no name.
    #[error("the lease needs a namespace, a name and an identity that are not empty")]
    Nameless,
    /// The times do not fit one another.
    #[error(
        "the lease's times do not fit: its duration ({duration:?}) must be in whole seconds and longer \
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
    /// It does, for a while.
    Leading(Term),
    /// It does not.
    Following {
        /// Who does, as far as is known.
        holder: Option<String>,
    },
}

/// For how long leadership may be believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Term {
    /// Until when a write may begin.
    pub until: Deadline,
    /// When the lease ends: others may lead from then on.
    pub ends: Deadline,
    /// Which term of the lease it is (`leaseTransitions`): the same as long as nobody else led.
    pub number: i32,
    /// Since when this program leads without a gap: when the write was answered that took the lease. A
    /// renewal leaves it as it is, but not one that was answered when the term before was over: others
    /// may have led meanwhile, and what they wrote must be read.
    pub since: Instant,
}

/// An instant by two clocks; it has come when either says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadline {
    /// By the clock that is never set.
    pub at: Instant,
    /// By the wall clock.
    pub system: SystemTime,
}

impl LeaseOptions {
    /// A lease with the usual times.
    pub fn new(namespace: &str, name: &str, identity: &str) -> Self {
        Self {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            identity: identity.to_owned(),
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
    /// Whether a write may begin now.
    pub fn is_leading(&self) -> bool {
        self.is_leading_at(Instant::now(), SystemTime::now())
    }

    /// The same at another time.
    pub fn is_leading_at(&self, now: Instant, system: SystemTime) -> bool {
        match self {
            Self::Leading(term) => !term.until.has_come(now, system),
            Self::Following { .. } => false,
        }
    }
}

impl Term {
    /// The term that follows from a write of the lease, which began and was answered then.
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
    /// So long after a moment.
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
