//! Why an action failed, as the command's exit code tells it.

use thiserror::Error;

/// Why an action failed. Unless it is [`Failed`](Self::Failed), the process is as it was before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum CheckpointError {
    /// The driver has no checkpoints: it is older than 570, or not for this processor.
    #[error("the driver has no checkpoints of processes")]
    NoSupport,
    /// The driver refuses this process. Known reasons are managed memory, memory shared with other processes, and MIG.
    #[error("the driver does not support a checkpoint of this process")]
    Refused,
    /// The GPU has too little free memory to restore the process.
    #[error("the GPU has too little free memory")]
    NoMemory,
    /// The process's calls and work did not end in time.
    #[error("the work of the process did not end in time")]
    LockTimedOut,
    /// There is no such process, or it does not use CUDA.
    #[error("there is no such process that uses CUDA")]
    NoProcess,
    /// Anything else. The process may be in any state.
    #[error("failed")]
    Failed,
}

impl CheckpointError {
    /// All of them.
    const ALL: [Self; 6] = [
        Self::NoSupport,
        Self::Refused,
        Self::NoMemory,
        Self::LockTimedOut,
        Self::NoProcess,
        Self::Failed,
    ];

    /// The exit code of `octavo process-checkpoint`. 2 stays free: it means wrong usage.
    pub fn exit_code(self) -> u8 {
        match self {
            Self::Failed => 1,
            Self::NoSupport => 3,
            Self::Refused => 4,
            Self::NoMemory => 5,
            Self::LockTimedOut => 6,
            Self::NoProcess => 7,
        }
    }

    /// The reason of an exit code that is not 0. Unknown codes are [`Failed`](Self::Failed), as is the end by a signal, which has
    /// no code.
    pub fn from_exit_code(code: Option<i32>) -> Self {
        let has_code = |error: &Self| code == Some(i32::from(error.exit_code()));
        Self::ALL.into_iter().find(has_code).unwrap_or(Self::Failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exit_code_tells_the_reason() {
        for error in CheckpointError::ALL {
            assert_eq!(CheckpointError::from_exit_code(Some(error.exit_code().into())), error);
            assert!(![0, 2].contains(&error.exit_code()));
        }
        for code in [None, Some(2), Some(101)] {
            assert_eq!(CheckpointError::from_exit_code(code), CheckpointError::Failed);
        }
    }
}
