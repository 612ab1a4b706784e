//! Kubernetes' own allocator, in a process beside the test.

use std::io::{BufRead as _, BufReader, BufWriter, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::resource::v1 as api;
use serde::{Deserialize, Serialize};

use crate::case::{Case, Given, Verdict};

/// A `control-plane dra-oracle`. It answers what it is asked, in turn.
pub(crate) struct Oracle {
    child: Child,
    questions: Option<BufWriter<ChildStdin>>,
    answers: BufReader<ChildStdout>,
}

#[derive(Serialize)]
struct Question<'a> {
    id: String,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    admit: bool,
    given: &'a Given,
    #[serde(flatten)]
    case: &'a Case,
}

#[derive(Serialize)]
struct Selection<'a> {
    id: String,
    select: Select<'a>,
}

#[derive(Serialize)]
struct Select<'a> {
    expression: &'a str,
    driver: &'a str,
    devices: &'a [api::Device],
}

/// Its answer.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Answer {
    id: String,
    pub(crate) nodes: Vec<OnNode>,
    /// For each device "true", "false" or "error: ...".
    pub(crate) selected: Vec<String>,
    pub(crate) compile_error: Option<String>,
    /// What an API server would have against the objects.
    pub(crate) refusals: Vec<String>,
}

/// Its answer for one node.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct OnNode {
    pub(crate) node: String,
    pub(crate) verdict: Verdict,
    #[serde(default)]
    pub(crate) message: String,
    #[serde(default)]
    pub(crate) allocations: Vec<api::AllocationResult>,
    #[serde(default)]
    pub(crate) extended_requests: Vec<api::DeviceRequest>,
    #[serde(default)]
    pub(crate) extended_mappings: Vec<core::ContainerExtendedResourceRequest>,
    /// "ok" or what is wrong with the given allocations; nothing where none were given.
    #[serde(default)]
    pub(crate) checked: String,
}

impl Oracle {
    pub(crate) fn start(program: &Path) -> Self {
        let mut child = Command::new(program)
            .arg("dra-oracle")
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

    /// What Kubernetes makes of a case, and of our allocations for it.
    pub(crate) fn decide(&mut self, seed: u64, case: &Case, given: &Given) -> Answer {
        let id = seed.to_string();
        self.ask(&id, &Question { id: id.clone(), admit: false, given, case })
    }

    /// What an API server has against a case.
    pub(crate) fn refusals(&mut self, seed: u64, case: &Case) -> Vec<String> {
        let id = seed.to_string();
        let question = Question { id: id.clone(), admit: true, given: &Given::new(), case };
        self.ask(&id, &question).refusals
    }

    /// Which devices of a driver an expression selects.
    pub(crate) fn select(
        &mut self,
        expression: &str,
        driver: &str,
        devices: &[api::Device],
    ) -> Answer {
        let id = "select".to_owned();
        let select = Select { expression, driver, devices };
        self.ask("select", &Selection { id, select })
    }

    fn ask(&mut self, id: &str, question: &impl Serialize) -> Answer {
        let questions = self.questions.as_mut().unwrap();
        serde_json::to_writer(&mut *questions, question).unwrap();
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
