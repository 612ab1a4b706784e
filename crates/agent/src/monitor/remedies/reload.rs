//! A reload of the driver: its kernel modules are unloaded and loaded again.
//!
//! ```text
//! refuse, while nothing is touched: modules of others that need the driver, modules that could not be loaded again, processes
//!    |
//! note ── stop services ── unload, the leaves first ── load in the reverse order ── start services ── end of the note
//! ```
//!
//! Whatever fails after the note, all is loaded and started again that was there before. If the agent dies in between, the next one does
//! so by the note. Both are harmless for what is there.
//!
//! `modprobe` and `rmmod` of the driver's root do the work, with that root as their own: the modules and their options are there.
//! `rmmod` takes one module. `modprobe --remove` would also take modules of others that nothing uses at the moment.

mod modules;
mod note;
#[cfg(test)]
mod tests;
mod users;

use std::io;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::thread;
use std::time::Duration;

use octavo_gpu::programs::{self, ProgramError};
use octavo_node::failpoint;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use note::{Note, Taken};
use users::Users;

/// Time for one program. A module that initialises or leaves many GPUs takes seconds, and a service may take 90 s for its end.
const PROGRAM_TIMEOUT: Duration = Duration::from_mins(2);
/// Attempts to unload a module, and the pause between them. A program that reads a value of a GPU has the driver open for a moment.
const UNLOAD_ATTEMPTS: u32 = 5;
const UNLOAD_PAUSE: Duration = Duration::from_millis(if cfg!(test) { 1 } else { 1_000 });

/// Relations of units by which systemd stops one with another.
const STOPPED_WITH: &str = "--property=RequiredBy,RequisiteOf,BoundBy,ConsistsOf,PropagatesStopTo";

/// Reloads the driver of a node.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reloader {
    /// The proc file system.
    pub(crate) proc_root: PathBuf,
    /// The file by which another agent brings back what this one took away. It must be gone after a boot.
    pub(crate) note: PathBuf,
    /// Root of the host, whose service manager is systemd.
    pub(crate) host_root: PathBuf,
    /// Whether programs run with the root that they are of as their own. Those of a simulated node need this process's root.
    pub(crate) enters_roots: bool,
    /// The agent ends after these tasks.
    pub(crate) tasks: TaskTracker,
}

/// Why the driver was not reloaded.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReloadError {
    /// The kernel's list of modules cannot be read.
    #[error("the kernel's list of modules cannot be read: {0}")]
    List(io::Error),
    /// There is no driver to reload.
    #[error("the kernel has no module nvidia loaded: load the driver by hand")]
    NotLoaded,
    /// Another module needs the driver.
    #[error(
        "the module {holder} needs {module}, and is none of the driver's: how it was loaded is not known. Unload it by hand, or leave \
         reloadDriver out of the policy"
    )]
    Held {
        /// The other module.
        holder: String,
        /// The module of the driver.
        module: &'static str,
    },
    /// A module that could not be loaded again.
    #[error(
        "{module} is not unloaded, since it could not be loaded again: {error}. Repair the driver's installation"
    )]
    Irreplaceable {
        /// The module.
        module: &'static str,
        /// What `modprobe` says.
        error: Box<ProgramError>,
    },
    /// Processes have the driver open.
    #[error(
        "the driver is open in {0}. End them: of NVIDIA's daemons, those that are services of the host's systemd are stopped and started \
         again, and none in a container. A driver in a container is reloaded by a restart of its pod"
    )]
    InUse(Users),
    /// Another service would be stopped, too.
    #[error(
        "the service {dependent} runs and needs {service}, which has to be stopped: stop {dependent} by hand"
    )]
    Needed {
        /// The other service.
        dependent: String,
        /// The service of NVIDIA.
        service: &'static str,
    },
    /// The note cannot be read or written.
    #[error("what a reload has to bring back cannot be read or noted in {}: {error}", path.display())]
    Note {
        /// Its file.
        path: PathBuf,
        /// Error of the system.
        error: io::Error,
    },
    /// A service is not stopped or started.
    #[error(
        "cannot {verb} the service {service}: {error}. See `systemctl status {service}` on the node"
    )]
    Service {
        /// What was to be done.
        verb: &'static str,
        /// The service.
        service: String,
        /// What `systemctl` says.
        error: Box<ProgramError>,
    },
    /// A module is not unloaded.
    #[error("{module} cannot be unloaded: {error}. What may use it: {users}")]
    Unload {
        /// The module.
        module: String,
        /// What `rmmod` says.
        error: Box<ProgramError>,
        /// Processes that may have it open.
        users: Users,
    },
    /// The agent is to end.
    #[error("the agent ends, and the driver is loaded again before that")]
    Stopped,
    /// A module is not loaded again.
    #[error(
        "{module} cannot be loaded again: {error}. It is tried again; see the kernel's log (dmesg), or reboot the node"
    )]
    Load {
        /// The module.
        module: String,
        /// What `modprobe` says.
        error: Box<ProgramError>,
    },
}

