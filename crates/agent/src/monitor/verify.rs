//! Tests of GPUs, each by a process of its own: `octavo probe verify` of this program, off the driver's thread. Its end is a message.
//!
//! A test ends with the thread that started it, and so with the agent: a kernel ends a process whose parent is gone.

use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use octavo_gpu::programs::OutputFile;
use octavo_health::signal::Attempt;
use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};
use serde::Deserialize;

use super::requests::{HealthMessage, Message};
use super::{Monitor, now};
use crate::health::{TestResult, TestRun};

/// Stack size of the thread that waits for a test.
const STACK_BYTES: usize = 256 * 1024;
/// Time beyond its length after which a test is ended: its own limits are those of each kernel and copy.
const MARGIN: Duration = Duration::from_mins(10);
/// Interval of looks at a test that runs.
const LOOK: Duration = Duration::from_millis(50);
/// Longest wait for the end of processes that were killed.
const END_TIME: Duration = Duration::from_secs(2);
/// Longest text of a result, in characters.
const MAX_TEXT: usize = 300;
/// Longest report that is read, in bytes.
const MAX_REPORT: u64 = 4 << 20;

/// A test that runs. It ends when this is dropped.
#[derive(Debug)]
pub(super) struct RunningTest {
    run: TestRun,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// The report of the program, as far as it matters here.
#[derive(Debug, Deserialize)]
struct Report {
    message: Option<String>,
    gpus: Vec<GpuReport>,
}

#[derive(Debug, Deserialize)]
struct GpuReport {
    uuid: String,
    verdict: Verdict,
    checks: Vec<Check>,
}

#[derive(Debug, Deserialize)]
struct Check {
    #[serde(rename = "check")]
    name: String,
    verdict: Verdict,
    message: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
enum Verdict {
    Passed,
    NotTried,
    Failed,
}

/// How the program ended.
enum End {
    /// With a status and what it wrote.
    Exited(ExitStatus, String, String),
    /// It could not be started or watched, or did not end in time.
    Not(String),
    /// The test is not wanted any more.
    Stopped,
}

impl Monitor {
    /// Ends tests that are not wanted any more, and begins those that are.
    pub(super) fn begin_tests(&mut self) {
        let is_void = |test: &mut RunningTest| self.health.is_void(&test.run);
        let void: Vec<_> = self.tests.extract_if(.., is_void).collect();
        for test in void {
            self.health.ended_early(&test.run);
        }
        while let Some(run) = self.health.next_tests(now()) {
            let gpus: Vec<_> = run.tests.iter().map(|(_, uuid)| uuid.as_str()).collect();
            tracing::info!(node = %self.node, ?gpus, seconds = run.seconds, "a test of GPUs begins");
            let command = command(&self.test_program, &self.driver_root, &gpus, run.seconds);
            match start(command, run.clone(), self.node.clone(), self.requests.sender.clone()) {
                Ok(test) => self.tests.push(test),
                Err(error) => {
                    let why = format!("no thread can be started: {error}");
                    self.health.tested(all(&run, &TestResult::NotTried(why)));
                }
            }
        }
    }

