//! How the text of a hosts file changes.

use std::fmt::Write as _;
use std::ops::Range;

use octavo_api::names::IMEX_SLOT_PREFIX;

use crate::slots::{self, Slots};

/// First and last line of the slots' lines. A fragment of them at the end of a file is known by the common begin.
const BEGIN: &str = "# octavo imex-daemon: nodes of the ComputeDomain";
const END: &str = "# octavo imex-daemon: end";
const SHORTEST_FRAGMENT: &str = "# octavo";

/// Characters of the longest address.
const ADDRESS_WIDTH: usize = 39;

/// A new text for a file.
#[derive(Debug)]
pub(crate) struct Edit {
    /// The whole text.
    pub(crate) text: Vec<u8>,
    /// Bytes of the old text that stay in place; what follows is cut off first.
    pub(crate) kept: usize,
}

/// Of what kind a line is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Not of this program.
    Foreign,
    /// An address of a slot.
    Slot,
    /// [`BEGIN`], [`END`], or one that was written in part.
    Marker,
    /// The part of a slot's line at the end of a file.
    Fragment,
}

struct Line {
    range: Range<usize>,
    kind: Kind,
}

impl Edit {
    /// The text in which each slot has one line. Foreign lines keep their place.
    ///
    /// A line of a slot outside of the block becomes a comment by its first byte. Those after the last foreign line are cut off.
    pub(crate) fn new(old: &[u8], slots: &Slots) -> Self {
        let block = block(slots);
        let lines = lines(old);
        let place = find(old, &lines, slots);
        let last_foreign = lines.iter().rev().find(|line| line.kind == Kind::Foreign);
        let foreign_end = last_foreign.map_or(0, |line| line.range.end);
        let kept = place.as_ref().map_or(foreign_end, |place| foreign_end.max(place.end));

        let mut text = old.get(..kept).unwrap_or_default().to_vec();
        for line in lines.iter().filter(|line| line.kind == Kind::Slot) {
            let is_in_place = place.as_ref().is_some_and(|it| it.contains(&line.range.start));
            if let Some(first) = text.get_mut(line.range.start).filter(|_| !is_in_place) {
                *first = b'#';
            }
        }
        if let Some(place) = place {
            if let Some(old) = text.get_mut(place) {
                old.copy_from_slice(&block);
            }
        } else {
            if text.last().is_some_and(|last| *last != b'\n') {
                text.push(b'\n');
            }
            text.extend(&block);
        }
        Self { text, kept }
    }

    /// The bytes of the text that differ from those of the old text in place.
    pub(crate) fn changed(&self, old: &[u8]) -> Range<usize> {
        let old = old.get(..self.kept).unwrap_or_default();
        let differs = |index: &usize| self.text.get(*index) != old.get(*index);
        let first = (0..self.text.len()).find(differs);
        let last = (0..self.text.len()).rev().find(differs);
        first.unwrap_or_default()..last.map_or(0, |last| last + 1)
    }
}

/// The lines of the slots between their markers.
fn block(slots: &Slots) -> Vec<u8> {
    let mut text = format!("{BEGIN}\n");
    for (name, address) in slots.iter() {
        // Writing to a text does not fail.
        let _ = writeln!(text, "{:<ADDRESS_WIDTH$} {name}", address.to_string());
    }
    text.push_str(END);
    text.push('\n');
    text.into_bytes()
}

/// Where a block of the right form is.
fn find(text: &[u8], lines: &[Line], slots: &Slots) -> Option<Range<usize>> {
    let has = |line: &Line, content: &str| {
        text.get(line.range.clone()).and_then(|line| line.strip_suffix(b"\n"))
            == Some(content.as_bytes())
    };
    let is_slot = |line: &Line, index: usize| {
        line.kind == Kind::Slot
            && text.get(line.range.start + ADDRESS_WIDTH..line.range.end)
                == Some(format!(" {}\n", slots::name(index)).as_bytes())
    };
    lines.windows(slots.count() + 2).find_map(|lines| {
        let [begin, inner @ .., end] = lines else { return None };
        let is_block = has(begin, BEGIN)
            && has(end, END)
            && inner.iter().enumerate().all(|(index, line)| is_slot(line, index));
        is_block.then_some(begin.range.start..end.range.end)
    })
}

fn lines(text: &[u8]) -> Vec<Line> {
    let (mut lines, mut start) = (Vec::<Line>::new(), 0);
    for content in text.split_inclusive(|byte| *byte == b'\n') {
        let end = start + content.len();
        // A foreign line may have any encoding.
        let content = String::from_utf8_lossy(content);
        let kind = match content.strip_suffix('\n') {
            Some(content) => whole(content),
            None => unfinished(&content, lines.last().map(|line| line.kind)),
        };
        lines.push(Line { range: start..end, kind });
        start = end;
    }
    lines
}

/// The kind of a line with an end.
fn whole(content: &str) -> Kind {
    let words: Vec<_> = content.split_ascii_whitespace().collect();
    match words[..] {
        _ if content == BEGIN || content == END => Kind::Marker,
        [address, name] if is_slot_name(name) && !address.starts_with('#') => Kind::Slot,
        _ if is_mixed(content) => Kind::Slot,
        _ => Kind::Foreign,
    }
}

/// Whether a slot's line has parts of two addresses, since a write in place was interrupted.
fn is_mixed(content: &str) -> bool {
    content.split_at_checked(ADDRESS_WIDTH).is_some_and(|(address, name)| {
        address.bytes().all(|it| is_in_address(it) || it == b' ')
            && name.strip_prefix(' ').is_some_and(is_slot_name)
    })
}

/// The kind of a last line without an end, by the line before it.
fn unfinished(content: &str, before: Option<Kind>) -> Kind {
    let is_marker = [BEGIN, END].iter().any(|marker| marker.starts_with(content));
    match (whole(content), before) {
        (Kind::Foreign, _) if is_marker && content.starts_with(SHORTEST_FRAGMENT) => Kind::Marker,
        (Kind::Foreign, Some(Kind::Slot | Kind::Marker)) if is_marker || is_slot_begin(content) => {
            Kind::Fragment
        }
        (kind, _) => kind,
    }
}

/// Whether a text is the begin of a slot's line: an address, spaces up to its width, and the begin of a name.
fn is_slot_begin(text: &str) -> bool {
    let Some((address, name)) = text.split_at_checked(text.len().min(ADDRESS_WIDTH)) else {
        return false;
    };
    address.trim_end_matches(' ').bytes().all(is_in_address)
        && match name.strip_prefix(' ').unwrap_or(name).strip_prefix(IMEX_SLOT_PREFIX) {
            Some(index) => are_digits(index),
            None => format!(" {IMEX_SLOT_PREFIX}").starts_with(name),
        }
}

fn is_slot_name(word: &str) -> bool {
    let index = word.strip_prefix(IMEX_SLOT_PREFIX);
    index.is_some_and(|index| index.len() >= 4 && are_digits(index))
}

fn is_in_address(byte: u8) -> bool {
    byte.is_ascii_hexdigit() || b".:".contains(&byte)
}

fn are_digits(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit())
}
