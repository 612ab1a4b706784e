//! What the process that tests writes, a line of JSON each, and the report that its supervisor makes of it.

use std::collections::BTreeSet;
use std::io::Write;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::report::{Check, CheckName, GpuReport, TestedGpu};

/// A line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Line {
    /// The GPUs that are tested.
    Gpus(Vec<TestedGpu>),
    /// A check of a GPU begins, by the GPU's number.
    Begin(i32, CheckName),
    /// Work of a GPU's check goes on.
    Beat(i32),
    /// A check has ended.
    End(i32, Check),
    /// Nothing can be tried, and why.
    NotTried(String),
    /// All checks have ended.
    Done,
}

/// How the process that tests has ended before its checks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// By itself, or by what the driver did to it.
    Early(String),
    /// Another process killed it.
    Killed,
}

/// Writes lines, from any thread.
pub(super) struct Progress<'a> {
    out: Mutex<&'a mut (dyn Write + Send)>,
}

impl<'a> Progress<'a> {
    pub(super) fn new(out: &'a mut (dyn Write + Send)) -> Self {
        Self { out: Mutex::new(out) }
    }

    pub(super) fn write(&self, line: &Line) {
        let Ok(text) = serde_json::to_string(line) else { return };
        let mut out = self.out.lock().unwrap_or_else(PoisonError::into_inner);
        // Without its supervisor this process is ended by the kernel.
        let _ = writeln!(out, "{text}").and_then(|()| out.flush());
    }
}

/// The report so far.
#[derive(Debug)]
pub(super) struct Collected {
    pub(super) gpus: Vec<GpuReport>,
    /// Why nothing is known of some GPUs, or of all.
    pub(super) message: Option<String>,
    pub(super) is_done: bool,
    /// Checks in progress: the GPU, the check, and when its last sign of life came.
    in_progress: Vec<(i32, CheckName, Instant)>,
    /// GPUs whose checks were given up.
    given_up: BTreeSet<i32>,
    last: Instant,
}

