//! Progress of long commands: a moving line on a terminal, plain lines at intervals elsewhere.

use std::io::{IsTerminal as _, Write as _};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

/// Shortest interval between two plain lines of one step.
const PLAIN_INTERVAL: Duration = Duration::from_secs(5);

/// Destination of progress messages.
#[derive(Debug)]
pub struct Progress {
    form: Form,
}

#[derive(Debug)]
enum Form {
    Silent,
    Bar(ProgressBar),
    Plain(Mutex<Plain>),
}

#[derive(Debug, Default)]
struct Plain {
    step: String,
    last: Option<Instant>,
}

impl Progress {
    /// Discards progress, for tests and benchmarks.
    pub fn silent() -> Self {
        Self { form: Form::Silent }
    }

    /// Shows progress on standard error.
    pub fn to_stderr() -> Self {
        if !std::io::stderr().is_terminal() {
            return Self { form: Form::Plain(Mutex::default()) };
        }
        let bar = ProgressBar::new_spinner();
        if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} [{elapsed}]") {
            bar.set_style(style);
        }
        bar.enable_steady_tick(Duration::from_millis(120));
        Self { form: Form::Bar(bar) }
    }

    /// Starts a step.
    pub(crate) fn step(&self, text: &str) {
        match &self.form {
            Form::Silent => {}
            Form::Bar(bar) => bar.set_message(text.to_owned()),
            Form::Plain(plain) => {
                let mut plain = plain.lock().unwrap_or_else(PoisonError::into_inner);
                if plain.step != text {
                    text.clone_into(&mut plain.step);
                    plain.last = Some(Instant::now());
                    say(text);
                }
            }
        }
    }

    /// Shows the progress within a step: `packages 312/2210`.
    pub(crate) fn figure(&self, text: &str) {
        match &self.form {
            Form::Silent => {}
            Form::Bar(bar) => bar.set_message(text.to_owned()),
            Form::Plain(plain) => {
                let mut plain = plain.lock().unwrap_or_else(PoisonError::into_inner);
                if plain.last.is_none_or(|last| last.elapsed() >= PLAIN_INTERVAL) {
                    plain.last = Some(Instant::now());
                    say(text);
                }
            }
        }
    }

    /// Prints a permanent line.
    pub(crate) fn line(&self, text: &str) {
        match &self.form {
            Form::Silent => {}
            Form::Bar(bar) => bar.suspend(|| say(text)),
            Form::Plain(_) => say(text),
        }
    }

    /// Removes the moving line.
    pub(crate) fn finish(&self) {
        if let Form::Bar(bar) = &self.form {
            bar.finish_and_clear();
        }
    }
}

/// Prints a line. A closed standard error is ignored.
fn say(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}
