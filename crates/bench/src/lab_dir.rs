//! The folder of a benchmark's lab.
//!
//! A lab is a control plane, whose processes outlive the process that started them. An interrupted
//! run (SIGINT, SIGTERM) ends every lab and removes its folder; see [`crate::signals`]. A killed
//! run cannot do that. Each lab therefore has a watching process that does the same.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::Context;
use octavo_lab::{Lab, UpOptions};

static REGISTRY: Mutex<Registry> =
    Mutex::new(Registry { folders: BTreeSet::new(), is_ending: false });

struct Registry {
    folders: BTreeSet<PathBuf>,
    is_ending: bool,
}

/// A folder for a lab. Dropping it removes the folder, so end the lab first.
pub(crate) struct LabDir {
    folder: PathBuf,
}

impl LabDir {
    /// A new folder.
    pub(crate) fn new() -> anyhow::Result<Self> {
        // Paths of sockets are short: the folder's name has to be, too.
        let folder = tempfile::Builder::new()
            .prefix("ob")
            .disable_cleanup(true)
            .tempdir()
            .context("make a folder for a lab")?;
        let folder = folder.path().to_owned();
        registry().folders.insert(folder.clone());
        Ok(Self { folder })
    }

    /// The state folder of its lab.
    pub(crate) fn lab(&self) -> &Path {
        &self.folder
    }

    /// Options for a whole lab that ends with this run.
    pub(crate) fn whole(&self, octavo: &Path) -> UpOptions {
        UpOptions { stops_with_parent: true, ..UpOptions::new(&self.folder, octavo) }
    }

    /// A control plane alone, that ends with this run.
    pub(crate) fn control_plane_only(&self, octavo: &Path) -> UpOptions {
        UpOptions { stops_with_parent: true, ..UpOptions::control_plane_only(&self.folder, octavo) }
    }
}

impl Drop for LabDir {
    fn drop(&mut self) {
        let mut registry = registry();
        // An interrupted run ends the lab first, and finds it by its folder.
        if !registry.is_ending && registry.folders.remove(&self.folder) {
            let _ = std::fs::remove_dir_all(&self.folder);
        }
    }
}

/// Warns about other running labs: they take time from what is measured.
pub(crate) fn warn_about_other_labs(octavo: &Path) {
    for (state_dir, processes) in Lab::all_up() {
        print_progress(&format!(
            "warning: a lab is running in {} ({processes} processes) and distorts the figures; unless another run \
             uses it, end it with `{} lab --state-dir {} down`",
            state_dir.display(),
            octavo.display(),
            state_dir.display()
        ));
    }
}

/// From now on the caller ends the labs and removes their folders.
pub(crate) fn take_over() -> BTreeSet<PathBuf> {
    let mut registry = registry();
    registry.is_ending = true;
    registry.folders.clone()
}

fn registry() -> MutexGuard<'static, Registry> {
    REGISTRY.lock().unwrap_or_else(PoisonError::into_inner)
}

#[expect(clippy::print_stderr, reason = "a benchmark talks to the person who started it")]
pub(crate) fn print_progress(text: &str) {
    eprintln!("{text}");
}
