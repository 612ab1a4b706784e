//! Requirements of real nodes on the machine, with remedies.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};

use super::{mounts, tool};
use crate::cluster::layout::Layout;

/// Commands with the Debian packages that provide them.
const COMMANDS: [(&str, &str); 8] = [
    ("busybox", "busybox-static"),
    ("ip", "iproute2"),
    ("iptables", "iptables"),
    ("mount", "mount"),
    ("runc", "runc"),
    ("strip", "binutils"),
    ("tar", "tar"),
    ("unshare", "util-linux"),
];

/// Folders of CNI plugins in distributions.
const CNI_FOLDERS: [&str; 3] = ["/usr/lib/cni", "/opt/cni/bin", "/usr/libexec/cni"];

/// CNI plugins for the node's network, all in one package.
const CNI_PLUGINS: [&str; 4] = ["bridge", "host-local", "loopback", "portmap"];
const CNI_PACKAGE: &str = "containernetworking-plugins";

/// The reason why this machine cannot run real nodes, with the remedy; `None` if it can.
///
/// Tests that need a real node call it first, and report that they are skipped.
pub fn real_node_obstacle() -> Option<String> {
    check().err().map(|error| format!("{error:#}"))
}

/// Rejects a machine that cannot run real nodes.
pub(crate) fn check() -> anyhow::Result<()> {
    if !rustix::process::geteuid().is_root() {
        bail!("a real node needs root: it makes namespaces, mounts and cgroups; run this as root");
    }
    let mut missing = Vec::new();
    let mut packages = Vec::new();
    for (command, package) in COMMANDS {
        if find(command).is_none() {
            missing.push(command.to_owned());
            packages.push(package);
        }
    }
    if cni_folder().is_none() {
        missing.push(format!("the CNI plugins {}", CNI_PLUGINS.join(", ")));
        packages.push(CNI_PACKAGE);
    }
    if !missing.is_empty() {
        bail!(
            "a real node needs {}, missing here: install with `apt-get install {}`, or the same \
             packages of your distribution",
            missing.join(", "),
            packages.join(" ")
        );
    }
    super::cgroups::check()?;
    tool::run("unshare", &["--net", "--pid", "--mount", "--fork", "--mount-proc", "true"])
        .map(drop)
        .context(
            "a real node needs namespaces of its own, and this machine does not let root make them",
        )
}

/// QEMU's program for machines like this one.
pub(super) const QEMU: &str = "qemu-system-x86_64";

/// Commands that virtual machines need besides, with their Debian packages.
const VIRTUAL_MACHINE_COMMANDS: [(&str, &str); 3] =
    [(QEMU, "qemu-system-x86"), ("mmdebstrap", "mmdebstrap"), ("mke2fs", "e2fsprogs")];

/// Where distributions put virtiofsd, with the packages `virtiofsd` or `qemu-system-common`.
const VIRTIOFSD: [&str; 3] =
    ["/usr/libexec/virtiofsd", "/usr/lib/virtiofsd", "/usr/lib/qemu/virtiofsd"];

/// The reason why this machine cannot run real nodes that are virtual machines; `None` if it can.
pub fn virtual_machine_obstacle() -> Option<String> {
    check().and_then(|()| check_virtual_machine()).err().map(|error| format!("{error:#}"))
}

/// Rejects a machine that cannot run virtual machines.
pub(crate) fn check_virtual_machine() -> anyhow::Result<()> {
    if std::env::consts::ARCH != "x86_64" {
        bail!("virtual machines are built for x86_64 only; use real nodes in namespaces here");
    }
    let missing = VIRTUAL_MACHINE_COMMANDS.into_iter().filter(|(name, _)| find(name).is_none());
    let mut packages: Vec<&str> = missing.map(|(_, package)| package).collect();
    if virtiofsd().is_none() {
        packages.push("virtiofsd");
    }
    if !packages.is_empty() {
        bail!(
            "a virtual machine needs programs that are missing here: install with `apt-get install \
             {}`, or the same packages of your distribution",
            packages.join(" ")
        );
    }
    if !Path::new("/dev/net/tun").exists() {
        bail!("a virtual machine needs /dev/net/tun for its network: load the module `tun`");
    }
    Ok(())
}

/// The program that shares the machine's files with a virtual machine.
pub(super) fn virtiofsd() -> Option<PathBuf> {
    VIRTIOFSD.into_iter().map(PathBuf::from).find(|path| path.is_file())
}

/// Rejects files below folders that a node replaces, because the node would not see them.
pub(crate) fn check_visible<'a>(
    layout: &'a Layout,
    programs: impl Iterator<Item = &'a Path>,
) -> anyhow::Result<()> {
    for path in programs.chain([layout.root()]) {
        let real = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        if let Some(hidden) = mounts::REPLACED_DIRS.iter().find(|folder| real.starts_with(folder)) {
            bail!(
                "{} is below {hidden}, where a real node has its own files and would not see it: \
                 use another folder for the lab (--state-dir), the cache (OCTAVO_CACHE_DIR) or the \
                 programs",
                path.display()
            );
        }
    }
    Ok(())
}

/// The folder of CNI plugins.
pub(super) fn cni_folder() -> Option<&'static str> {
    CNI_FOLDERS
        .into_iter()
        .find(|folder| CNI_PLUGINS.iter().all(|plugin| Path::new(folder).join(plugin).is_file()))
}

/// Path of a system command.
pub(super) fn find(command: &str) -> Option<PathBuf> {
    let folders = std::env::split_paths(tool::PATH);
    folders.map(|folder| folder.join(command)).find(|path| path.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_folder_that_a_node_would_not_see_is_refused() {
        let check = |root: &str| {
            let layout = Layout::new(Path::new(root)).unwrap();
            check_visible(&layout, [Path::new("/bin/sh")].into_iter())
        };
        assert!(check("/no/such/lab").is_ok());
        let message = check("/var/lib/ci/lab").unwrap_err().to_string();
        assert!(
            message.contains("/var/lib/ci/lab") && message.contains("--state-dir"),
            "{message}"
        );
    }

    #[test]
    fn commands_are_found_where_systems_have_them() {
        assert!(find("sh").is_some_and(|path| path.is_absolute()));
        assert_eq!(find("no-such-command-anywhere"), None);
    }
}