impl Reloader {
    /// Reloads the driver, which this process may not have open. Blocks. After `stop` no further module is unloaded.
    pub(super) fn reload(
        &self,
        driver_root: &Path,
        stop: &CancellationToken,
    ) -> Result<(), ReloadError> {
        // An agent that ends meanwhile would leave the node without its driver until the next one starts.
        let _task = self.tasks.token();
        // What an earlier one left is not forgotten.
        self.restore(driver_root)?;
        let modules = self.replaceable_modules(driver_root)?;
        let services = Users::find(&self.proc_root).services().map_err(ReloadError::InUse)?;
        self.check_dependents(&services)?;
        let owned = |names: Vec<&'static str>| names.into_iter().map(str::to_owned).collect();
        let taken = Taken { services: owned(services), modules: owned(modules) };
        let note = Note::begin(&self.note, taken).map_err(|error| self.note_error(error))?;
        failpoint::hit("reload.noted");
        let unloaded = self.take(driver_root, &note.taken, stop);
        if let Err(error) = &unloaded {
            tracing::warn!(%error, "the driver is not unloaded as a whole; what is missing is loaded again");
        }
        failpoint::hit("reload.unloaded");
        self.bring_back(driver_root, note)?;
        unloaded
    }

    /// Brings back what an agent took away that died before it had loaded the driver again. Returns whether there was something. Blocks.
    pub(in crate::monitor) fn restore(&self, driver_root: &Path) -> Result<bool, ReloadError> {
        let left = Note::left(&self.note).map_err(|error| self.note_error(error))?;
        let Some(note) = left else { return Ok(false) };
        let _task = self.tasks.token();
        tracing::warn!(taken = ?note.taken, "a reload of the driver did not come to its end; the driver is loaded again");
        self.bring_back(driver_root, note)?;
        Ok(true)
    }

