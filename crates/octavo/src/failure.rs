//! Error output: what happened, why, and what to do.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use octavo::error_text::error_text;
use octavo_sim::document::DocumentError;
use octavo_sim::run::SimError;
use octavo_view::ViewError;

/// Exit code for an invalid command line, the same as clap's.
const EXIT_USAGE: u8 = 2;

/// Prints the error to standard error and returns its exit code. A closed pipe on standard output
/// is not a failure: `octavo top | head` ends quietly. A broken socket or file is one.
pub(crate) fn report(error: &anyhow::Error) -> ExitCode {
    if is_broken_pipe(error) {
        return ExitCode::SUCCESS;
    }
    // Ignored: standard error may be closed.
    let _ = io::stderr().lock().write_all(text(error, lab_is_up()).as_bytes());
    if is_usage(error) { ExitCode::from(EXIT_USAGE) } else { ExitCode::FAILURE }
}

/// The lines for an error, with a hint if there is one.
fn text(error: &anyhow::Error, lab_is_up: bool) -> String {
    let mut text = error_text(error);
    let view = view_error(error);
    if lab_is_up && view.is_some_and(ViewError::is_without_cluster) {
        text.push_str("hint: a lab is up here: export KUBECONFIG=$(octavo lab kubeconfig)\n");
    } else if let Some(hint) = view.and_then(ViewError::hint) {
        let _ = writeln!(text, "hint: {hint}");
    }
    text
}

/// Whether the command line was invalid.
fn is_usage(error: &anyhow::Error) -> bool {
    view_error(error).is_some_and(ViewError::is_usage)
        || sim_error(error).is_some_and(SimError::is_usage)
        || error.downcast_ref().is_some_and(DocumentError::is_usage)
}

fn view_error(error: &anyhow::Error) -> Option<&ViewError> {
    error.chain().find_map(|cause| cause.downcast_ref())
}

fn sim_error(error: &anyhow::Error) -> Option<&SimError> {
    error.chain().find_map(|cause| cause.downcast_ref())
}

/// Whether the reader of standard output has gone away. Only the writing code can know: a socket
/// closed by its peer gives the same OS error. Programs not covered here handle it where they
/// write.
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let of_view = view_error(error).and_then(|error| match error {
        ViewError::Output(error) => Some(error),
        _ => None,
    });
    let of_sim = || sim_error(error).and_then(SimError::output);
    of_view.or_else(of_sim).is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

/// Whether the lab's kubeconfig exists at its default path.
fn lab_is_up() -> bool {
    let named = std::env::var_os("OCTAVO_LAB_DIR").map(PathBuf::from);
    octavo_lab::Layout::choose(named.as_deref()).is_ok_and(|layout| layout.kubeconfig().exists())
}

#[cfg(test)]
mod tests;
