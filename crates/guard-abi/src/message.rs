//! What a guard says to the agent on the share's socket (a stream): frames of one size.
//!
//! The first frame is [`Kind::Hello`]; from the connection the agent learns the process's pid on the host
//! (`SO_PEERCRED`), which the process itself does not know. The agent answers nothing. A frame that is not
//! one closes the connection.

/// Bytes of a frame.
pub const SIZE: usize = 128;

/// Longest text of a frame, in bytes.
pub const TEXT: usize = SIZE - 24;

/// What a frame says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Kind {
    /// The guard of a process has taken a slot; `value` is the generation that it found.
    Hello = 1,
    /// A function that the guard does not know was called or asked for; `text` is its name, `value` is 1 if
    /// it was refused.
    Unknown = 2,
    /// The share's state file is not what it was; `value` says what of it ([`crate::state::Damage`]: size 0,
    /// magic 1, version 2, generation 3).
    Tampered = 3,
    /// Allocations were refused since the last frame; `value` is their number.
    Refused = 4,
}

/// One frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// What it says.
    pub kind: Kind,
    /// Slot of the process.
    pub slot: u32,
    /// As the kind says.
    pub value: u64,
    length: u8,
    text: [u8; TEXT],
}

impl Frame {
    /// A frame; a text that is too long is cut.
    #[allow(clippy::cast_possible_truncation, reason = "a text is shorter than 256 bytes")]
    pub fn new(kind: Kind, slot: u32, value: u64, text: &[u8]) -> Self {
        let length = text.len().min(TEXT);
        let mut frame = Self { kind, slot, value, length: length as u8, text: [0; TEXT] };
        frame.text[..length].copy_from_slice(&text[..length]);
        frame
    }

    /// Its text, which a container wrote: any bytes.
    pub fn text(&self) -> &[u8] {
        &self.text[..usize::from(self.length)]
    }

    /// The bytes of the frame.
    pub fn encode(&self) -> [u8; SIZE] {
        let mut bytes = [0; SIZE];
        bytes[..4].copy_from_slice(&(self.kind as u32).to_ne_bytes());
        bytes[4..8].copy_from_slice(&self.slot.to_ne_bytes());
        bytes[8..16].copy_from_slice(&self.value.to_ne_bytes());
        bytes[16] = self.length;
        bytes[24..].copy_from_slice(&self.text);
        bytes
    }

    /// The frame of some bytes; none if they are not one.
    pub fn decode(bytes: &[u8; SIZE]) -> Option<Self> {
        let kind = match crate::limits::u32_at(bytes, 0) {
            1 => Kind::Hello,
            2 => Kind::Unknown,
            3 => Kind::Tampered,
            4 => Kind::Refused,
            _ => return None,
        };
        let length = bytes[16];
        if usize::from(length) > TEXT {
            return None;
        }
        let mut text = [0; TEXT];
        text.copy_from_slice(&bytes[24..]);
        let slot = crate::limits::u32_at(bytes, 4);
        let value = crate::limits::u64_at(bytes, 8);
        Some(Self { kind, slot, value, length, text })
    }
}

#[cfg(test)]
mod tests;
