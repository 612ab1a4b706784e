//! Watches the process that started a lab, and takes the lab down when that process ends in any
//! way.
//!
//! It runs as a small process of the lab. A parent-death signal would cover only one process. It is
//! also tied to the thread that started the process, and it leaves the files.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;

use crate::cluster::layout::Layout;
use crate::cluster::process::{self, CommandLine, Process};
use crate::cluster::stop;

/// Interval between two checks. A check costs microseconds, and no one waits for it.
const POLL_INTERVAL: Duration = Duration::from_millis(250);

/// Number of attempts to take the lab down.
const MAX_DOWN_ATTEMPTS: u32 = 120;

/// Starts the watch of this process for the lab in `layout`.
pub(crate) fn start(layout: &Layout, octavo: &Path) -> anyhow::Result<()> {
    let pid = i32::try_from(std::process::id()).context("a process id fits 31 bits")?;
    let parent = Process::of(pid).context("/proc does not show this process")?;
    let args = ["lab", "parent-watch", "--state-dir"].map(str::to_owned);
    let more = [layout.root().display().to_string(), parent.to_text()];
    let command = CommandLine {
        program: octavo.to_owned(),
        args: args.into_iter().chain(more).collect(),
        env: BTreeMap::new(),
    };
    process::spawn(&command, layout.root(), &layout.parent_watch_log(), &layout.parent_watch_pid())
        .context("start the lab's parent watch")?;
    Ok(())
}

/// Waits until `parent` has ended, then takes the lab down.
pub(crate) async fn run(layout: &Layout, parent: Process) -> anyhow::Result<()> {
    while parent.is_alive() {
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    let mut attempts_left = MAX_DOWN_ATTEMPTS;
    loop {
        let ended = stop::down(layout, false).await.map(drop);
        attempts_left -= 1;
        // Another command may hold the lock, for example a child of the parent that is about to
        // end.
        if ended.is_ok() || attempts_left == 0 {
            return ended;
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::component::Component;

    fn sleeper(layout: &Layout, component: Component) -> Process {
        let command = CommandLine {
            program: "/bin/sleep".into(),
            args: vec!["60".to_owned()],
            env: BTreeMap::new(),
        };
        let (log, pid_file) = (layout.log(component), layout.pid_file(component));
        process::spawn(&command, layout.root(), &log, &pid_file).unwrap()
    }

    #[tokio::test]
    async fn lab_ends_when_its_parent_is_killed() {
        let folder = tempfile::tempdir().unwrap();
        let layouts = ["parent", "lab"].map(|name| Layout::new(&folder.path().join(name)).unwrap());
        for part in layouts.iter().flat_map(|layout| [layout.pids(), layout.logs()]) {
            std::fs::create_dir_all(part).unwrap();
        }
        let [parents, layout] = layouts;
        let parent = sleeper(&parents, Component::Etcd);
        let etcd = sleeper(&layout, Component::Etcd);
        let mut watch = Box::pin(run(&layout, parent));
        assert!(futures::poll!(watch.as_mut()).is_pending() && etcd.is_alive());
        process::stop(&[parent], Duration::ZERO).await;
        tokio::time::timeout(Duration::from_secs(20), watch).await.unwrap().unwrap();
        assert!(!etcd.is_alive() && !layout.root().exists());
    }

    #[tokio::test]
    async fn parent_that_has_already_ended_ends_the_lab() {
        let folder = tempfile::tempdir().unwrap();
        let layout = Layout::new(&folder.path().join("lab")).unwrap();
        // This process's id with another start time.
        let gone = Process::parse(&format!("{} 1", std::process::id())).unwrap();
        let watch = tokio::time::timeout(Duration::from_secs(20), run(&layout, gone)).await;
        watch.unwrap().unwrap();
    }
}
