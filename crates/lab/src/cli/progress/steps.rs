//! Numbered steps, and the time that each took in the last run.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Steps shorter than this are not timed.
const MIN_DURATION: Duration = Duration::from_secs(1);

/// The current one of a planned number of steps.
#[derive(Debug, Default)]
pub(super) struct Steps {
    total: usize,
    number: usize,
    /// Text of the current step. The same text again does not advance the number.
    phase: String,
    /// Name and start of the current task.
    task: Option<(String, Duration)>,
    times: StepTimes,
    file: Option<PathBuf>,
}

impl Steps {
    /// Plans a number of steps. Times of the last run are in `file`.
    pub(super) fn plan(total: usize, file: Option<PathBuf>) -> Self {
        let times = file.as_deref().map(StepTimes::read).unwrap_or_default();
        Self { total, times, file, ..Self::default() }
    }

    /// Starts the next step, unless it has already started.
    pub(super) fn next(&mut self, text: &str, now: Duration) -> String {
        if self.phase != text {
            text.clone_into(&mut self.phase);
            self.number += 1;
        }
        self.task(text, now)
    }

    /// Starts a task within the current step, and records the time of the task before it.
    pub(super) fn task(&mut self, text: &str, now: Duration) -> String {
        let name = task_name(text);
        if self.task.as_ref().is_none_or(|(current, _)| current != name) {
            self.record(now);
            self.task = Some((name.to_owned(), now));
        }
        let line = self.numbered(text);
        match self.times.0.get(name) {
            Some(last) => format!("{line} (last time {})", short(Duration::from_secs(*last))),
            None => line,
        }
    }

    /// A text with the number of the current step.
    pub(super) fn numbered(&self, text: &str) -> String {
        if self.total == 0 || self.number == 0 {
            return text.to_owned();
        }
        format!("{} of {}: {text}", self.number, self.total.max(self.number))
    }

    /// Records the time of the current task, which has succeeded.
    pub(super) fn record(&mut self, now: Duration) {
        let Some((name, began)) = self.task.take() else { return };
        let Some(file) = &self.file else { return };
        let duration = now.saturating_sub(began);
        if duration >= MIN_DURATION {
            self.times.0.insert(name, duration.as_secs());
            self.times.write(file);
        }
    }
}

/// Seconds of each task in its last successful run.
#[derive(Debug, Default, PartialEq, Eq)]
struct StepTimes(BTreeMap<String, u64>);

impl StepTimes {
    /// Reads the file. A missing or malformed one has no times.
    fn read(path: &Path) -> Self {
        let text = std::fs::read(path).unwrap_or_default();
        Self(serde_json::from_slice(&text).unwrap_or_default())
    }

    /// Replaces the file. Errors are ignored: times are only a convenience.
    fn write(&self, path: &Path) {
        let Ok(text) = serde_json::to_vec_pretty(&self.0) else { return };
        let partial = path.with_extension(format!("{}.tmp", std::process::id()));
        if let Some(folder) = path.parent() {
            let _ = std::fs::create_dir_all(folder);
        }
        if std::fs::write(&partial, text).is_err() || std::fs::rename(&partial, path).is_err() {
            let _ = std::fs::remove_file(partial);
        }
    }
}

/// The part of a text that names its task: `building Kubernetes v1.36.0: fetching modules` and
/// `building Kubernetes v1.36.0 (2210 packages)` are one.
fn task_name(text: &str) -> &str {
    let end = text.find(": ").or_else(|| text.find(" (")).unwrap_or(text.len());
    text.get(..end).unwrap_or(text)
}

/// A duration in its two largest units.
fn short(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let (hours, minutes) = (seconds / 3600, seconds / 60 % 60);
    match (hours, minutes) {
        (0, 0) => format!("{seconds}s"),
        (0, _) => format!("{minutes}m{:02}s", seconds % 60),
        _ => format!("{hours}h{minutes:02}m"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_step_shows_its_number_and_the_time_of_the_last_run() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("cache/step-times.json");
        let mut first = Steps::plan(2, Some(file.clone()));
        assert_eq!(first.next("finding programs", at(0)), "1 of 2: finding programs");
        let fetching = first.task("building Kubernetes: fetching modules", at(0));
        assert_eq!(fetching, "1 of 2: building Kubernetes: fetching modules");
        assert_eq!(first.numbered("package 3 of 9"), "1 of 2: package 3 of 9");
        first.task("building Kubernetes (9 packages)", at(100));
        assert_eq!(first.next("starting etcd", at(400)), "2 of 2: starting etcd");
        assert_eq!(first.next("starting etcd", at(401)), "2 of 2: starting etcd");
        first.record(at(403));

        let mut second = Steps::plan(2, Some(file));
        assert_eq!(second.next("finding programs", at(0)), "1 of 2: finding programs");
        let building = second.task("building Kubernetes", at(0));
        assert_eq!(building, "1 of 2: building Kubernetes (last time 6m40s)");
        assert_eq!(second.next("starting etcd", at(0)), "2 of 2: starting etcd (last time 3s)");
    }

    #[test]
    fn a_failed_task_has_no_time() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("step-times.json");
        let mut steps = Steps::plan(1, Some(file.clone()));
        steps.next("starting etcd", at(0));
        drop(steps);
        assert!(!file.exists());
    }

    #[test]
    fn without_a_plan_texts_have_no_number_and_no_time() {
        let mut steps = Steps::default();
        assert_eq!(steps.next("starting etcd", at(0)), "starting etcd");
        assert_eq!(steps.task("waiting", at(9)), "waiting");
    }

    #[test]
    fn a_malformed_file_has_no_times() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("step-times.json");
        assert_eq!(StepTimes::read(&file), StepTimes::default());
        std::fs::write(&file, "{").unwrap();
        assert_eq!(StepTimes::read(&file), StepTimes::default());
        let times = StepTimes([("starting etcd".to_owned(), 3)].into());
        times.write(&file);
        assert_eq!(StepTimes::read(&file), times);
    }

    #[test]
    fn a_duration_has_at_most_two_units() {
        let texts = [0, 45, 60, 400, 3600, 3725].map(|seconds| short(at(seconds)));
        assert_eq!(texts, ["0s", "45s", "1m00s", "6m40s", "1h00m", "1h02m"]);
    }
}
