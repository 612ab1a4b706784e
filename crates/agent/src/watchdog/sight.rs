//! Whether what goes round the wall on a GPU would be seen. What is said of it changes seldom: only what is so for
//! many looks in a row is told, once.

/// Looks in a row after which something is said: two seconds with a look every 200 ms.
const LOOKS: u32 = 10;

/// Why what goes round the wall on a GPU is not seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Blindness {
    /// The driver's answer does not come.
    Hangs,
    /// The driver is not open.
    Closed,
    /// The driver answers with an error.
    Refuses,
    /// The driver does not tell how much processes have.
    NoBytes,
    /// None of the processes that the driver lists is seen here.
    Hidden,
    /// Processes are seen, and nothing that tells whose they are.
    Unreadable,
}

/// What a look showed of a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Look {
    /// It was seen what processes have, and whose they are.
    Sees,
    /// The driver answers, and lists nobody.
    Empty,
    /// No answer yet: nothing can be said.
    Waits,
    /// Something keeps from seeing.
    Blind(Blindness),
}

/// What is remembered of a GPU from look to look.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sight {
    /// What holds, as it was told.
    told: Option<Blindness>,
    /// What was seen lately instead, and for how many looks in a row.
    other: (Option<Blindness>, u32),
}

impl Blindness {
    /// The word for a metric's label.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Hangs => "driver-hangs",
            Self::Closed => "driver-closed",
            Self::Refuses => "driver-refuses",
            Self::NoBytes => "no-bytes",
            Self::Hidden => "no-host-pid",
            Self::Unreadable => "unreadable-proc",
        }
    }

    /// What is so and what to do, as the rest of a sentence.
    pub(super) fn words(self) -> &'static str {
        match self {
            Self::Hangs => {
                "the driver does not answer which processes are on it; see the kernel's log (dmesg) for what the \
                 GPU does"
            }
            Self::Closed => "the driver is not open; the log of the node's agent says why",
            Self::Refuses => {
                "the driver answers with an error when it is asked which processes are on it; the log of the \
                 node's agent says which"
            }
            Self::NoBytes => {
                "the driver does not tell how much memory its processes have, as in containers that hide it and \
                 with some modes of the driver"
            }
            Self::Hidden => {
                "none of the processes that the driver lists is seen by the agent; run it in the host's pid \
                 namespace (hostPID: true)"
            }
            Self::Unreadable => {
                "the agent may not read whose its processes are; give it the capability SYS_PTRACE, or run it as \
                 the chart does"
            }
        }
    }

    /// Whether a driver that lists nobody shows that this is over.
    fn is_of_driver(self) -> bool {
        matches!(self, Self::Hangs | Self::Closed | Self::Refuses)
    }
}

impl Sight {
    /// What holds.
    pub(super) fn blindness(self) -> Option<Blindness> {
        self.told
    }

    /// Takes a look; tells whether what holds has changed.
    pub(super) fn take(&mut self, look: Look) -> bool {
        let seen = match look {
            Look::Waits => return false,
            Look::Empty if self.told.is_some_and(|told| !told.is_of_driver()) => return false,
            Look::Empty | Look::Sees => None,
            Look::Blind(kind) => Some(kind),
        };
        let looks = if self.other.0 == seen { self.other.1.saturating_add(1) } else { 1 };
        self.other = (seen, looks);
        let is_changed = seen != self.told && looks >= LOOKS;
        if is_changed {
            self.told = seen;
        }
        is_changed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What holds after looks, each so many times.
    fn after(looks: &[(Look, u32)]) -> (Option<Blindness>, u32) {
        let (mut sight, mut changes) = (Sight::default(), 0);
        for (look, times) in looks {
            for _ in 0..*times {
                changes += u32::from(sight.take(*look));
            }
        }
        (sight.blindness(), changes)
    }

    #[test]
    fn what_lasts_is_said_once_and_what_passes_is_not() {
        let hidden = Look::Blind(Blindness::Hidden);
        assert_eq!(after(&[(hidden, 9), (Look::Sees, 1), (hidden, 9)]), (None, 0));
        assert_eq!(after(&[(hidden, 100)]), (Some(Blindness::Hidden), 1));
        assert_eq!(after(&[(hidden, 100), (Look::Sees, 9)]).1, 1);
        assert_eq!(after(&[(hidden, 100), (Look::Sees, 10)]), (None, 2));
        let closed = Look::Blind(Blindness::Closed);
        assert_eq!(after(&[(hidden, 10), (closed, 10)]), (Some(Blindness::Closed), 2));
    }

    #[test]
    fn a_gpu_without_processes_shows_that_the_driver_answers_and_no_more() {
        let no_bytes = Look::Blind(Blindness::NoBytes);
        assert_eq!(after(&[(no_bytes, 10), (Look::Empty, 50)]).0, Some(Blindness::NoBytes));
        let hangs = Look::Blind(Blindness::Hangs);
        assert_eq!(after(&[(hangs, 10), (Look::Waits, 50)]).0, Some(Blindness::Hangs));
        assert_eq!(after(&[(hangs, 10), (Look::Empty, 10)]), (None, 2));
    }
}
