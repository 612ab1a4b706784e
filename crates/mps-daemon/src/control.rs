//! Commands of `nvidia-cuda-mps-control`: limits for clients, and who they are.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use octavo_gpu::programs::{self, ProgramError};
use octavo_node::mps::MpsSettings;
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;
use tokio::time::timeout;

/// The program of the daemon and of its commands.
pub(crate) const PROGRAM: &str = "nvidia-cuda-mps-control";
/// The variable that names the folder of the sockets.
pub(crate) const PIPE_VARIABLE: &str = "CUDA_MPS_PIPE_DIRECTORY";

/// Time for an answer.
const ANSWER_TIME: Duration = Duration::from_secs(5);

/// Why a command had no effect.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ControlError {
    /// The program is missing.
    #[error(transparent)]
    Program(#[from] ProgramError),
    /// It cannot be started or spoken to.
    #[error("cannot run {PROGRAM}: {0}")]
    Io(#[from] std::io::Error),
    /// It did not answer in time.
    #[error("the MPS daemon did not answer {command:?} within {seconds} s", seconds = ANSWER_TIME.as_secs())]
    Slow {
        /// The command.
        command: String,
    },
    /// The daemon is not there, or refuses.
    #[error("the MPS daemon answered {command:?} with {answer:?}")]
    Refused {
        /// The command.
        command: String,
        /// Its answer.
        answer: String,
    },
}

/// Speaks to one daemon.
#[derive(Clone, Debug)]
pub(crate) struct Control {
    driver_root: PathBuf,
    /// The folder of its sockets.
    pipe: PathBuf,
}

impl Control {
    pub(crate) fn new(driver_root: &Path, pipe: PathBuf) -> Self {
        Self { driver_root: driver_root.to_owned(), pipe }
    }

    /// Whether the daemon answers.
    pub(crate) async fn answers(&self) -> bool {
        self.ask("get_default_active_thread_percentage").await.is_ok()
    }

    /// Sets the limits of clients that connect from now on, and reads them back: a limit that the daemon cannot set is no error to
    /// it. A server that runs keeps the limits that it began with, so each gets commands of its own.
    pub(crate) async fn set_limits(&self, settings: &MpsSettings) -> Result<(), ControlError> {
        let percentage = settings.active_thread_percentage.unwrap_or(100);
        let command = format!("set_default_active_thread_percentage {percentage}");
        let answer = self.ask(&command).await?;
        if answer.parse::<f64>().ok() != Some(f64::from(percentage)) {
            return Err(ControlError::Refused { command, answer });
        }
        let servers = self.servers().await?;
        for server in &servers {
            self.ask(&format!("set_active_thread_percentage {server} {percentage}")).await?;
        }
        for (uuid, mib) in &settings.memory_limits_mib {
            // A MIG device is the only one of its daemon, and known by its place alone.
            let device = if uuid.starts_with("MIG-") { "0" } else { uuid };
            self.ask(&format!("set_default_device_pinned_mem_limit {device} {mib}M")).await?;
            let command = format!("get_default_device_pinned_mem_limit {device}");
            let answer = self.ask(&command).await?;
            if bytes(&answer) != mib.checked_mul(1 << 20) {
                return Err(ControlError::Refused { command, answer });
            }
            for server in &servers {
                let limit = format!("set_device_pinned_mem_limit {server} {device} {mib}M");
                self.ask(&limit).await?;
            }
        }
        Ok(())
    }

    /// How many programs are clients now.
    pub(crate) async fn clients(&self) -> Result<usize, ControlError> {
        let mut clients = 0;
        for server in self.servers().await? {
            let list = self.ask(&format!("get_client_list {server}")).await?;
            clients += list.split_whitespace().filter(|word| word.parse::<u32>().is_ok()).count();
        }
        Ok(clients)
    }

    /// PIDs of the servers that run.
    async fn servers(&self) -> Result<Vec<u32>, ControlError> {
        let list = self.ask("get_server_list").await?;
        Ok(list.split_whitespace().filter_map(|word| word.parse().ok()).collect())
    }

    /// Asks the daemon to end.
    pub(crate) async fn quit(&self) -> Result<(), ControlError> {
        self.ask("quit").await.map(drop)
    }

    async fn ask(&self, command: &str) -> Result<String, ControlError> {
        let mut program = Command::from(programs::command(&self.driver_root, PROGRAM)?);
        program.env(PIPE_VARIABLE, &self.pipe).kill_on_drop(true);
        program.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = program.spawn()?;
        if let Some(mut input) = child.stdin.take() {
            // A program that has ended says why in its answer.
            let _ = input.write_all(format!("{command}\n").as_bytes()).await;
        }
        let Ok(output) = timeout(ANSWER_TIME, child.wait_with_output()).await else {
            return Err(ControlError::Slow { command: command.to_owned() });
        };
        let output = output?;
        let answer = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        if !output.status.success() || answer.starts_with("Unknown command") {
            let command = command.to_owned();
            return Err(ControlError::Refused { command, answer });
        }
        Ok(answer)
    }
}

/// A memory limit as the daemon writes it, such as `512M` or `1G`.
fn bytes(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let unit: u64 = match &text[digits.len()..] {
        "" => 1,
        "K" | "KB" => 1 << 10,
        "M" | "MB" => 1 << 20,
        "G" | "GB" => 1 << 30,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_read_in_all_units() {
        assert_eq!(bytes("1G"), Some(1 << 30));
        assert_eq!(bytes("512M"), Some(512 << 20));
        assert_eq!(bytes("2048K"), Some(2 << 20));
        assert_eq!(bytes("17"), Some(17));
        for text in ["", "G", "1X", "99999999999999999999", "1 G"] {
            assert_eq!(bytes(text), None, "{text}");
        }
    }
}
