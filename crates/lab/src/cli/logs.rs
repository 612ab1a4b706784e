//! `octavo lab logs`: prints the log of one process.

use std::io::{Read as _, Seek as _, SeekFrom};
use std::time::Duration;

use anyhow::Context as _;

use crate::cli::args::{LogSource, LogsArgs};
use crate::cli::output::print;
use crate::cluster::layout::Layout;

/// Interval between two reads of a followed log.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Prints the log; with `--follow` also later additions.
pub(crate) async fn show(layout: &Layout, args: &LogsArgs) -> anyhow::Result<()> {
    let path = match &args.process {
        LogSource::Component(component) => layout.log(*component),
        LogSource::Real(node, program) => layout.real_log(node, program),
    };
    let mut file = std::fs::File::open(&path)
        .with_context(|| format!("there is no log {}: is a lab up there?", path.display()))?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).with_context(|| format!("read {}", path.display()))?;
    let text = String::from_utf8_lossy(&bytes);
    print(last_lines(&text, args.tail))?;
    if !args.follow {
        return Ok(());
    }
    loop {
        tokio::time::sleep(POLL_INTERVAL).await;
        // A log that became shorter was truncated.
        let position = file.stream_position().context("follow the log")?;
        if file.metadata().is_ok_and(|meta| meta.len() < position) {
            file.seek(SeekFrom::Start(0)).context("follow the log")?;
        }
        bytes.clear();
        file.read_to_end(&mut bytes).with_context(|| format!("read {}", path.display()))?;
        print(&String::from_utf8_lossy(&bytes))?;
    }
}

fn last_lines(text: &str, count: Option<usize>) -> &str {
    let Some(count) = count else { return text };
    let body = text.strip_suffix('\n').unwrap_or(text);
    let start = match count.checked_sub(1) {
        None => text.len(),
        Some(earlier) => {
            body.rmatch_indices('\n').nth(earlier).map_or(0, |(position, _)| position + 1)
        }
    };
    text.get(start..).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_are_whole_lines() {
        assert_eq!(last_lines("a\nb\nc\n", Some(2)), "b\nc\n");
        assert_eq!(last_lines("a\nb", Some(1)), "b");
        assert_eq!(last_lines("a\nb\n", Some(9)), "a\nb\n");
        assert_eq!(last_lines("a\nb\n", Some(0)), "");
        assert_eq!(last_lines("a\nb\n", None), "a\nb\n");
    }
}
