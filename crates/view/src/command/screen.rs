//! Repeated drawing of a report.

use std::io::{self, IsTerminal};
use std::time::Duration;

use crate::error::ViewError;

/// Time between two readings.
const REFRESH_INTERVAL: Duration = Duration::from_secs(2);

/// Moves the cursor to the top left. Remains of the previous drawing are cleared line by line,
/// which flickers less than clearing the whole screen first.
const CURSOR_HOME: &str = "\u{1b}[H";
const CLEAR_LINE_END: &str = "\u{1b}[K\n";
const CLEAR_SCREEN_END: &str = "\u{1b}[J";
const CLEAR_SCREEN: &str = "\u{1b}[2J";

/// Draws the result of `read` until the process ends or standard output is closed. The first
/// reading must succeed; a later failure is logged and retried.
pub(super) async fn watch(
    read: impl AsyncFn() -> Result<String, ViewError>,
) -> Result<(), ViewError> {
    let terminal = io::stdout().is_terminal();
    let mut text = read().await?;
    if terminal {
        super::write(CLEAR_SCREEN)?;
    }
    loop {
        super::write(&frame(&text, terminal))?;
        tokio::time::sleep(REFRESH_INTERVAL).await;
        text = match read().await {
            Ok(text) => text,
            Err(ViewError::Output(error)) => return Err(error.into()),
            Err(error) => {
                tracing::warn!(%error, "the cluster could not be read; trying again");
                text
            }
        };
    }
}

/// One drawing: over the last one on a terminal, after it elsewhere.
fn frame(text: &str, terminal: bool) -> String {
    if terminal {
        format!("{CURSOR_HOME}{}{CLEAR_SCREEN_END}", text.replace('\n', CLEAR_LINE_END))
    } else {
        format!("{text}\n")
    }
}
