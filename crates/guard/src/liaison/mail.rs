//! Names that wait to be told to the agent: each once, and no more than a few.

use octavo_guard_abi::message::TEXT;

/// Names that can wait.
const MOST: usize = 16;

/// Names that are remembered as told.
const REMEMBERED: usize = 64;

/// A name to tell.
#[derive(Clone, Copy, Debug)]
pub(super) struct Note {
    text: [u8; TEXT],
    length: usize,
    is_refused: bool,
}

impl Note {
    pub(super) fn name(&self) -> &[u8] {
        self.text.get(..self.length).unwrap_or(&[])
    }

    pub(super) fn is_refused(&self) -> bool {
        self.is_refused
    }
}

/// Zero bytes are an empty one.
#[derive(Debug)]
pub(super) struct Mail {
    notes: [Note; MOST],
    count: usize,
    /// Hashes of the names so far; 0: none.
    told: [u64; REMEMBERED],
    told_count: usize,
}

/// FNV-1a.
fn hash(name: &[u8]) -> u64 {
    name.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

impl Mail {
    /// Keeps a name; whether it is new and there was room.
    pub(super) fn note(&mut self, name: &[u8], is_refused: bool) -> bool {
        let hash = hash(name);
        if self.told.contains(&hash) || self.told_count == REMEMBERED {
            return false;
        }
        let length = name.len().min(TEXT);
        let mut note = Note { text: [0; TEXT], length, is_refused };
        if let (Some(to), Some(from)) = (note.text.get_mut(..length), name.get(..length)) {
            to.copy_from_slice(from);
        }
        if !self.push(note) {
            return false;
        }
        if let Some(place) = self.told.get_mut(self.told_count) {
            *place = hash;
            self.told_count += 1;
        }
        true
    }

    fn push(&mut self, note: Note) -> bool {
        match self.notes.get_mut(self.count) {
            Some(place) => {
                *place = note;
                self.count += 1;
                true
            }
            None => false,
        }
    }

    /// Takes a name out.
    pub(super) fn next(&mut self) -> Option<Note> {
        self.count = self.count.checked_sub(1)?;
        self.notes.get(self.count).copied()
    }

    /// Keeps a name that could not be told; drops it if newer ones took the room.
    pub(super) fn put_back(&mut self, note: Note) {
        self.push(note);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mail() -> Mail {
        let note = Note { text: [0; TEXT], length: 0, is_refused: false };
        Mail { notes: [note; MOST], count: 0, told: [0; REMEMBERED], told_count: 0 }
    }

    #[test]
    fn a_name_is_told_once() {
        let mut mail = mail();
        assert!(mail.note(b"cuMemFancyAlloc", true));
        assert!(!mail.note(b"cuMemFancyAlloc", true));
        let note = mail.next().expect("a note");
        assert_eq!((note.name(), note.is_refused()), (&b"cuMemFancyAlloc"[..], true));
        assert!(mail.next().is_none());
        assert!(!mail.note(b"cuMemFancyAlloc", true));
    }

    #[test]
    fn names_beyond_the_room_are_dropped_and_not_remembered() {
        let mut mail = mail();
        let name = |number: usize| std::format!("cuLaunch{number}");
        let kept = (0..=MOST).filter(|number| mail.note(name(*number).as_bytes(), false)).count();
        assert_eq!(kept, MOST);
        mail.next().expect("a note");
        assert!(mail.note(name(MOST).as_bytes(), false));
    }
}