impl Collected {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            gpus: Vec::new(),
            message: None,
            is_done: false,
            in_progress: Vec::new(),
            given_up: BTreeSet::new(),
            last: now,
        }
    }

    /// Adds a line.
    pub(super) fn add(&mut self, line: Line, now: Instant) {
        self.last = now;
        match line {
            Line::Gpus(gpus) => self.gpus = gpus.into_iter().map(GpuReport::new).collect(),
            Line::Begin(gpu, check) => self.in_progress.push((gpu, check, now)),
            Line::Beat(gpu) => {
                let own = self.in_progress.iter_mut().filter(|(of, ..)| *of == gpu);
                own.for_each(|(_, _, sign)| *sign = now);
            }
            Line::End(gpu, check) => {
                self.in_progress.retain(|(of, name, _)| (*of, *name) != (gpu, check.name));
                self.end(gpu, check);
            }
            Line::NotTried(message) => {
                self.message = Some(message);
                self.is_done = true;
            }
            Line::Done => self.is_done = true,
        }
    }

    /// Gives checks up that gave no sign of life for so long. Returns whether nothing is left to wait for.
    pub(super) fn is_over(&mut self, now: Instant, silence: Duration) -> bool {
        let is_silent = |sign: Instant| now.duration_since(sign) > silence;
        let silent: Vec<_> =
            self.in_progress.extract_if(.., |(.., sign)| is_silent(*sign)).collect();
        for (gpu, check, _) in &silent {
            let message = format!("the driver has not answered for {} s", silence.as_secs());
            self.end(*gpu, Check::failed(*check, message, None));
            self.given_up.insert(*gpu);
        }
        // Peers are tested by all GPUs together, so a GPU that is given up was the last thing that others waited for.
        let is_left = |report: &GpuReport| {
            let has_computed = report.checks.iter().any(|check| check.name == CheckName::Compute);
            !has_computed && !self.given_up.contains(&report.gpu.gpu)
        };
        if self.is_done || (!self.given_up.is_empty() && !self.gpus.iter().any(is_left)) {
            return true;
        }
        let is_over = is_silent(self.last) && self.in_progress.is_empty();
        if is_over {
            self.message = Some(format!(
                "the driver has not answered for {} s outside of any check: see `nvidia-smi` and the driver's log (dmesg)",
                silence.as_secs()
            ));
        }
        is_over
    }

    /// Notes that the process has ended, and how. It fails the check of the one GPU that it tested then. Of several none is known to be
    /// the cause.
    pub(super) fn ended(&mut self, how: &Ended) {
        if self.is_done {
            return;
        }
        let tested: BTreeSet<i32> = self.in_progress.iter().map(|(gpu, ..)| *gpu).collect();
        let message = match how {
            Ended::Early(how) => format!("the process that tests has ended early: {how}"),
            Ended::Killed => {
                "the process that tests was killed, as for lack of memory of the host".to_owned()
            }
        };
        for (gpu, check, _) in std::mem::take(&mut self.in_progress) {
            let message = message.clone();
            let check = match how {
                Ended::Early(_) if tested.len() == 1 => Check::failed(check, message, None),
                Ended::Early(_) => {
                    Check::not_tried(check, format!("{message}; test each GPU by itself (--gpus)"))
                }
                Ended::Killed => Check::not_tried(check, message),
            };
            self.end(gpu, check);
        }
        self.message.get_or_insert(message);
    }

    fn end(&mut self, gpu: i32, check: Check) {
        if let Some(report) = self.gpus.iter_mut().find(|report| report.gpu.gpu == gpu) {
            report.add(check);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::report::Verdict;
    use super::*;

    const SILENCE: Duration = Duration::from_secs(10);

    /// Two GPUs at a time, and that time.
    fn two() -> (Collected, Instant) {
        let now = Instant::now();
        let mut collected = Collected::new(now);
        let gpu = |gpu| TestedGpu { gpu, uuid: format!("GPU-{gpu}"), name: "a GPU".to_owned() };
        collected.add(Line::Gpus(vec![gpu(0), gpu(1)]), now);
        (collected, now)
    }

    #[test]
    fn a_gpu_that_does_not_answer_fails_and_the_other_goes_on() {
        let (mut collected, start) = two();
        collected.add(Line::Begin(0, CheckName::Memory), start);
        collected.add(Line::Begin(1, CheckName::Memory), start);
        let later = start + SILENCE / 2;
        collected.add(Line::Beat(1), later);
        assert!(!collected.is_over(start + SILENCE, SILENCE));
        let late = start + SILENCE + Duration::from_secs(1);
        assert!(!collected.is_over(late, SILENCE), "GPU 1 works");
        assert_eq!(collected.gpus[0].verdict, Verdict::Failed);
        for check in [CheckName::Facts, CheckName::Memory, CheckName::Compute] {
            assert!(!collected.is_over(late, SILENCE));
            collected.add(Line::End(1, Check::passed(check, None)), late);
        }
        assert!(collected.is_over(late, SILENCE));
        assert_eq!(collected.gpus[1].verdict, Verdict::Passed);
        assert_eq!(collected.message, None);
    }

    #[test]
    fn silence_before_any_gpu_is_known_is_no_verdict() {
        let start = Instant::now();
        let mut collected = Collected::new(start);
        assert!(!collected.is_over(start + SILENCE, SILENCE));
        assert!(collected.is_over(start + 2 * SILENCE, SILENCE));
        assert!(collected.message.expect("why").contains("has not answered"));
    }

    #[test]
    fn a_process_that_ends_in_a_check_fails_that_check_alone() {
        let (mut collected, start) = two();
        collected.add(Line::End(1, Check::passed(CheckName::Facts, None)), start);
        collected.add(Line::Begin(0, CheckName::Compute), start);
        collected.ended(&Ended::Early("signal 11".to_owned()));
        assert_eq!(collected.gpus[0].verdict, Verdict::Failed);
        assert!(collected.gpus[0].checks[0].message.as_deref().expect("why").contains("signal 11"));
        assert_eq!(collected.gpus[1].verdict, Verdict::NotTried);
        assert!(collected.message.is_some());
    }

    #[test]
    fn a_process_that_ends_in_checks_of_several_gpus_fails_none_of_them() {
        let (mut collected, start) = two();
        collected.add(Line::Begin(0, CheckName::Memory), start);
        collected.add(Line::Begin(1, CheckName::Memory), start);
        collected.ended(&Ended::Early("signal 11".to_owned()));
        for report in &collected.gpus {
            assert_eq!(report.verdict, Verdict::NotTried);
            let why = report.checks[0].message.as_deref().expect("why");
            assert!(why.contains("signal 11") && why.contains("by itself"), "{why}");
        }
    }

    #[test]
    fn lines_are_read_as_they_are_written() {
        let mut text = Vec::new();
        let lines = [
            Line::Begin(3, CheckName::Peers),
            Line::End(3, Check::failed(CheckName::Facts, "why", None)),
            Line::NotTried("no GPU".to_owned()),
            Line::Done,
        ];
        let progress = Progress::new(&mut text);
        for line in &lines {
            progress.write(line);
        }
        let text = String::from_utf8(text).expect("text");
        let read: Vec<Line> =
            text.lines().map(|line| serde_json::from_str(line).expect("a line")).collect();
        assert_eq!(read, lines);
    }
}
