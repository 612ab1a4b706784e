//! The state of the service, as `nvidia-imex-ctl -q` reports it.

use std::io;
use std::path::PathBuf;
use std::process::{Output, Stdio};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::{Child, Command};
use tokio::time::timeout;

/// Time for an answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// Most characters of an answer that a message shows.
const SHOWN: usize = 300;

/// The command and the config file of the service that it asks.
#[derive(Clone, Debug)]
pub(crate) struct Ctl {
    pub(crate) program: PathBuf,
    pub(crate) config_file: PathBuf,
}

/// What the command answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The service is ready: the output is exactly `READY` and a line's end.
    Ready,
    /// The service runs and is in another state.
    State(String),
    /// The service does not answer, and why.
    Unavailable(String),
}

impl Ctl {
    /// Asks the service once. A command that does not end in five seconds is killed.
    pub(crate) async fn ask(&self) -> Answer {
        let mut command = Command::new(&self.program);
        command.arg("-c").arg(&self.config_file).arg("-q");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let program = self.program.display();
        let mut child = match command.kill_on_drop(true).spawn() {
            Ok(child) => child,
            Err(error) => return Answer::Unavailable(cannot_start(&program.to_string(), &error)),
        };
        let output = match timeout(ANSWER_TIMEOUT, output(&mut child)).await {
            Err(_) => {
                // Waited for, too: after the end of a probe no other process would do that.
                let _ = child.kill().await;
                let seconds = ANSWER_TIMEOUT.as_secs();
                return Answer::Unavailable(format!("{program} does not end in {seconds} s"));
            }
            Ok(Err(error)) => {
                return Answer::Unavailable(format!("cannot read {program}: {error}"));
            }
            Ok(Ok(output)) => output,
        };
        if output.stdout == b"READY\n" {
            return Answer::Ready;
        }
        let state = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        if output.status.success() && !state.is_empty() && state != "UNAVAILABLE" {
            return Answer::State(shorten(&state));
        }
        let errors = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        let text = if errors.is_empty() { state } else { errors };
        Answer::Unavailable(format!("{program} ended with {}: {}", output.status, shorten(&text)))
    }
}

/// What a process writes until it ends.
async fn output(child: &mut Child) -> io::Result<Output> {
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let (stdout, stderr, status) = tokio::try_join!(all(stdout), all(stderr), child.wait())?;
    Ok(Output { status, stdout, stderr })
}

async fn all(stream: Option<impl AsyncRead + Unpin>) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if let Some(mut stream) = stream {
        stream.read_to_end(&mut bytes).await?;
    }
    Ok(bytes)
}

/// Why a program of the driver does not start.
pub(crate) fn cannot_start(program: &str, error: &io::Error) -> String {
    if error.kind() == io::ErrorKind::NotFound {
        return format!(
            "{program} is not in this container: the driver's files come by the claim of device daemon-0 and \
             its CDI spec; see whether the pod has that claim, the runtime has CDI, and the driver of \
             the node has {program}"
        );
    }
    format!("cannot start {program}: {error}")
}

/// The first line of a text, without its end if it is long.
fn shorten(text: &str) -> String {
    text.lines().next().unwrap_or_default().chars().take(SHOWN).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    /// The answer of a command with this script.
    async fn answer(script: &str) -> Answer {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("nvidia-imex-ctl");
        fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        let ctl = Ctl { program, config_file: "/imexd/imexd.cfg".into() };
        loop {
            // Another test's child may have the script open for an instant.
            match ctl.ask().await {
                Answer::Unavailable(text) if text.contains("os error 26") => {}
                answer => return answer,
            }
        }
    }

    #[tokio::test]
    async fn only_the_exact_answer_is_ready() {
        assert_eq!(answer("echo READY").await, Answer::Ready);
        for script in ["printf READY", "echo READY; echo READY", "echo INIT_GPU", "echo ' READY'"] {
            assert!(matches!(answer(script).await, Answer::State(_)), "{script}");
        }
        let asked = answer("[ \"$*\" = '-c /imexd/imexd.cfg -q' ] && echo READY").await;
        assert_eq!(asked, Answer::Ready, "the arguments");
    }

    #[tokio::test]
    async fn a_service_that_does_not_answer_has_a_reason() {
        let silent = answer("echo UNAVAILABLE; echo no route >&2; exit 1").await;
        assert!(
            matches!(&silent, Answer::Unavailable(text) if text.contains("no route")),
            "{silent:?}"
        );
        let empty = answer("exit 0").await;
        assert!(matches!(empty, Answer::Unavailable(_)), "{empty:?}");
        let ctl = Ctl { program: "/no/such/ctl".into(), config_file: "x".into() };
        let missing = ctl.ask().await;
        assert!(
            matches!(&missing, Answer::Unavailable(text) if text.contains("/no/such/ctl is not in this container: ")),
            "{missing:?}"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_command_that_hangs_is_given_up() {
        let hanging = answer("exec sleep 600").await;
        assert!(
            matches!(&hanging, Answer::Unavailable(text) if text.contains("5 s")),
            "{hanging:?}"
        );
    }
}
