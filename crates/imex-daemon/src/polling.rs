//! Asks the service for its state again and again, during one life of it.

use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::sleep;
use tokio_util::task::AbortOnDropHandle;

use crate::ctl::{Answer, Ctl};

/// Time between questions until the service is ready: at first, and at most.
const FIRST: Duration = Duration::from_millis(100);
const MAX: Duration = Duration::from_secs(1);
/// Time between questions to a service that is ready.
const READY: Duration = Duration::from_secs(2);

/// Answers of a service. The questions end when this is dropped.
pub(crate) struct Polling {
    answers: mpsc::Receiver<Answer>,
    _task: AbortOnDropHandle<()>,
}

impl Polling {
    pub(crate) fn start(ctl: Ctl) -> Self {
        let (sender, answers) = mpsc::channel(1);
        let task = tokio::spawn(async move {
            let mut delays = Delays::default();
            loop {
                let answer = ctl.ask().await;
                let delay = delays.after(&answer);
                if sender.send(answer).await.is_err() {
                    return;
                }
                sleep(delay).await;
            }
        });
        Self { answers, _task: AbortOnDropHandle::new(task) }
    }

    /// The next answer. It may be dropped without a loss.
    pub(crate) async fn next(&mut self) -> Answer {
        match self.answers.recv().await {
            Some(answer) => answer,
            // The task does not end before this does.
            None => std::future::pending().await,
        }
    }
}

/// Time between questions.
#[derive(Default)]
struct Delays {
    next: Option<Duration>,
}

impl Delays {
    fn after(&mut self, answer: &Answer) -> Duration {
        if *answer == Answer::Ready {
            self.next = None;
            return READY;
        }
        let delay = self.next.unwrap_or(FIRST);
        self.next = Some((delay * 2).min(MAX));
        delay
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_are_frequent_until_the_service_is_ready() {
        let mut delays = Delays::default();
        let state = Answer::State("INITIALIZING".to_owned());
        for millis in [100, 200, 400, 800, 1000, 1000] {
            assert_eq!(delays.after(&state), Duration::from_millis(millis));
        }
        assert_eq!(delays.after(&Answer::Ready), Duration::from_secs(2));
        let lost = Answer::Unavailable("no answer".to_owned());
        assert_eq!(delays.after(&lost), Duration::from_millis(100));
    }
}
