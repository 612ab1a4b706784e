//! The connection to the agent of one share.

use core::sync::atomic::Ordering;

use octavo_guard_abi::lease_page::{self, LeasePage};
use octavo_guard_abi::message::{Frame, Kind, LEASE_PAGE, REPLY, SIZE};

use crate::platform::sys::file::{File, Identity};
use crate::platform::sys::socket;
use crate::shares::{Mapped, Share};

/// Delays between attempts to connect, in milliseconds. The delay doubles with each failure.
const MIN_RETRY_DELAY_MS: u64 = 250;
const MAX_RETRY_DELAY_MS: u64 = 16_000;

/// Minimum interval between two frames that report a count, in milliseconds.
const REFUSAL_REPORT_INTERVAL_MS: u64 = 1_000;

/// How long a new connection waits for the agent's reply, in milliseconds. A later reply is taken at the next poll. An
/// agent without leases never replies.
const REPLY_WAIT_MS: u32 = 20;

/// A connection, or the wait for one.
#[derive(Debug)]
pub(super) struct Connection {
    stream: Option<(File, Identity)>,
    next_attempt: u64,
    retry_delay: u64,
    /// Refusals that were reported.
    reported_refusals: u64,
    next_refusal_report: u64,
    /// The damage that was reported on this connection.
    reported_damage: Option<u64>,
}

impl Connection {
    pub(super) const fn new() -> Self {
        Self {
            stream: None,
            next_attempt: 0,
            retry_delay: 0,
            reported_refusals: 0,
            next_refusal_report: 0,
            reported_damage: None,
        }
    }

    /// Connects if it is time, and reports new events.
    pub(super) fn poll(&mut self, share: &Share, now: u64) {
        if !self.check_alive() {
            self.connect(share, now);
        }
        let Some((stream, _)) = &self.stream else {
            if share.leases.has_page() {
                // The agent is gone: no lease is needed until the next one comes.
                share.leases.drop_page();
            }
            return;
        };
        if !share.leases.has_page() {
            take_page(stream, share);
        }
        let damage = share.damage_code();
        if let Some(code) = damage
            && damage != self.reported_damage
            && self.send(share, (Kind::Tampered, code), b"")
        {
            self.reported_damage = damage;
        }
        let refused = share.slot().refused.load(Ordering::Relaxed);
        // The container can write this word, so it may have decreased.
        let new = refused.saturating_sub(self.reported_refusals);
        if new > 0 && now >= self.next_refusal_report && self.send(share, (Kind::Refused, new), b"")
        {
            self.reported_refusals = refused;
            self.next_refusal_report = now + REFUSAL_REPORT_INTERVAL_MS;
        }
    }

    /// Drops the stream if it is not the one that was opened, or if its other end is gone. Returns
    /// whether it is alive. After a program has closed all its files, the descriptor may be a file
    /// of the program.
    fn check_alive(&mut self) -> bool {
        let Some((stream, identity)) = self.stream.take() else { return false };
        if stream.identity().map(|(_, now)| now) != Ok(identity) {
            let _ = stream.into_descriptor();
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
            self.retry_delay = (self.retry_delay * 2).clamp(MIN_RETRY_DELAY_MS, MAX_RETRY_DELAY_MS);
            self.next_attempt = now + self.retry_delay;
            return;
        };
        self.stream = Some((stream, identity));
        self.retry_delay = 0;
        // Reconnects to an agent that keeps closing are delayed.
        self.next_attempt = now + MIN_RETRY_DELAY_MS;
        self.reported_damage = None;
        share.leases.drop_page();
        if self.send(share, (Kind::Hello, share.generation), LEASE_PAGE)
            && let Some((stream, _)) = &self.stream
        {
            socket::wait_readable(stream, REPLY_WAIT_MS);
        }
    }

    /// Sends a frame. Returns whether it was sent. A partial frame ends the connection.
    pub(super) fn send(&mut self, share: &Share, (kind, value): (Kind, u64), text: &[u8]) -> bool {
        let Some((stream, identity)) = &self.stream else { return false };
        let is_unchanged = stream.identity().is_ok_and(|(_, now)| now == *identity);
        let frame = Frame::new(kind, share.number(), value, text).encode();
        let was_sent = is_unchanged && socket::send(stream, &frame) == Ok(SIZE);
        if !was_sent
            && let Some((stream, _)) = self.stream.take()
            && !is_unchanged
        {
            let _ = stream.into_descriptor();
        }
        was_sent
    }
}

/// Takes the lease page that the agent has sent, if it has.
fn take_page(stream: &File, share: &Share) {
    let Some([page, doorbell]) = socket::receive_two(stream, REPLY) else { return };
    // The agent may have a page of another layout one day.
    if page.identity().is_ok_and(|(size, _)| size == lease_page::SIZE as u64)
        && let Ok(page) = Mapped::<LeasePage>::of_process(&page, lease_page::SIZE)
    {
        share.leases.take_page(page.leak(), doorbell);
    }
}
