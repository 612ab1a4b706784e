//! A client: started, asked, ended.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context, ensure};

/// A running client; it ends when dropped.
#[derive(Debug)]
pub(crate) struct Client {
    child: Child,
    questions: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Client {
    /// Starts one and waits until it has a context.
    pub(crate) fn start(mut command: Command) -> anyhow::Result<Self> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("start a client; this needs `unshare` and `taskset` of util-linux")?;
        let questions = child.stdin.take();
        let answers = BufReader::new(child.stdout.take().context("a client has no output")?);
        let mut client = Self { child, questions, answers };
        let answer = client.receive_line().context(
            "a client did not start: it needs root, or a kernel that lets users make namespaces",
        )?;
        ensure!(answer == "ready", "a client sent {answer:?} instead of \"ready\"");
        Ok(client)
    }

    /// Sends it a line.
    pub(crate) fn send(&mut self, line: &str) -> anyhow::Result<()> {
        let questions = self.questions.as_mut().context("the client is ending")?;
        writeln!(questions, "{line}").with_context(|| format!("ask a client for {line:?}"))
    }

    /// Reads a line from it.
    pub(crate) fn receive_line(&mut self) -> anyhow::Result<String> {
        let mut line = String::new();
        let length = self.answers.read_line(&mut line).context("read a client's answer")?;
        ensure!(length > 0, "a client ended without a response; its errors are above");
        Ok(line.trim_end().to_owned())
    }

    /// Sends a line and returns the numbers of the answer.
    pub(crate) fn ask(&mut self, line: &str) -> anyhow::Result<Vec<u64>> {
        self.send(line)?;
        self.receive_numbers()
    }

    /// Receives a line of numbers.
    pub(crate) fn receive_numbers(&mut self) -> anyhow::Result<Vec<u64>> {
        let answer = self.receive_line()?;
        let numbers: Result<_, _> = answer.split(' ').map(str::parse).collect();
        numbers.with_context(|| format!("a client answered {answer:?}"))
    }

    /// Sends a command whose response is a driver status. Fails unless the status is success.
    pub(crate) fn done(&mut self, line: &str) -> anyhow::Result<()> {
        let answer = self.ask(line)?;
        ensure!(answer == [0], "{line}: the driver returned {answer:?}");
        Ok(())
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // It ends with its input.
        self.questions = None;
        let _ = self.child.wait();
    }
}
