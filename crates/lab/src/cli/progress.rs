//! Progress of long commands: a moving line on a terminal, plain lines at intervals elsewhere.

use std::io::{IsTerminal as _, Write as _};
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use self::steps::Steps;

mod steps;

/// Shortest interval between two plain lines of one step.
const PLAIN_INTERVAL: Duration = Duration::from_secs(5);

/// Destination of progress messages.
#[derive(Debug)]
pub struct Progress {
    form: Form,
    began: Instant,
    steps: Mutex<Steps>,
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
        Self::new(Form::Silent)
    }

    /// Shows progress on standard error.
    pub fn to_stderr() -> Self {
        if !std::io::stderr().is_terminal() {
            return Self::new(Form::Plain(Mutex::default()));
        }
        let bar = ProgressBar::new_spinner();
        if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} [{elapsed}]") {
            bar.set_style(style);
        }
        bar.enable_steady_tick(Duration::from_millis(120));
        Self::new(Form::Bar(bar))
    }

    fn new(form: Form) -> Self {
        Self { form, began: Instant::now(), steps: Mutex::default() }
    }

    /// Numbers the following steps, and shows and stores their times in a file.
    pub(crate) fn plan(&self, total: usize, times: Option<PathBuf>) {
        if !matches!(self.form, Form::Silent) {
            *self.steps() = Steps::plan(total, times);
        }
    }

    /// Starts the next of the planned steps.
    pub(crate) fn next(&self, text: &str) {
        let text = self.steps().next(text, self.began.elapsed());
        self.show(&text);
    }

    /// Stores the time of the last step, which has succeeded.
    pub(crate) fn end_steps(&self) {
        self.steps().record(self.began.elapsed());
    }

    fn steps(&self) -> MutexGuard<'_, Steps> {
        self.steps.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a task within a step.
    pub(crate) fn step(&self, text: &str) {
        let text = self.steps().task(text, self.began.elapsed());
        self.show(&text);
    }

    fn show(&self, text: &str) {
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
        let text = &self.steps().numbered(text);
        match &self.form {
            Form::Silent => {}
            Form::Bar(bar) => bar.set_message(text.clone()),
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
