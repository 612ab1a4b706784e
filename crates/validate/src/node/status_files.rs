//! Files by which other programs of the node know that a component is ready.
//!
//! Names and folder are those of the validator of NVIDIA's GPU Operator, whose operands wait for the files.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::Context as _;

use crate::report::Component;

/// The folder of the files, if they are to be written.
#[derive(Clone, Debug)]
pub(super) struct StatusFolder(Option<PathBuf>);

impl StatusFolder {
    /// With `None` there are no files.
    pub(super) fn new(folder: Option<&Path>) -> Self {
        Self(folder.map(Path::to_owned))
    }

    /// Removes the file of a component, if it is there.
    pub(super) fn remove(&self, component: Component) -> anyhow::Result<()> {
        let Some(folder) = &self.0 else { return Ok(()) };
        let path = folder.join(name(component));
        match fs::remove_file(&path) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                Err(error).with_context(|| format!("remove {}", path.display()))
            }
            _ => Ok(()),
        }
    }

    /// Writes the file of a component. Readers see the whole file or none.
    pub(super) fn write(&self, component: Component, content: &str) -> Result<(), String> {
        let Some(folder) = &self.0 else { return Ok(()) };
        let path = folder.join(name(component));
        let next = folder.join(format!(".{}.next", name(component)));
        let written = fs::create_dir_all(folder)
            .and_then(|()| fs::write(&next, content))
            .and_then(|()| fs::rename(&next, &path));
        written.map_err(|error| {
            format!("the status file {} cannot be written: {error}", path.display())
        })
    }
}

fn name(component: Component) -> String {
    format!("{component}-ready")
}
