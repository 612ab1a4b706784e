//! The cgroups of a lab's real nodes: one folder per lab and hierarchy, with one folder per node.
//! Both cgroup versions are supported; a machine may have both mounted.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail};

use super::lab_id;
use crate::cluster::layout::Layout;

/// Controllers that limit a node's pods.
const CONTROLLERS: [&str; 5] = ["cpu", "cpuset", "io", "memory", "pids"];

/// Number of attempts, and the delay between them, to remove a cgroup whose processes are ending.
const MAX_REMOVE_ATTEMPTS: u32 = 1500;
const REMOVE_RETRY_DELAY: Duration = Duration::from_millis(20);

/// A mounted hierarchy.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Hierarchy {
    mount_point: PathBuf,
    /// Version 2: one hierarchy for all controllers.
    unified: bool,
}

/// Name of the lab's folder in each hierarchy.
pub(super) fn folder(layout: &Layout) -> String {
    format!("octavo-{}", lab_id(layout))
}

/// Rejects a machine on which cgroups cannot be created.
pub(super) fn check() -> anyhow::Result<()> {
    let hierarchies = hierarchies()?;
    let Some(first) = hierarchies.first() else {
        bail!(
            "a real node needs cgroups, and no hierarchy of them is mounted below /sys/fs/cgroup"
        );
    };
    for hierarchy in &hierarchies {
        let access = rustix::fs::statvfs(&hierarchy.mount_point)
            .with_context(|| format!("look at {}", hierarchy.mount_point.display()))?;
        if access.f_flag.contains(rustix::fs::StatVfsMountFlags::RDONLY) {
            bail!(
                "a real node makes cgroups, and {} is mounted read-only: if this is a container, \
                 start it with --privileged",
                first.mount_point.display()
            );
        }
    }
    Ok(())
}

/// Creates a node's cgroup in every hierarchy, as the kubelet expects.
pub(super) fn create(layout: &Layout, node: &str) -> anyhow::Result<()> {
    for hierarchy in hierarchies()? {
        let lab = hierarchy.mount_point.join(folder(layout));
        let node = lab.join(node);
        fs::create_dir_all(&node).with_context(|| format!("make the cgroup {}", node.display()))?;
        let chain = [hierarchy.mount_point.as_path(), &lab, &node];
        for pair in chain.windows(2) {
            let [parent, child] = pair else { continue };
            if hierarchy.unified {
                // Controllers that are missing or not delegated to this machine are skipped.
                for controller in CONTROLLERS {
                    let _ =
                        fs::write(parent.join("cgroup.subtree_control"), format!("+{controller}"));
                }
            } else {
                inherit_cpuset(parent, child)?;
            }
        }
    }
    Ok(())
}

/// Whether any hierarchy has a folder of this lab.
pub(super) fn has_leftovers(layout: &Layout) -> bool {
    let folder = folder(layout);
    hierarchies().is_ok_and(|hierarchies| {
        hierarchies.iter().any(|hierarchy| hierarchy.mount_point.join(&folder).exists())
    })
}

/// Removes the lab's cgroups recursively. Their processes must have ended.
pub(super) async fn remove(layout: &Layout) -> anyhow::Result<()> {
    for hierarchy in hierarchies()? {
        remove_tree(&hierarchy.mount_point.join(folder(layout))).await?;
    }
    Ok(())
}

/// Removes the cgroups of one node, so that its next start finds no old pods.
pub(super) async fn remove_node(layout: &Layout, node: &str) -> anyhow::Result<()> {
    for hierarchy in hierarchies()? {
        remove_tree(&hierarchy.mount_point.join(folder(layout)).join(node)).await?;
    }
    Ok(())
}