    /// Names of the driver's loaded modules in the order in which they are unloaded, if no other module needs them and all of them could
    /// be loaded again.
    fn replaceable_modules(&self, driver_root: &Path) -> Result<Vec<&'static str>, ReloadError> {
        let loaded = modules::loaded(&self.proc_root).map_err(ReloadError::List)?;
        if !loaded.iter().any(|module| module.name == modules::DRIVER) {
            return Err(ReloadError::NotLoaded);
        }
        if let Some((holder, module)) = modules::foreign_holder(&loaded) {
            return Err(ReloadError::Held { holder, module });
        }
        for module in loaded.iter().map(|module| module.name) {
            // It fails unless the root has the module for this kernel.
            self.run(driver_root, "modprobe", &["--show-depends", module])
                .map_err(|error| ReloadError::Irreplaceable { module, error: error.into() })?;
        }
        Ok(loaded.into_iter().map(|module| module.name).collect())
    }

    /// Fails if other services run that systemd would stop with these. They would not be started again.
    fn check_dependents(&self, services: &[&'static str]) -> Result<(), ReloadError> {
        for service in services {
            let shown = self.systemctl("show", &[STOPPED_WITH, service])?;
            let shown = String::from_utf8_lossy(&shown.stdout);
            let units = shown.lines().filter_map(|line| line.split_once('='));
            let mut dependents = units
                .flat_map(|(_, units)| units.split_whitespace())
                .filter(|unit| unit.ends_with(".service") && !services.contains(unit));
            // It fails for a unit that does not run.
            let runs = |unit: &&str| self.systemctl("is-active", &["--quiet", unit]).is_ok();
            if let Some(dependent) = dependents.find(runs) {
                return Err(ReloadError::Needed { dependent: dependent.to_owned(), service });
            }
        }
        Ok(())
    }

    /// Stops services and unloads modules, up to the first that fails.
    fn take(
        &self,
        driver_root: &Path,
        taken: &Taken,
        stop: &CancellationToken,
    ) -> Result<(), ReloadError> {
        for service in &taken.services {
            tracing::info!(service, "a service is stopped, since it has the driver open");
            self.systemctl("stop", &[service])?;
        }
        for module in &taken.modules {
            if stop.is_cancelled() {
                return Err(ReloadError::Stopped);
            }
            self.unload(driver_root, module)?;
            failpoint::hit("reload.unloading");
        }
        Ok(())
    }

    fn unload(&self, driver_root: &Path, module: &str) -> Result<(), ReloadError> {
        let mut attempts = 1;
        while let Err(error) = self.run(driver_root, "rmmod", &[module]) {
            if attempts == UNLOAD_ATTEMPTS || !matches!(error, ProgramError::Failed { .. }) {
                let users = Users::suspects(&self.proc_root);
                let (module, error) = (module.to_owned(), error.into());
                return Err(ReloadError::Unload { module, error, users });
            }
            attempts += 1;
            thread::sleep(UNLOAD_PAUSE);
        }
        Ok(())
    }

    /// Loads modules, and starts services once the driver itself is loaded, each that it can. The note stays while a module is missing.
    fn bring_back(&self, driver_root: &Path, note: Note) -> Result<(), ReloadError> {
        let load = |module: &String| {
            let loaded = self.run(driver_root, "modprobe", &[module]);
            let error = loaded.err()?.into();
            Some(ReloadError::Load { module: module.clone(), error })
        };
        let missing: Vec<_> = note.taken.modules.iter().rev().filter_map(load).collect();
        let is_driver = |error: &ReloadError| matches!(error, ReloadError::Load { module, .. } if module == modules::DRIVER);
        failpoint::hit("reload.loaded");
        let services = note.taken.services.iter().rev();
        let services = services.filter(|_| !missing.iter().any(is_driver));
        let failed: Vec<_> =
            services.filter_map(|service| self.systemctl("start", &[service]).err()).collect();
        if missing.is_empty() {
            note.end().map_err(|error| self.note_error(error))?;
        }
        missing.into_iter().chain(failed).next().map_or(Ok(()), Err)
    }

    /// Runs `systemctl` of the host for a unit, which is the last argument.
    fn systemctl(&self, verb: &'static str, args: &[&str]) -> Result<Output, ReloadError> {
        let all: Vec<_> = std::iter::once(verb).chain(args.iter().copied()).collect();
        self.run(&self.host_root, "systemctl", &all).map_err(|error| {
            let service = args.last().copied().unwrap_or_default().to_owned();
            ReloadError::Service { verb, service, error: error.into() }
        })
    }

    fn run(&self, root: &Path, name: &'static str, args: &[&str]) -> Result<Output, ProgramError> {
        if self.enters_roots {
            programs::run_in_root(root, name, args, PROGRAM_TIMEOUT)
        } else {
            programs::run(root, name, args, PROGRAM_TIMEOUT)
        }
    }

    fn note_error(&self, error: io::Error) -> ReloadError {
        ReloadError::Note { path: self.note.clone(), error }
    }
}