    /// Ends all tests, and waits for their end: nothing of the driver is open afterwards.
    pub(super) fn end_tests(&mut self) {
        for mut test in std::mem::take(&mut self.tests) {
            self.health.ended_early(&test.run);
            test.stop.store(true, Ordering::Relaxed);
            if let Some(thread) = test.thread.take() {
                // One that panicked has ended, too.
                let _ = thread.join();
            }
        }
    }
}

impl Drop for RunningTest {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// The command that tests GPUs of a driver for a time.
fn command(program: &Path, driver_root: &Path, gpus: &[&str], seconds: u64) -> Command {
    let gpus = gpus.join(",");
    let mut command = Command::new(program);
    command.args(["probe", "verify", "--of-agent", "-o", "json"]);
    // A day at most.
    command.arg(format!("--gpus={gpus}")).arg(format!("--seconds={}", seconds.clamp(1, 86_400)));
    command.arg("--driver-root").arg(driver_root);
    // Other GPUs have jobs. Compiled kernels need not stay.
    command.env("CUDA_VISIBLE_DEVICES", gpus).env("CUDA_CACHE_DISABLE", "1");
    // The program and the one that it starts end together.
    command.stdin(Stdio::null()).process_group(0);
    command
}

/// Starts a test on a thread, which sends the results.
fn start(
    mut command: Command,
    run: TestRun,
    node: String,
    sender: Sender<Message>,
) -> std::io::Result<RunningTest> {
    let stop = Arc::new(AtomicBool::new(false));
    let (is_stopped, tested) = (Arc::clone(&stop), run.clone());
    let limit = Duration::from_secs(run.seconds) + MARGIN;
    let work = move || {
        let results = match watch(&mut command, limit, &is_stopped) {
            End::Stopped => {
                tracing::info!(node, gpus = ?tested.tests, "a test of GPUs was ended, since it is not wanted any more");
                return;
            }
            End::Not(why) => all(&tested, &TestResult::NotTried(why)),
            End::Exited(status, report, errors) => results(&tested, status, &report, &errors),
        };
        for (_, gpu, result) in &results {
            match result {
                TestResult::Passed => tracing::info!(node, gpu, "a GPU passed its test"),
                TestResult::Failed(found) => {
                    tracing::error!(node, gpu, found, "a GPU failed its test");
                }
                // No process says so.
                TestResult::PutOff => {}
                TestResult::NotTried(why) => {
                    tracing::warn!(
                        node,
                        gpu,
                        why,
                        "the test of a GPU could not be tried; it will be again"
                    );
                }
            }
        }
        // The thread that asked may have ended.
        let _ = sender.send(Message::Health(HealthMessage::Tested(results)));
    };
    let thread =
        thread::Builder::new().name("gpu-test".to_owned()).stack_size(STACK_BYTES).spawn(work)?;
    Ok(RunningTest { run, stop, thread: Some(thread) })
}

/// Runs a command to its end, at most for a time and as long as it is wanted. This thread is the parent whose end ends it.
fn watch(command: &mut Command, limit: Duration, stop: &AtomicBool) -> End {
    let not = |what: &str, error: &dyn std::fmt::Display| End::Not(format!("{what}: {error}"));
    let (out, errors) = match (OutputFile::new(), OutputFile::new()) {
        (Ok(out), Ok(errors)) => (out, errors),
        (Err(error), _) | (_, Err(error)) => return not("no memory for the report", &error),
    };
    let child = match (out.stdio(), errors.stdio()) {
        (Ok(out), Ok(errors)) => command.stdout(out).stderr(errors).spawn(),
        (Err(error), _) | (_, Err(error)) => return not("no file for the report", &error),
    };
    let mut child = match child {
        Ok(child) => child,
        Err(error) => return not("the program that tests cannot be started", &error),
    };
    let end = Instant::now() + limit;
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return End::Exited(status, text(&out), text(&errors)),
            Ok(None) if stop.load(Ordering::Relaxed) => {
                kill(&mut child);
                return End::Stopped;
            }
            Ok(None) if Instant::now() < end => thread::sleep(LOOK),
            Ok(None) => {
                kill(&mut child);
                return End::Not(format!("it did not end within {} s", limit.as_secs()));
            }
            Err(error) => {
                kill(&mut child);
                return not("the end of the program that tests is not known", &error);
            }
        }
    }
}

/// Ends a program and those that it started. One that hangs in the kernel ends later, and is not waited for long.
fn kill(child: &mut Child) {
    let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    if let Some(group) = group {
        // It may have ended.
        let _ = kill_process_group(group, Signal::KILL);
    }
    let _ = child.wait();
    let end = Instant::now() + END_TIME;
    while group.is_some_and(|group| test_kill_process_group(group).is_ok()) && Instant::now() < end
    {
        thread::sleep(LOOK);
    }
}

fn text(file: &OutputFile) -> String {
    String::from_utf8_lossy(&file.read(MAX_REPORT)).into_owned()
}

/// One result for all tests of a run.
fn all(run: &TestRun, result: &TestResult) -> Vec<(Attempt, String, TestResult)> {
    let tests = run.tests.iter();
    tests.map(|(attempt, uuid)| (*attempt, uuid.clone(), result.clone())).collect()
}

/// What became of each test. A GPU of which the report does not say that it passed or failed was not tried.
fn results(
    run: &TestRun,
    status: ExitStatus,
    report: &str,
    errors: &str,
) -> Vec<(Attempt, String, TestResult)> {
    let Ok(report) = serde_json::from_str::<Report>(report) else {
        let line = errors.lines().find(|line| !line.trim().is_empty()).unwrap_or("no report");
        let why = short(&format!("the program that tests ended with {status}: {}", line.trim()));
        return all(run, &TestResult::NotTried(why));
    };
    let result = |uuid: &String| {
        let Some(gpu) = report.gpus.iter().find(|gpu| gpu.uuid == *uuid) else {
            let why = report.message.as_deref().unwrap_or("the report does not name the GPU");
            return TestResult::NotTried(short(why));
        };
        let why = || {
            let check = gpu.checks.iter().find(|check| check.verdict == gpu.verdict);
            let why = check.and_then(|it| Some(format!("{}: {}", it.name, it.message.as_ref()?)));
            let why = why.or_else(|| report.message.clone());
            why.map_or_else(|| "the report gives no reason".to_owned(), |why| short(&why))
        };
        match gpu.verdict {
            Verdict::Passed => TestResult::Passed,
            Verdict::Failed => TestResult::Failed(why()),
            Verdict::NotTried => TestResult::NotTried(why()),
        }
    };
    run.tests.iter().map(|(attempt, uuid)| (*attempt, uuid.clone(), result(uuid))).collect()
}

/// The first line of a text, not too long for a message.
fn short(text: &str) -> String {
    text.lines().next().unwrap_or_default().chars().take(MAX_TEXT).collect()
}

#[cfg(test)]
mod tests;
