//! Finds the simulated driver's libraries and programs.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};

/// File name of the management library in cargo's output.
const MANAGEMENT_FILE: &str = "liboctavo_fake_nvml.so";
/// File name of the CUDA library in cargo's output.
const CUDA_FILE: &str = "liboctavo_fake_cuda.so";

/// File names of the driver's programs that do something on simulated nodes.
pub(crate) const PROGRAMS: [&str; 2] = ["nvidia-smi", "nvidia-cuda-mps-control"];

/// File name of the program that loads and unloads the driver's modules. Its names on a node are [`KMOD_NAMES`].
pub(crate) const KMOD: &str = "fake-kmod";
/// Names of [`KMOD`] on a node, by which it acts.
pub(crate) const KMOD_NAMES: [&str; 2] = ["modprobe", "rmmod"];

/// File names of the programs of the IMEX service.
pub(crate) const IMEX_PROGRAMS: [&str; 2] = ["nvidia-imex", "nvidia-imex-ctl"];

/// The libraries and programs of a simulated driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DriverLibraries {
    /// `libnvidia-ml.so.1`, loaded by the agent.
    pub(crate) management: PathBuf,
    /// `libcuda.so.1`, loaded by programs in containers.
    pub(crate) cuda: PathBuf,
    /// The folder with the [`PROGRAMS`], [`KMOD`] and the [`IMEX_PROGRAMS`].
    pub(crate) programs: PathBuf,
}

/// Finds the driver libraries. The management library is `named`, or lies beside the `octavo`
/// binary or in `deps/` there. The CUDA library lies beside it, or in the same places.
pub(crate) fn find(named: Option<&Path>, octavo: &Path) -> anyhow::Result<DriverLibraries> {
    let management = match named {
        Some(path) if path.is_file() => {
            std::path::absolute(path).context("make the library's path absolute")?
        }
        Some(path) => bail!("there is no simulated driver library at {}", path.display()),
        None => find_near(octavo, MANAGEMENT_FILE)?,
    };
    let near = |name| find_near(&management, name).or_else(|_| find_near(octavo, name));
    let cuda = near(CUDA_FILE)?;
    let programs = near(PROGRAMS[0])?.parent().map(Path::to_owned).unwrap_or_default();
    Ok(DriverLibraries { management, cuda, programs })
}

/// Finds a library beside a file, or in the `deps` folder there.
fn find_near(file: &Path, name: &str) -> anyhow::Result<PathBuf> {
    let folder = file.parent().unwrap_or(Path::new("/"));
    // Test binaries are in `deps` themselves; the binary under test is one folder above.
    for candidate in [folder.join(name), folder.join("deps").join(name)] {
        if candidate.is_file() {
            return Ok(candidate);
        }
    }
    bail!(
        "no {name} beside {}: the simulated nodes need it; run `cargo build` in Octavo's \
         repository, or name the folder's {MANAGEMENT_FILE} with --fake-driver or OCTAVO_FAKE_DRIVER",
        file.display()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_libraries_are_found_beside_the_binary_and_below_it() {
        let folder = tempfile::tempdir().unwrap();
        let octavo = folder.path().join("octavo");
        let message = find(None, &octavo).unwrap_err().to_string();
        assert!(message.contains("cargo build"), "{message}");
        std::fs::create_dir(folder.path().join("deps")).unwrap();
        let below = folder.path().join("deps").join(MANAGEMENT_FILE);
        std::fs::write(&below, "").unwrap();
        let message = find(None, &octavo).unwrap_err().to_string();
        assert!(message.contains(CUDA_FILE), "{message}");
        let cuda = folder.path().join(CUDA_FILE);
        std::fs::write(&cuda, "").unwrap();
        let message = find(None, &octavo).unwrap_err().to_string();
        assert!(message.contains(PROGRAMS[0]), "{message}");
        std::fs::write(folder.path().join(PROGRAMS[0]), "").unwrap();
        let found = find(None, &octavo).unwrap();
        let programs = folder.path().to_owned();
        assert_eq!(found, DriverLibraries { management: below.clone(), cuda, programs });
        let beside = folder.path().join(MANAGEMENT_FILE);
        std::fs::write(&beside, "").unwrap();
        assert_eq!(find(None, &octavo).unwrap().management, beside);
        assert_eq!(find(Some(&below), &octavo).unwrap().management, below);
        assert!(find(Some(Path::new("/no/such.so")), &octavo).is_err());
    }
}
