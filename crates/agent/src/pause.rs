//! A pause in a loop that also waits for changes.

use std::time::Duration;

use tokio::time::sleep;

/// Sleeps for this time. `None`: forever, so that changes alone end the wait.
pub(crate) async fn sleep_for(time: Option<Duration>) {
    match time {
        Some(time) => sleep(time).await,
        None => std::future::pending().await,
    }
}
