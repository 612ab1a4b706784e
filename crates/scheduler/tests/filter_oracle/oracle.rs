//! kube-scheduler's own filters, in a process beside the test.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use octavo_lab::Progress;
use serde::Deserialize;

use crate::case::Case;

/// The control plane's program, which has the oracle.
pub(crate) fn program() -> PathBuf {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(octavo_lab::control_plane(&Progress::to_stderr())).unwrap()
}

/// A `control-plane filter-oracle`. It answers what it is asked, in turn.
pub(crate) struct Oracle {
    child: Child,
    questions: Option<BufWriter<ChildStdin>>,
    answers: BufReader<ChildStdout>,
}

/// Its answer.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Answer {
    id: String,
    /// Why no node will do, found before any is looked at.
    pub(crate) refused: Option<Refusal>,
    /// What each filter has against a node, by node.
    #[serde(default)]
    pub(crate) nodes: BTreeMap<String, Vec<Refusal>>,
}

/// What one filter has against a node.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Refusal {
    pub(crate) plugin: String,
    pub(crate) reasons: Vec<String>,
    /// Whether no other pod's leaving would change it.
    #[serde(default)]
    pub(crate) is_final: bool,
}

impl Oracle {
    pub(crate) fn start(program: &Path) -> Self {
        let mut child = Command::new(program)
            .arg("filter-oracle")
            // Memory is plenty, cores are few.
            .env("GOGC", "400")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let questions = child.stdin.take().map(BufWriter::new);
        let answers = BufReader::new(child.stdout.take().unwrap());
        Self { child, questions, answers }
    }

    /// What kube-scheduler makes of a case.
    pub(crate) fn decide(&mut self, seed: u64, case: &Case) -> Answer {
        let id = seed.to_string();
        let questions = self.questions.as_mut().unwrap();
        serde_json::to_writer(&mut *questions, &case.question(&id)).unwrap();
        questions.write_all(b"\n").unwrap();
        questions.flush().unwrap();
        let mut line = String::new();
        let length = self.answers.read_line(&mut line).unwrap();
        assert!(length > 0, "the oracle has ended; its last words are above. Question {id}");
        let answer: Answer = serde_json::from_str(&line).unwrap();
        assert_eq!(answer.id, id);
        answer
    }
}

impl Drop for Oracle {
    fn drop(&mut self) {
        // Its input ends, and with it the process.
        self.questions = None;
        let _ = self.child.wait();
    }
}
