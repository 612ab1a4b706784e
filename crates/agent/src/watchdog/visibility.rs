//! Whether what goes round the wall on a GPU would be seen. What is said of it changes seldom: only what is so for
//! many looks in a row is told, once.

/// Looks in a row after which something is said: two seconds with a look every 200 ms.
const MIN_CONSECUTIVE: u32 = 10;

/// Why what goes round the wall on a GPU is not seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum BlindSpot {
    /// The driver's answer does not come.
    DriverHangs,
    /// The driver is not open.
    DriverClosed,
    /// The driver answers with an error.
    DriverFails,
    /// The driver does not tell how much processes have.
    NoBytes,
    /// None of the processes that the driver lists is seen here.
    NoHostPid,
    /// Processes are seen, and nothing that tells whose they are.
    UnreadableProc,
}

/// What a look showed of a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Observation {
    /// It was seen what processes have, and whose they are.
    Complete,
    /// The driver answers, and lists nobody.
    Empty,
    /// No answer yet: nothing can be said.
    Pending,
    /// Something keeps from seeing.
    Blind(BlindSpot),
}

/// What is remembered of a GPU from look to look.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Visibility {
    /// What holds, as it was told.
    reported: Option<BlindSpot>,
    /// What was seen lately instead, and for how many looks in a row.
    other: (Option<BlindSpot>, u32),
}

impl BlindSpot {
    /// The word for a metric's label.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::DriverHangs => "driver-hangs",
            Self::DriverClosed => "driver-closed",
            Self::DriverFails => "driver-refuses",
            Self::NoBytes => "no-bytes",
            Self::NoHostPid => "no-host-pid",
            Self::UnreadableProc => "unreadable-proc",
        }
    }

    /// What is so and what to do, as the rest of a sentence.
    pub(super) fn explanation(self) -> &'static str {
        match self {
            Self::DriverHangs => {
                "the driver does not answer which processes are on it; see the kernel's log (dmesg) for what the \
                 GPU does"
            }
            Self::DriverClosed => "the driver is not open; the log of the node's agent says why",
            Self::DriverFails => {
                "the driver answers with an error when it is asked which processes are on it; the log of the \
                 node's agent says which"
            }
            Self::NoBytes => {
                "the driver does not tell how much memory its processes have, as in containers that hide it and \
                 with some modes of the driver"
            }
            Self::NoHostPid => {
                "none of the processes that the driver lists is seen by the agent; run it in the host's pid \
                 namespace (hostPID: true)"
            }
            Self::UnreadableProc => {
                "the agent may not read whose its processes are; give it the capability SYS_PTRACE, or run it as \
                 the chart does"
            }
        }
    }

    /// Whether a driver that lists nobody shows that this is over.
    fn is_of_driver(self) -> bool {
        matches!(self, Self::DriverHangs | Self::DriverClosed | Self::DriverFails)
    }
}

impl Visibility {
    /// What holds.
    pub(super) fn blind_spot(self) -> Option<BlindSpot> {
        self.reported
    }

    /// Takes a look; tells whether what holds has changed.
    pub(super) fn observe(&mut self, look: Observation) -> bool {
        let seen = match look {
            Observation::Pending => return false,
            Observation::Empty
                if self.reported.is_some_and(|reported| !reported.is_of_driver()) =>
            {
                return false;
            }
            Observation::Empty | Observation::Complete => None,
            Observation::Blind(kind) => Some(kind),
        };
        let looks = if self.other.0 == seen { self.other.1.saturating_add(1) } else { 1 };
        self.other = (seen, looks);
        let is_changed = seen != self.reported && looks >= MIN_CONSECUTIVE;
        if is_changed {
            self.reported = seen;
        }
        is_changed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What holds after looks, each so many times.
    fn after(looks: &[(Observation, u32)]) -> (Option<BlindSpot>, u32) {
        let (mut visibility, mut changes) = (Visibility::default(), 0);
        for (look, times) in looks {
            for _ in 0..*times {
                changes += u32::from(visibility.observe(*look));
            }
        }
        (visibility.blind_spot(), changes)
    }

    #[test]
    fn lasting_state_is_reported_once_and_passing_state_is_not() {
        let hidden = Observation::Blind(BlindSpot::NoHostPid);
        assert_eq!(after(&[(hidden, 9), (Observation::Complete, 1), (hidden, 9)]), (None, 0));
        assert_eq!(after(&[(hidden, 100)]), (Some(BlindSpot::NoHostPid), 1));
        assert_eq!(after(&[(hidden, 100), (Observation::Complete, 9)]).1, 1);
        assert_eq!(after(&[(hidden, 100), (Observation::Complete, 10)]), (None, 2));
        let closed = Observation::Blind(BlindSpot::DriverClosed);
        assert_eq!(after(&[(hidden, 10), (closed, 10)]), (Some(BlindSpot::DriverClosed), 2));
    }

    #[test]
    fn a_gpu_without_processes_shows_that_the_driver_answers_and_no_more() {
        let no_bytes = Observation::Blind(BlindSpot::NoBytes);
        assert_eq!(after(&[(no_bytes, 10), (Observation::Empty, 50)]).0, Some(BlindSpot::NoBytes));
        let hangs = Observation::Blind(BlindSpot::DriverHangs);
        assert_eq!(
            after(&[(hangs, 10), (Observation::Pending, 50)]).0,
            Some(BlindSpot::DriverHangs)
        );
        assert_eq!(after(&[(hangs, 10), (Observation::Empty, 10)]), (None, 2));
    }
}
