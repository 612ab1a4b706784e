//! The connection to the agent of one share.

use core::sync::atomic::Ordering;

use octavo_guard_abi::message::{Frame, Kind, SIZE};

use crate::shares::Share;
use crate::sys::file::{File, Identity};
use crate::sys::socket;

/// Waits between attempts to connect, in milliseconds; each is twice the one before.
const FIRST_WAIT: u64 = 250;
const LONGEST_WAIT: u64 = 16_000;

/// Shortest time between two frames that say how often something happened, in milliseconds.
const APART: u64 = 1_000;

/// A connection, or the wait for one.
#[derive(Debug)]
pub(super) struct Line {
    stream: Option<(File, Identity)>,
    next_attempt: u64,
    wait: u64,
    /// Refusals that were told of.
    refused: u64,
    next_refusals: u64,
    /// The damage that was told of on this connection.
    damage: Option<u64>,
}

impl Line {
    pub(super) const fn new() -> Self {
        Self { stream: None, next_attempt: 0, wait: 0, refused: 0, next_refusals: 0, damage: None }
    }

    /// Connects if it is time, and says what has happened since the last look.
    pub(super) fn look(&mut self, share: &Share, now: u64) {
        if !self.is_there() {
            self.connect(share, now);
        }
        if self.stream.is_none() {
            return;
        }
        let damage = share.damage_code();
        if let Some(code) = damage
            && damage != self.damage
            && self.say(share, (Kind::Tampered, code), b"")
        {
            self.damage = damage;
        }
        let refused = share.slot().refused.load(Ordering::Relaxed);
        // The word is the container's to write, and may have gone back.
        let new = refused.saturating_sub(self.refused);
        if new > 0 && now >= self.next_refusals && self.say(share, (Kind::Refused, new), b"") {
            self.refused = refused;
            self.next_refusals = now + APART;
        }
    }

    /// Whether the stream is still the one that was opened, and its other end still there. A program that
    /// closes all files may have a stream of its own under the number by now.
    fn is_there(&mut self) -> bool {
        let Some((stream, identity)) = self.stream.take() else { return false };
        if stream.identity().map(|(_, now)| now) != Ok(identity) {
            let _ = stream.keep();
            return false;
        }
        if !socket::is_alive(&stream) {
            return false;
        }
        self.stream = Some((stream, identity));
        true
    }

    fn connect(&mut self, share: &Share, now: u64) {
        if now < self.next_attempt {
            return;
        }
        let stream = socket::connect(share.socket.bytes());
        let identity = stream.as_ref().ok().and_then(|stream| stream.identity().ok());
        let (Ok(stream), Some((_, identity))) = (stream, identity) else {
            self.wait = (self.wait * 2).clamp(FIRST_WAIT, LONGEST_WAIT);
            self.next_attempt = now + self.wait;
            return;
        };
        self.stream = Some((stream, identity));
        self.wait = 0;
        // An agent that comes and goes is not asked in a row.
        self.next_attempt = now + FIRST_WAIT;
        self.damage = None;
        self.say(share, (Kind::Hello, share.generation), b"");
    }

    /// Sends a frame; whether it went. Half a frame ends the connection.
    pub(super) fn say(&mut self, share: &Share, (kind, value): (Kind, u64), text: &[u8]) -> bool {
        let Some((stream, identity)) = &self.stream else { return false };
        let is_ours = stream.identity().is_ok_and(|(_, now)| now == *identity);
        let frame = Frame::new(kind, share.number(), value, text).encode();
        let went = is_ours && socket::send(stream, &frame) == Ok(SIZE);
        if !went
            && let Some((stream, _)) = self.stream.take()
            && !is_ours
        {
            let _ = stream.keep();
        }
        went
    }
}
