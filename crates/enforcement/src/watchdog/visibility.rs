//! Whether allocations that bypass the guard on a GPU would be detected. Only a state that lasts for several polls is
//! reported, once.

/// Consecutive observations before a report: two seconds with a poll every 200 ms.
const MIN_CONSECUTIVE: u32 = 10;

/// Reason why bypassing allocations on a GPU are not detected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum BlindSpot {
    /// The driver's answer does not come.
    DriverHangs,
    /// The driver is not open.
    DriverClosed,
    /// The driver answers with an error.
    DriverFails,
    /// The driver does not report the memory of processes.
    NoBytes,
    /// None of the driver's pids exists here.
    NoHostPid,
    /// The files that identify the processes are unreadable.
    UnreadableProc,
}

/// Observation of a GPU in one poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Observation {
    /// The memory and the shares of all processes are known.
    Complete,
    /// The driver answers with an empty list.
    Empty,
    /// No answer yet.
    Pending,
    /// Something keeps from seeing.
    Blind(BlindSpot),
}

/// Visibility state of a GPU between polls.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Visibility {
    /// The reported state.
    reported: Option<BlindSpot>,
    /// The latest different state, and its number of consecutive observations.
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

    /// Reason and remedy, as the end of a sentence.
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

    /// Whether an empty answer of the driver disproves it.
    fn is_of_driver(self) -> bool {
        matches!(self, Self::DriverHangs | Self::DriverClosed | Self::DriverFails)
    }
}

impl Visibility {
    /// The current blind spot.
    pub(super) fn blind_spot(self) -> Option<BlindSpot> {
        self.reported
    }

    /// Handles an observation; returns whether the reported state changed.
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

    /// The state after repeated observations.
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
