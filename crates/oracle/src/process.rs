//! Kubernetes' own code, in a process beside the test.

use std::io::{BufRead as _, BufReader, BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context as _, bail, ensure};
use octavo_lab::Progress;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// The program with Kubernetes' own code. Builds it if it is missing.
pub fn program() -> anyhow::Result<PathBuf> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(octavo_lab::oracles(&Progress::to_stderr())).context("build the oracles")
}

/// The program that reads CDI specs as containerd does. Builds containerd if it is missing.
pub fn cdi_reader() -> anyhow::Result<PathBuf> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let folder = runtime
        .block_on(octavo_lab::containerd(&Progress::to_stderr()))
        .context("build containerd, whose module reads CDI specs")?;
    Ok(folder.join("cdi-devices"))
}

/// A running oracle. It answers questions in order and ends when dropped.
#[derive(Debug)]
pub struct Oracle {
    child: Child,
    questions: Option<BufWriter<ChildStdin>>,
    answers: BufReader<ChildStdout>,
}

#[derive(Serialize)]
struct Question<'a, Q> {
    id: &'a str,
    #[serde(flatten)]
    question: &'a Q,
}

#[derive(Deserialize)]
struct AnswerId {
    id: String,
}

impl Oracle {
    /// Starts an oracle, a subcommand of the [`program`].
    pub fn start(program: &Path, subcommand: &str) -> anyhow::Result<Self> {
        let mut child = Command::new(program)
            .arg(subcommand)
            // Memory is plentiful, cores are few.
            .env("GOGC", "400")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("start {} {subcommand}", program.display()))?;
        let questions = child.stdin.take().map(BufWriter::new);
        let answers = child.stdout.take().map(BufReader::new);
        let answers = answers.context("the oracle has no output")?;
        Ok(Self { child, questions, answers })
    }

    /// Asks a question, an object to which the id is added, and returns the answer. Error messages
    /// name the case by its id.
    pub fn ask<A: DeserializeOwned>(
        &mut self,
        id: &str,
        question: &impl Serialize,
    ) -> anyhow::Result<A> {
        let questions = self.questions.as_mut().context("the oracle has no input")?;
        serde_json::to_writer(&mut *questions, &Question { id, question })
            .with_context(|| format!("ask question {id}"))?;
        questions.write_all(b"\n")?;
        questions.flush()?;
        let mut line = String::new();
        if self.answers.read_line(&mut line)? == 0 {
            bail!("the oracle has ended; its last output is above. Question {id}");
        }
        let answered: AnswerId = serde_json::from_str(&line)
            .with_context(|| format!("question {id}: the answer has no id: {line}"))?;
        ensure!(answered.id == id, "question {id} was answered as question {}", answered.id);
        serde_json::from_str(&line).with_context(|| format!("question {id}: the answer is {line}"))
    }
}

impl Drop for Oracle {
    fn drop(&mut self) {
        // The end of its input ends the process.
        self.questions = None;
        let _ = self.child.wait();
    }
}