async fn remove_tree(folder: &Path) -> anyhow::Result<()> {
    for attempt in 0..MAX_REMOVE_ATTEMPTS {
        match remove_once(folder) {
            Err(e) if attempt + 1 < MAX_REMOVE_ATTEMPTS && e.kind() == ErrorKind::ResourceBusy => {
                tokio::time::sleep(REMOVE_RETRY_DELAY).await;
            }
            removed => {
                return removed.with_context(|| {
                    format!(
                        "remove the cgroup {}: end the processes that its cgroup.procs files name",
                        folder.display()
                    )
                });
            }
        }
    }
    Ok(())
}

/// Removes a cgroup after its children. Removes only folders: the kernel owns the files.
fn remove_once(folder: &Path) -> std::io::Result<()> {
    let entries = match fs::read_dir(folder) {
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            remove_once(&entry.path())?;
        }
    }
    match fs::remove_dir(folder) {
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

/// A new version 1 cgroup has no CPUs and memory nodes, and no process can run in it.
fn inherit_cpuset(parent: &Path, child: &Path) -> anyhow::Result<()> {
    for file in ["cpuset.cpus", "cpuset.mems"] {
        let to = child.join(file);
        let Ok(text) = fs::read_to_string(&to) else { continue };
        if text.trim().is_empty() {
            let from = fs::read_to_string(parent.join(file)).unwrap_or_default();
            fs::write(&to, from.trim()).with_context(|| format!("write {}", to.display()))?;
        }
    }
    Ok(())
}

fn hierarchies() -> anyhow::Result<Vec<Hierarchy>> {
    let text = fs::read_to_string("/proc/self/mountinfo").context("read the table of mounts")?;
    Ok(parse(&text))
}

/// The hierarchies in a mount table, each once.
fn parse(mountinfo: &str) -> Vec<Hierarchy> {
    let mut found: Vec<Hierarchy> = Vec::new();
    for line in mountinfo.lines() {
        let Some((mount, file_system)) = line.split_once(" - ") else { continue };
        let unified = match file_system.split(' ').next() {
            Some("cgroup") => false,
            Some("cgroup2") => true,
            _ => continue,
        };
        let Some(mount_point) = mount.split(' ').nth(4).map(PathBuf::from) else { continue };
        if !found.iter().any(|listed| listed.mount_point == mount_point) {
            found.push(Hierarchy { mount_point, unified });
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hierarchies_of_both_versions_are_read_from_the_mounts() {
        let text = "\
            30 24 0:26 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n\
            31 30 0:27 / /sys/fs/cgroup/cpu,cpuacct rw,nosuid shared:9 - cgroup cgroup rw,cpu,cpuacct\n\
            31 30 0:27 / /sys/fs/cgroup/cpu,cpuacct rw,nosuid shared:9 - cgroup cgroup rw,cpu,cpuacct\n\
            32 30 0:28 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
        let paths: Vec<(PathBuf, bool)> = parse(text)
            .into_iter()
            .map(|hierarchy| (hierarchy.mount_point, hierarchy.unified))
            .collect();
        assert_eq!(
            paths,
            [("/sys/fs/cgroup/cpu,cpuacct".into(), false), ("/sys/fs/cgroup/unified".into(), true)]
        );
    }

    #[tokio::test]
    async fn a_tree_of_cgroups_is_removed_from_below_and_a_missing_one_is_no_error() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("lab");
        fs::create_dir_all(root.join("node/kubepods/pod1")).unwrap();
        remove_tree(&root).await.unwrap();
        assert!(!root.exists());
        remove_tree(&root).await.unwrap();
    }

    #[test]
    fn an_empty_cpuset_takes_what_its_parent_has() {
        let folder = tempfile::tempdir().unwrap();
        let child = folder.path().join("child");
        fs::create_dir(&child).unwrap();
        fs::write(folder.path().join("cpuset.cpus"), "0-1\n").unwrap();
        fs::write(child.join("cpuset.cpus"), "\n").unwrap();
        inherit_cpuset(folder.path(), &child).unwrap();
        assert_eq!(fs::read_to_string(child.join("cpuset.cpus")).unwrap(), "0-1");
    }
}
