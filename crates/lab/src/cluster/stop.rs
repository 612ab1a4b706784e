//! Ends a lab in any state.

use std::time::Duration;

use anyhow::{Context as _, bail};

use crate::cluster::component::Component;
use crate::cluster::layout::Layout;
use crate::cluster::lock::Lock;
use crate::cluster::process::{self, Process};
use crate::real_node;

/// Grace period of agents, kubelets and Octavo's scheduler.
const NODE_GRACE_PERIOD: Duration = Duration::from_secs(3);

/// Grace period of the control plane, after the others. An API server waits a minute for its
/// requests, but the data it would save is about to be removed.
const CONTROL_PLANE_GRACE_PERIOD: Duration = Duration::from_millis(300);

/// Stops every process of the lab and removes its files; with `keep_logs` all but the logs. Returns
/// the number of processes, or `None` if there was no lab.
///
/// Handles the remains of any crash: processes without pid files, pid files without processes, an
/// incomplete state folder.
pub(crate) async fn down(layout: &Layout, keep_logs: bool) -> anyhow::Result<Option<usize>> {
    let nothing = !layout.has_lab() && process::processes_of_lab(layout.root()).is_empty();
    if nothing && !real_node::has_leftovers(layout) {
        // An `up` that ended while building Kubernetes leaves only its lock.
        if layout.lock().exists() {
            Lock::take(layout)?.remove()?;
        }
        return Ok(None);
    }
    let lock = Lock::take(layout)?;
    let stopped = stop_processes(layout).await?;
    layout.remove(keep_logs).context("remove the lab's files")?;
    lock.remove()?;
    Ok(Some(stopped))
}

/// Stops every process of the lab, the control plane last, and returns their number. Also removes
/// the real nodes' objects outside of their namespaces.
pub(crate) async fn stop_processes(layout: &Layout) -> anyhow::Result<usize> {
    let running = |component: Component| {
        Process::read(&layout.pid_file(component)).filter(|process| process.is_alive())
    };
    let on_nodes = [
        Component::Agents,
        Component::Kubelets,
        Component::OctavoController,
        Component::OctavoScheduler,
    ]
    .into_iter()
    .filter_map(running);
    let on_nodes: Vec<Process> = on_nodes.collect();
    let mut all: Vec<Process> = Component::ALL.into_iter().filter_map(running).collect();
    all.extend(process::processes_of_lab(layout.root()));
    all.sort_unstable();
    all.dedup();
    let count = all.len();
    // Real nodes end at once with all their processes: none of their state is kept.
    let real: Vec<Process> = real_node::launch::all_processes(layout);
    process::stop(&real, Duration::ZERO).await;
    process::stop(&on_nodes, NODE_GRACE_PERIOD).await;
    process::stop(&all, CONTROL_PLANE_GRACE_PERIOD).await;
    // Processes that a component started in its last moments.
    let late = process::processes_of_lab(layout.root());
    process::stop(&late, Duration::ZERO).await;
    all.extend(late);
    if let Some(process) = all.iter().find(|process| process.is_alive()) {
        bail!("process {} of the lab does not end: end it, then try again", process.pid);
    }
    real_node::remove(layout).await.context("remove the remains of real nodes")?;
    Ok(count)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::cluster::process::CommandLine;

    fn layout(folder: &tempfile::TempDir) -> Layout {
        let layout = Layout::new(&folder.path().join("lab")).unwrap();
        for folder in [layout.pids(), layout.logs(), layout.nodes()] {
            std::fs::create_dir_all(folder).unwrap();
        }
        layout
    }

    fn start(layout: &Layout, component: Component) -> Process {
        let command = CommandLine {
            program: "/bin/sleep".into(),
            args: vec!["60".to_owned()],
            env: BTreeMap::new(),
        };
        let (log, pid_file) = (layout.log(component), layout.pid_file(component));
        let process = process::spawn(&command, layout.root(), &log, &pid_file).unwrap();
        // The kernel shows the new program's environment shortly after the start.
        let deadline = std::time::Instant::now() + Duration::from_secs(20);
        while !process::processes_of_lab(layout.root()).contains(&process) {
            assert!(std::time::Instant::now() < deadline, "no mark on {process:?}");
            std::thread::yield_now();
        }
        process
    }

    #[tokio::test]
    async fn down_stops_processes_with_and_without_a_pid_file() {
        let folder = tempfile::tempdir().unwrap();
        let layout = layout(&folder);
        let etcd = start(&layout, Component::Etcd);
        let lost = start(&layout, Component::KubeScheduler);
        std::fs::remove_file(layout.pid_file(Component::KubeScheduler)).unwrap();
        assert_eq!(down(&layout, false).await.unwrap(), Some(2));
        assert!(!etcd.is_alive() && !lost.is_alive());
        assert!(!layout.root().exists());
        assert_eq!(down(&layout, false).await.unwrap(), None);
    }

    #[tokio::test]
    async fn down_ends_processes_whose_state_folder_is_gone() {
        let folder = tempfile::tempdir().unwrap();
        let layout = layout(&folder);
        let agents = start(&layout, Component::Agents);
        std::fs::remove_dir_all(layout.root()).unwrap();
        assert_eq!(down(&layout, false).await.unwrap(), Some(1));
        assert!(!agents.is_alive() && !layout.root().exists());
    }

    #[tokio::test]
    async fn down_removes_the_lock_of_an_up_that_ended_before_it_made_anything() {
        let folder = tempfile::tempdir().unwrap();
        let layout = Layout::new(&folder.path().join("lab")).unwrap();
        let held = Lock::take(&layout).unwrap();
        assert!(down(&layout, false).await.unwrap_err().to_string().contains("is running in"));
        drop(held);
        assert_eq!(down(&layout, false).await.unwrap(), None);
        assert!(!layout.root().exists());
    }

    #[tokio::test]
    async fn down_leaves_a_process_that_has_a_dead_one_s_number() {
        let folder = tempfile::tempdir().unwrap();
        let layout = layout(&folder);
        // This process's id with another start time.
        let text = format!("{} 1\n", std::process::id());
        std::fs::write(layout.pid_file(Component::Etcd), text).unwrap();
        assert_eq!(down(&layout, true).await.unwrap(), Some(0));
        assert!(layout.logs().exists() && !layout.pids().exists());
    }
}
