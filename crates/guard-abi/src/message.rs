//! Messages from the guard to the agent on the share's socket (a stream): frames of one size.
//!
//! The first frame is [`Kind::Hello`]. From the connection the agent learns the process's pid on
//! the host (`SO_PEERCRED`), which the process itself does not know. An invalid frame closes the
//! connection. The agent replies only if the first frame asks for a lease page ([`LEASE_PAGE`]):
//! with the byte [`REPLY`] and two descriptors (`SCM_RIGHTS`), the page and the doorbell.

/// Size of a frame in bytes.
pub const SIZE: usize = 128;

/// Maximum length of a frame's text, in bytes.
pub const TEXT: usize = SIZE - 24;

/// Text of a first frame that asks for a [`crate::lease_page`]. Another layout has another text.
pub const LEASE_PAGE: &[u8] = b"lease page 1";

/// The byte of the agent's reply.
pub const REPLY: u8 = 1;

/// Type of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Kind {
    /// The guard of a process has claimed a slot; `value` is the generation that it found. `text`
    /// may be [`LEASE_PAGE`].
    Hello = 1,
    /// A function unknown to the guard was called, or a look-up of it was refused; `text` is its name, `value` is 1 if
    /// it was refused.
    Unknown = 2,
    /// The state file was modified from outside. `value` is the kind of damage
    /// ([`crate::state::Damage`]: size 0, magic 1, version 2, generation 3).
    Tampered = 3,
    /// Allocations were refused since the last frame; `value` is their number.
    Refused = 4,
}

/// A frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Its type.
    pub kind: Kind,
    /// Slot of the process.
    pub slot: u32,
    /// Meaning depends on `kind`.
    pub value: u64,
    length: u8,
    text: [u8; TEXT],
}

impl Frame {
    /// Creates a frame. A text that is too long is truncated.
    #[allow(clippy::cast_possible_truncation, reason = "a text is shorter than 256 bytes")]
    pub fn new(kind: Kind, slot: u32, value: u64, text: &[u8]) -> Self {
        let length = text.len().min(TEXT);
        let mut frame = Self { kind, slot, value, length: length as u8, text: [0; TEXT] };
        frame.text[..length].copy_from_slice(&text[..length]);
        frame
    }

    /// Its text. The container wrote it, so it may hold any bytes.
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

    /// Decodes a frame; `None` if the bytes are invalid.
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
