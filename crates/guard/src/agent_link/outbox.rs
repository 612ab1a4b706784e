//! Names to report to the agent: each once, and a limited number.

use octavo_guard_abi::message::TEXT;

/// Maximum number of pending names.
const MAX_PENDING: usize = 16;

/// Maximum number of names remembered as reported.
const MAX_REMEMBERED: usize = 64;

/// A name to report.
#[derive(Clone, Copy, Debug)]
pub(super) struct Report {
    text: [u8; TEXT],
    length: usize,
    is_refused: bool,
}

impl Report {
    pub(super) fn name(&self) -> &[u8] {
        self.text.get(..self.length).unwrap_or(&[])
    }

    pub(super) fn is_refused(&self) -> bool {
        self.is_refused
    }
}

/// Zero bytes are an empty outbox.
#[derive(Debug)]
pub(super) struct Outbox {
    pending: [Report; MAX_PENDING],
    count: usize,
    /// Hashes of the names so far; 0 for none.
    sent_hashes: [u64; MAX_REMEMBERED],
    sent_count: usize,
}

/// FNV-1a.
fn hash(name: &[u8]) -> u64 {
    name.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

impl Outbox {
    /// Adds a name. Returns whether it is new and there was space.
    pub(super) fn report(&mut self, name: &[u8], is_refused: bool) -> bool {
        let hash = hash(name);
        if self.sent_hashes.contains(&hash) || self.sent_count == MAX_REMEMBERED {
            return false;
        }
        let length = name.len().min(TEXT);
        let mut report = Report { text: [0; TEXT], length, is_refused };
        if let (Some(to), Some(from)) = (report.text.get_mut(..length), name.get(..length)) {
            to.copy_from_slice(from);
        }
        if !self.push(report) {
            return false;
        }
        if let Some(place) = self.sent_hashes.get_mut(self.sent_count) {
            *place = hash;
            self.sent_count += 1;
        }
        true
    }

    fn push(&mut self, report: Report) -> bool {
        match self.pending.get_mut(self.count) {
            Some(place) => {
                *place = report;
                self.count += 1;
                true
            }
            None => false,
        }
    }

    /// Removes a name.
    pub(super) fn next(&mut self) -> Option<Report> {
        self.count = self.count.checked_sub(1)?;
        self.pending.get(self.count).copied()
    }

    /// Adds a name back that could not be sent; drops it if newer names took its place.
    pub(super) fn put_back(&mut self, report: Report) {
        self.push(report);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outbox() -> Outbox {
        let report = Report { text: [0; TEXT], length: 0, is_refused: false };
        Outbox {
            pending: [report; MAX_PENDING],
            count: 0,
            sent_hashes: [0; MAX_REMEMBERED],
            sent_count: 0,
        }
    }

    #[test]
    fn a_name_is_reported_once() {
        let mut outbox = outbox();
        assert!(outbox.report(b"cuMemFancyAlloc", true));
        assert!(!outbox.report(b"cuMemFancyAlloc", true));
        let report = outbox.next().expect("a report");
        assert_eq!((report.name(), report.is_refused()), (&b"cuMemFancyAlloc"[..], true));
        assert!(outbox.next().is_none());
        assert!(!outbox.report(b"cuMemFancyAlloc", true));
    }

    #[test]
    fn names_beyond_the_capacity_are_dropped() {
        let mut outbox = outbox();
        let name = |number: usize| std::format!("cuLaunch{number}");
        let kept = (0..=MAX_PENDING)
            .filter(|number| outbox.report(name(*number).as_bytes(), false))
            .count();
        assert_eq!(kept, MAX_PENDING);
        outbox.next().expect("a report");
        assert!(outbox.report(name(MAX_PENDING).as_bytes(), false));
    }
}
