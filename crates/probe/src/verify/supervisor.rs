//! The process that watches: it starts the one that tests, and reports even if the driver never returns to that.

use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Signal, set_parent_process_death_signal};

use super::args::VerifyArgs;
use super::progress::{Collected, Ended};

/// Time beyond the deadline of the testing process, which reports a kernel that hangs itself.
const MARGIN: Duration = Duration::from_secs(15);
/// Longest wait for a process that is done.
const END_TIME: Duration = Duration::from_secs(10);
/// Pause between two looks at silent checks.
const LOOK_PAUSE: Duration = Duration::from_millis(500);

/// Starts this program again to test, and collects what it finds.
pub(super) fn run(args: &VerifyArgs) -> Collected {
    if args.of_agent {
        // Without it the agent's end would leave a test of bounded time.
        let _ = set_parent_process_death_signal(Some(Signal::KILL));
    }
    let mut collected = Collected::new(Instant::now());
    match start(args) {
        Ok(child) => watch(child, args.deadline() + MARGIN, &mut collected),
        Err(error) => {
            let message = format!("this program cannot be started again to test: {error}");
            collected.message = Some(message);
        }
    }
    collected
}

fn start(args: &VerifyArgs) -> std::io::Result<Child> {
    // An upgrade may have replaced its file meanwhile.
    let mut command = Command::new("/proc/self/exe");
    command.args(["probe", "verify", "--worker"]);
    command.arg(format!("--seconds={}", args.seconds));
    command.arg(format!("--memory={}", args.memory));
    command.arg(format!("--deadline={}", args.deadline));
    command.args(args.gpus.iter().map(|gpu| format!("--gpus={gpu}")));
    if let Some(root) = &args.driver_root {
        command.arg("--driver-root").arg(root);
    }
    command.args(args.of_agent.then_some("--of-agent"));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()
}

/// Collects until the process has ended, or is not worth waiting for.
fn watch(mut child: Child, silence: Duration, collected: &mut Collected) {
    let (sender, lines) = mpsc::channel();
    if let Some(out) = child.stdout.take() {
        // It ends with the process, or with this one.
        thread::spawn(move || {
            let lines = BufReader::new(out).lines().map_while(Result::ok);
            lines.filter_map(|line| serde_json::from_str(&line).ok()).for_each(|line| {
                // The receiver is gone once nothing is left to wait for.
                let _ = sender.send(line);
            });
        });
    }
    let mut has_ended = false;
    while !collected.is_over(Instant::now(), silence) {
        match lines.recv_timeout(LOOK_PAUSE) {
            Ok(line) => collected.add(line, Instant::now()),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                has_ended = true;
                break;
            }
        }
    }
    let status = end(&mut child, collected.is_done || has_ended);
    if has_ended {
        collected.ended(&ending(status));
    }
}

/// How the process has ended by itself. One that another process killed, such as the kernel for lack of memory, says nothing of a GPU.
fn ending(status: Option<ExitStatus>) -> Ended {
    match status {
        Some(status) if status.signal() == Some(Signal::KILL.as_raw()) => Ended::Killed,
        Some(status) => Ended::Early(status.to_string()),
        None => Ended::Early("it does not end".to_owned()),
    }
}

/// Ends the process, with time for its own end if it has one. A process that hangs in the kernel stays. Returns how it ended.
fn end(child: &mut Child, ends_itself: bool) -> Option<ExitStatus> {
    let began = Instant::now();
    let mut is_killed = false;
    while began.elapsed() < 2 * END_TIME {
        if let Ok(Some(status)) = child.try_wait() {
            return Some(status);
        }
        if !is_killed && (!ends_itself || began.elapsed() > END_TIME) {
            // It has ended meanwhile, or stays.
            let _ = child.kill();
            is_killed = true;
        }
        if is_killed && !ends_itself && began.elapsed() > END_TIME {
            break;
        }
        thread::sleep(Duration::from_millis(10));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::super::report::Verdict;
    use super::*;

    /// A process that prints lines and then does this.
    fn process(lines: &str, then: &str) -> Child {
        let script = format!("printf '%s\\n' '{lines}'; {then}");
        let mut command = Command::new("sh");
        command.args(["-c", &script]).stdout(Stdio::piped()).spawn().expect("a shell")
    }

    const BEGUN: &str = "{\"gpus\":[{\"gpu\":0,\"uuid\":\"GPU-0\",\"name\":\"a GPU\"}]}\n{\"begin\":[0,\"memory\"]}";

    #[test]
    fn a_process_that_never_answers_is_ended_and_its_check_fails() {
        let mut collected = Collected::new(Instant::now());
        watch(process(BEGUN, "exec sleep 600"), Duration::from_millis(200), &mut collected);
        assert_eq!(collected.gpus[0].verdict, Verdict::Failed);
        let message = collected.gpus[0].checks[0].message.as_deref().expect("why");
        assert!(message.contains("has not answered"), "{message}");
    }

    #[test]
    fn a_process_that_dies_in_a_check_fails_it() {
        let mut collected = Collected::new(Instant::now());
        watch(process(BEGUN, "kill -SEGV $$"), Duration::from_mins(10), &mut collected);
        assert_eq!(collected.gpus[0].verdict, Verdict::Failed);
        let message = collected.gpus[0].checks[0].message.as_deref().expect("why");
        assert!(message.contains("signal: 11"), "{message}");
    }

    #[test]
    fn a_process_that_is_killed_for_lack_of_memory_says_nothing_of_its_gpu() {
        let mut collected = Collected::new(Instant::now());
        watch(process(BEGUN, "kill -KILL $$"), Duration::from_mins(10), &mut collected);
        assert_eq!(collected.gpus[0].verdict, Verdict::NotTried);
        let message = collected.gpus[0].checks[0].message.as_deref().expect("why");
        assert!(message.contains("killed"), "{message}");
    }

    #[test]
    fn what_cannot_be_tried_is_passed_on() {
        let mut collected = Collected::new(Instant::now());
        let lines = "{\"notTried\":\"no driver\"}";
        watch(process(lines, "exit 0"), Duration::from_mins(10), &mut collected);
        assert_eq!(collected.message.as_deref(), Some("no driver"));
        assert!(collected.gpus.is_empty());
    }
}
