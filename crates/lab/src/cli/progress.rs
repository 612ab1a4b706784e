//! Telling a person how far a long command is: a moving line on a terminal, plain lines at
//! sensible intervals elsewhere.

use std::io::{IsTerminal as _, Write as _};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

/// How long plain output is silent between two figures of one step.
const PLAIN_INTERVAL: Duration = Duration::from_secs(5);

/// Where progress goes.
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
    /// Tells nothing: for tests and benchmarks.
    pub fn silent() -> Self {
        Self { form: Form::Silent }
    }

    /// Tells the person at standard error.
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

    /// A step has begun.
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

    /// How far the step is, in words: `packages 312/2210`.
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

    /// A line that stays.
    pub(crate) fn line(&self, text: &str) {
        match &self.form {
            Form::Silent => {}
            Form::Bar(bar) => bar.suspend(|| say(text)),
            Form::Plain(_) => say(text),
        }
    }

    /// Takes the moving line away.
    pub(crate) fn finish(&self) {
        if let Form::Bar(bar) = &self.form {
            bar.finish_and_clear();
        }
    }
}

/// A closed standard error is no reason to stop.
fn say(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}
