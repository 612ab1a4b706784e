//! What a command that waits says meanwhile.

use std::io::{self, Write as _};

/// Writes a line to standard error, which may be closed.
pub(super) fn report_progress(line: &str) {
    let _ = writeln!(io::stderr().lock(), "{line}");
}
