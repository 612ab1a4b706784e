//! The driver's root: the files of an installed driver.

use std::fs;
use std::path::Path;
use std::time::SystemTime;

use anyhow::Context as _;
use octavo_machine::Machine;

use super::proc_files::has_channels;
use super::tree::Tree;
use crate::nodes::driver_libraries::{DriverLibraries, IMEX_PROGRAMS, KMOD, KMOD_NAMES, PROGRAMS};

/// Folder of the libraries, of the machine description and of its state.
pub(super) const LIBRARY_DIR: &str = "driver/usr/lib64";

/// Driver libraries other than management and CUDA: name and soname version, with which programs
/// open them.
const OTHER_LIBRARIES: &[(&str, &str)] = &[
    ("libcudadebugger", "1"),
    ("libnvcuvid", "1"),
    ("libnvidia-allocator", "1"),
    ("libnvidia-cfg", "1"),
    ("libnvidia-encode", "1"),
    ("libnvidia-nvvm", "4"),
    ("libnvidia-opencl", "1"),
    ("libnvidia-ptxjitcompiler", "1"),
];

/// Libraries that programs open by their full version only.
const PRIVATE_LIBRARIES: &[&str] = &["libnvidia-gpucomp"];

/// Programs that only have to be there.
const OTHER_PROGRAMS: &[&str] =
    &["nvidia-cuda-mps-server", "nvidia-debugdump", "nvidia-persistenced"];

/// Firmware images: one for Turing, one for later architectures. Every driver has both.
const FIRMWARE: &[&str] = &["gsp_ga10x.bin", "gsp_tu10x.bin"];

pub(super) fn write(
    tree: &Tree<'_>,
    machine: &Machine,
    sources: &DriverLibraries,
) -> anyhow::Result<()> {
    let version = &machine.driver.version;
    let libraries = Path::new(LIBRARY_DIR);
    tree.folder(libraries)?;
    let name = format!("libnvidia-ml.so.{version}");
    copy_library(&sources.management, &tree.path(&libraries.join(&name)))?;
    tree.link(libraries.join("libnvidia-ml.so.1"), &name)?;
    tree.link(libraries.join("libnvidia-ml.so"), "libnvidia-ml.so.1")?;
    let name = format!("libcuda.so.{version}");
    link_or_copy(&sources.cuda, &tree.path(&libraries.join(&name)))?;
    tree.link(libraries.join("libcuda.so.1"), &name)?;
    for (stem, interface) in OTHER_LIBRARIES {
        let name = format!("{stem}.so.{version}");
        tree.file(libraries.join(&name), &placeholder(&name))?;
        tree.link(libraries.join(format!("{stem}.so.{interface}")), &name)?;
    }
    tree.link(libraries.join("libcuda.so"), "libcuda.so.1")?;
    for stem in PRIVATE_LIBRARIES {
        let name = format!("{stem}.so.{version}");
        tree.file(libraries.join(&name), &placeholder(&name))?;
    }
    let programs = Path::new("driver/usr/bin");
    for program in OTHER_PROGRAMS {
        let script = format!(
            "#!/bin/sh\necho '{program}: a stand-in of a simulated node; it does nothing' >&2\n\
             exit 1\n"
        );
        tree.program(programs.join(program), &script)?;
    }
    let imex = IMEX_PROGRAMS.iter().filter(|_| has_channels(machine));
    let own_names = PROGRAMS.iter().chain(imex).map(|name| (*name, *name));
    for (source, name) in own_names.chain(KMOD_NAMES.map(|name| (KMOD, name))) {
        link_or_copy(&sources.programs.join(source), &tree.path(&programs.join(name))).context(
            "the driver's programs lie beside octavo; run `cargo build` in Octavo's repository",
        )?;
    }
    let firmware = Path::new("driver/lib/firmware/nvidia").join(version);
    for name in FIRMWARE {
        tree.file(firmware.join(name), &placeholder(name))?;
    }
    Ok(())
}

/// Copies the library, never by hard link. The dynamic linker takes two names of one file for one
/// library, so all nodes would answer from the first node's machine. Where the file system supports
/// reflinks, the copy shares its blocks with the original.
fn copy_library(library: &Path, to: &Path) -> anyhow::Result<()> {
    let context = || format!("copy {} to {}", library.display(), to.display());
    let stamp = |path: &Path| -> std::io::Result<(u64, SystemTime)> {
        let file = fs::metadata(path)?;
        Ok((file.len(), file.modified()?))
    };
    let original = stamp(library).with_context(context)?;
    if stamp(to).ok() == Some(original) {
        return Ok(());
    }
    // Never overwrite in place: a running agent may have the old file mapped.
    let next = to.with_extension("next");
    fs::copy(library, &next).with_context(context)?;
    let file = fs::File::options().write(true).open(&next).with_context(context)?;
    file.set_modified(original.1).with_context(context)?;
    fs::rename(&next, to).with_context(context)
}

/// Provides a file by hard link on the same file system, otherwise by copy. A hard link of a library
/// is safe because no process opens the CUDA libraries of two nodes.
fn link_or_copy(library: &Path, to: &Path) -> anyhow::Result<()> {
    let next = to.with_extension("next");
    let _ = fs::remove_file(&next);
    if fs::hard_link(library, &next).is_err() {
        return copy_library(library, to);
    }
    // A rename between two names of one file does nothing and leaves the first name.
    let renamed = fs::rename(&next, to);
    let _ = fs::remove_file(&next);
    renamed.with_context(|| format!("name {} {}", library.display(), to.display()))
}

fn placeholder(name: &str) -> String {
    format!("stand-in of a simulated node for {name}\n")
}
