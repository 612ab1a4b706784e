use super::*;

/// A process whose steps work, except one.
struct Scripted {
    state: ProcessState,
    failing: Vec<(Step, CheckpointError)>,
    steps: Vec<Step>,
}

impl Scripted {
    fn new(state: ProcessState) -> Self {
        Self { state, failing: Vec::new(), steps: Vec::new() }
    }

    fn act(mut self, action: Action) -> (Result<ProcessState, CheckpointError>, Vec<Step>) {
        let result = act(&mut self, action, Duration::from_secs(1));
        if let Ok(state) = result {
            assert_eq!(state, self.state);
        }
        (result.map_err(|error| error.reason), self.steps)
    }
}

impl Target for Scripted {
    fn state(&self) -> Result<ProcessState, ActionError> {
        Ok(self.state)
    }

    fn step(&mut self, step: Step, _: Duration) -> Result<(), ActionError> {
        self.steps.push(step);
        if let Some((_, error)) = self.failing.iter().find(|(failing, _)| *failing == step) {
            return Err(ActionError::new(*error, step.to_string()));
        }
        let (before, after) = match step {
            Step::Lock => (ProcessState::Running, ProcessState::Locked),
            Step::Checkpoint => (ProcessState::Locked, ProcessState::Checkpointed),
            Step::Restore => (ProcessState::Checkpointed, ProcessState::Locked),
            Step::Unlock => (ProcessState::Locked, ProcessState::Running),
        };
        assert_eq!(self.state, before);
        self.state = after;
        Ok(())
    }
}

#[test]
fn an_action_goes_on_from_the_state_of_the_process() {
    use ProcessState::{Checkpointed, Locked, Running};
    let steps = |action, state| Scripted::new(state).act(action);
    for (action, state, result, expected) in [
        (Action::Out, Running, Checkpointed, &[Step::Lock, Step::Checkpoint][..]),
        (Action::Out, Locked, Checkpointed, &[Step::Checkpoint]),
        (Action::Out, Checkpointed, Checkpointed, &[]),
        (Action::In, Checkpointed, Running, &[Step::Restore, Step::Unlock]),
        (Action::In, Locked, Running, &[Step::Unlock]),
        (Action::In, Running, Running, &[]),
        (Action::Lock, Running, Locked, &[Step::Lock]),
        (Action::Lock, Locked, Locked, &[]),
        (Action::Checkpoint, Locked, Checkpointed, &[Step::Checkpoint]),
        (Action::Checkpoint, Checkpointed, Checkpointed, &[]),
        (Action::Restore, Checkpointed, Locked, &[Step::Restore]),
        (Action::Restore, Locked, Locked, &[]),
        (Action::Unlock, Locked, Running, &[Step::Unlock]),
        (Action::Unlock, Running, Running, &[]),
        (Action::State, Checkpointed, Checkpointed, &[]),
    ] {
        assert_eq!(steps(action, state), (Ok(result), expected.to_vec()), "{action:?} {state:?}");
    }
}

#[test]
fn a_step_too_many_is_refused_before_the_driver_sees_it() {
    for (action, state) in [
        (Action::Lock, ProcessState::Checkpointed),
        (Action::Unlock, ProcessState::Checkpointed),
        (Action::Checkpoint, ProcessState::Running),
        (Action::Out, ProcessState::Failed),
        (Action::In, ProcessState::Failed),
    ] {
        let refused = (Err(CheckpointError::Failed), vec![]);
        assert_eq!(Scripted::new(state).act(action), refused);
    }
}

#[test]
fn a_process_runs_on_if_its_checkpoint_fails() {
    let failing = vec![(Step::Checkpoint, CheckpointError::Refused)];
    let target = Scripted { failing, ..Scripted::new(ProcessState::Running) };
    let steps = vec![Step::Lock, Step::Checkpoint, Step::Unlock];
    assert_eq!(target.act(Action::Out), (Err(CheckpointError::Refused), steps.clone()));

    let refused = CheckpointError::Refused;
    let failing = vec![(Step::Checkpoint, refused), (Step::Unlock, CheckpointError::Failed)];
    let target = Scripted { failing, ..Scripted::new(ProcessState::Running) };
    assert_eq!(target.act(Action::Out), (Err(CheckpointError::Failed), steps));
}

#[test]
fn nothing_follows_a_lock_or_a_restore_that_failed() {
    let failing = vec![(Step::Lock, CheckpointError::LockTimedOut)];
    let target = Scripted { failing, ..Scripted::new(ProcessState::Running) };
    assert_eq!(target.act(Action::Out), (Err(CheckpointError::LockTimedOut), vec![Step::Lock]));
    let failing = vec![(Step::Restore, CheckpointError::NoMemory)];
    let target = Scripted { failing, ..Scripted::new(ProcessState::Checkpointed) };
    assert_eq!(target.act(Action::In), (Err(CheckpointError::NoMemory), vec![Step::Restore]));
}
