//! When the service is asked to look up names again, by SIGUSR1.
//!
//! `nvidia-imex` ignores a signal that follows another within five seconds. So signals within that time become one after it.
//! A signal before the service has set its handler would end it: until it has answered a command, its start counts as a signal.

use std::time::Duration;

use tokio::time::Instant;

/// Time between two signals: the service's five seconds, and time for a signal to reach it.
const WINDOW: Duration = Duration::from_millis(5500);

/// The signals of one life of the service.
#[derive(Debug)]
pub(crate) struct ReloadWindow {
    earliest: Instant,
    is_wanted: bool,
    has_answered: bool,
}

impl ReloadWindow {
    /// Of a service that starts now. It looks up all names.
    pub(crate) fn new(now: Instant) -> Self {
        Self { earliest: now + WINDOW, is_wanted: false, has_answered: false }
    }

    /// The service has answered a command, so it runs.
    pub(crate) fn answered(&mut self, now: Instant) {
        if !self.has_answered {
            self.has_answered = true;
            self.earliest = self.earliest.min(now);
        }
    }

    /// Names have other addresses.
    pub(crate) fn want(&mut self) {
        self.is_wanted = true;
    }

    /// When the next signal is due; `None`: there is no reason for one.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.is_wanted.then_some(self.earliest)
    }

    /// The signal was sent.
    pub(crate) fn sent(&mut self, now: Instant) {
        *self = Self { earliest: now + WINDOW, is_wanted: false, has_answered: true };
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::{advance, sleep_until};

    use super::*;

    /// Sends signals as they are due, until there is no reason for one.
    async fn drain(window: &mut ReloadWindow) -> Vec<Duration> {
        let (start, mut sent) = (Instant::now(), Vec::new());
        while let Some(due) = window.due() {
            sleep_until(due).await;
            window.sent(Instant::now());
            sent.push(start.elapsed());
        }
        sent
    }

    #[tokio::test(start_paused = true)]
    async fn signals_within_the_window_become_one_after_it() {
        let mut window = ReloadWindow::new(Instant::now());
        assert!(drain(&mut window).await.is_empty(), "a start is no reason");
        window.answered(Instant::now());
        window.want();
        assert_eq!(drain(&mut window).await, [Duration::ZERO], "the first is sent at once");
        for _ in 0..3 {
            advance(Duration::from_millis(500)).await;
            window.want();
        }
        let sent = drain(&mut window).await;
        assert_eq!(sent.len(), 1);
        assert!(sent[0] + Duration::from_millis(1500) >= WINDOW, "{sent:?}");
        advance(WINDOW).await;
        window.want();
        assert_eq!(drain(&mut window).await, [Duration::ZERO]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_service_that_has_not_answered_gets_no_signal_at_once() {
        let mut window = ReloadWindow::new(Instant::now());
        window.want();
        assert_eq!(window.due(), Some(Instant::now() + WINDOW));
        advance(Duration::from_secs(1)).await;
        window.answered(Instant::now());
        assert_eq!(drain(&mut window).await, [Duration::ZERO]);
        window.answered(Instant::now());
        window.want();
        assert_eq!(drain(&mut window).await.len(), 1);
        assert!(window.due().is_none());
    }
}
