//! A reboot of the node by its service manager, systemd.
//!
//! systemd reboots in order on SIGINT, as on Ctrl-Alt-Del: it starts `ctrl-alt-del.target`, which is `reboot.target` unless an
//! administrator has masked it (systemd(1)). Units stop, the kubelet among them, with the time that it has for pods. So the agent needs
//! no program of the host, and no access to its files: the host's processes are enough.

use std::path::PathBuf;

use rustix::process::{Pid, Signal, kill_process};

/// Reboots the node of a proc file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rebooter {
    /// The proc file system; `None`: that of a simulated node, which has no systemd.
    pub(crate) proc_root: Option<PathBuf>,
    /// The process of the service manager: 1, which is the host's in a pod with the host's processes.
    pub(crate) manager: i32,
}

/// Why a node is not rebooted.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RebootError {
    /// The node is simulated.
    #[error("the agent does not have the processes of the node's host")]
    NoHost,
    /// Another program manages services, or the agent does not see the host's processes.
    #[error("the node's process {pid} is {name}, not systemd")]
    OtherManager {
        /// The process.
        pid: i32,
        /// Its name.
        name: String,
    },
    /// The process gets no signals of this one.
    #[error("systemd cannot be asked to reboot: {0}")]
    Refused(#[from] rustix::io::Errno),
}

impl Default for Rebooter {
    fn default() -> Self {
        Self { proc_root: None, manager: 1 }
    }
}

impl Rebooter {
    /// Asks for the reboot, and returns before it.
    pub(crate) fn reboot(&self) -> Result<(), RebootError> {
        let pid = self.manager;
        let root = self.proc_root.as_ref().ok_or(RebootError::NoHost)?;
        let name = std::fs::read_to_string(root.join(format!("{pid}/comm"))).unwrap_or_default();
        let name = name.trim().to_owned();
        let manager = Pid::from_raw(pid).filter(|_| name == "systemd");
        let manager = manager.ok_or(RebootError::OtherManager { pid, name })?;
        Ok(kill_process(manager, Signal::INT)?)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::os::unix::process::ExitStatusExt as _;
    use std::process::{Child, Command};

    use super::*;

    /// A program with a name.
    pub(in crate::monitor::remedies) fn program(name: &str) -> (tempfile::TempDir, Child) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        std::fs::copy("/bin/sleep", &path).unwrap();
        // Programs in the background of a shell ignore SIGINT, and so would the child.
        let mut command = Command::new("env");
        let child = command.arg("--default-signal=INT").arg(path).arg("600").spawn().unwrap();
        // The kernel sets the name a moment after the program has begun.
        let comm = format!("/proc/{}/comm", child.id());
        while std::fs::read_to_string(&comm).unwrap().trim() != name {
            std::thread::yield_now();
        }
        (folder, child)
    }

    pub(in crate::monitor::remedies) fn rebooter(child: &Child) -> Rebooter {
        let manager = i32::try_from(child.id()).unwrap();
        Rebooter { proc_root: Some("/proc".into()), manager }
    }

    #[test]
    fn systemd_gets_its_signal() {
        let (_folder, mut child) = program("systemd");
        rebooter(&child).reboot().unwrap();
        assert_eq!(child.wait().unwrap().signal(), Some(Signal::INT.as_raw()));
    }

    #[test]
    fn another_manager_or_a_simulated_node_gets_none() {
        let (_folder, mut child) = program("init");
        let error = rebooter(&child).reboot().unwrap_err().to_string();
        assert!(error.contains("is init, not systemd"), "{error}");
        assert!(child.try_wait().unwrap().is_none());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(matches!(Rebooter::default().reboot(), Err(RebootError::NoHost)));
    }
}
