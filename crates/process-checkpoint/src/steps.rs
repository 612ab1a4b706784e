//! The steps of an action. Each begins at the state in which the process is, so that an action can be repeated.

use std::fmt::{self, Display, Formatter};
use std::time::Duration;

use clap::ValueEnum;
use serde::Serialize;

use crate::error::CheckpointError;

/// What to do with a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Action {
    /// Read its state
    State,
    /// Block its calls, once its work has ended
    Lock,
    /// Move its GPU memory to the host; it must be locked
    Checkpoint,
    /// Move its memory back to the GPU; its calls stay blocked
    Restore,
    /// Let its calls go on
    Unlock,
    /// Lock, then checkpoint; if the checkpoint fails, unlock
    Out,
    /// Restore, then unlock
    In,
}

/// State of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ProcessState {
    /// It makes calls.
    Running,
    /// Its calls wait.
    Locked,
    /// Its calls wait, and its memory is on the host.
    Checkpointed,
    /// It is lost.
    Failed,
}

/// One call of the driver about a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Step {
    Lock,
    Checkpoint,
    Restore,
    Unlock,
}

impl Display for Step {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Lock => "lock",
            Self::Checkpoint => "checkpoint",
            Self::Restore => "restore",
            Self::Unlock => "unlock",
        })
    }
}

/// Why an action ended early.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub(crate) struct ActionError {
    pub(crate) reason: CheckpointError,
    pub(crate) message: String,
}

impl ActionError {
    pub(crate) fn new(reason: CheckpointError, message: impl Into<String>) -> Self {
        Self { reason, message: message.into() }
    }
}

/// A process, as the driver shows it.
pub(crate) trait Target {
    /// Its state.
    fn state(&self) -> Result<ProcessState, ActionError>;

    /// Takes a step. The timeout is that of a lock.
    fn step(&mut self, step: Step, timeout: Duration) -> Result<(), ActionError>;
}

/// Carries an action out. Returns the state in which the process is then.
pub(crate) fn act(
    target: &mut impl Target,
    action: Action,
    timeout: Duration,
) -> Result<ProcessState, ActionError> {
    use ProcessState::{Checkpointed, Failed, Locked, Running};
    let state = target.state()?;
    let mut take = |step, then| target.step(step, timeout).map(|()| then);
    match (action, state) {
        (Action::State, state) => Ok(state),
        (_, Failed) => Err(ActionError::new(
            CheckpointError::Failed,
            "the process is lost: a former checkpoint or restore of it failed half-way",
        )),
        (Action::Lock, Running) => take(Step::Lock, Locked),
        (Action::Checkpoint, Locked) => take(Step::Checkpoint, Checkpointed),
        (Action::Restore, Checkpointed) => take(Step::Restore, Locked),
        (Action::Unlock, Locked) => take(Step::Unlock, Running),
        (Action::Out, Running | Locked) => {
            if state == Running {
                take(Step::Lock, Locked)?;
            }
            take(Step::Checkpoint, Checkpointed).map_err(|error| release(target, error))
        }
        (Action::In, Checkpointed | Locked) => {
            if state == Checkpointed {
                take(Step::Restore, Locked)?;
            }
            take(Step::Unlock, Running)
        }
        (Action::Lock, Locked)
        | (Action::Checkpoint | Action::Out, Checkpointed)
        | (Action::Restore, Locked | Running)
        | (Action::Unlock | Action::In, Running) => Ok(state),
        (Action::Lock | Action::Unlock, Checkpointed) | (Action::Checkpoint, Running) => {
            let before = if state == Running { "locked" } else { "restored" };
            let message = format!("the process must be {before} first");
            Err(ActionError::new(CheckpointError::Failed, message))
        }
    }
}

/// Unlocks a process whose checkpoint has failed, unless it is lost.
fn release(target: &mut impl Target, error: ActionError) -> ActionError {
    match target.step(Step::Unlock, Duration::ZERO) {
        Ok(()) => error,
        Err(unlock) => ActionError::new(
            CheckpointError::Failed,
            format!("{}; the process stays locked: {}", error.message, unlock.message),
        ),
    }
}

#[cfg(test)]
mod tests;
