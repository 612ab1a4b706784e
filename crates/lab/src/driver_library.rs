//! Finding the simulated driver library that the nodes get.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};

/// File name of the library as cargo builds it.
const NAME: &str = "liboctavo_fake_driver.so";

/// The library that is named, else the one beside the `octavo` binary or in `deps/` there.
pub(crate) fn find(named: Option<&Path>, octavo: &Path) -> anyhow::Result<PathBuf> {
    if let Some(path) = named {
        if !path.is_file() {
            bail!("there is no simulated driver library at {}", path.display());
        }
        return std::path::absolute(path).context("make the library's path absolute");
    }
    let folder = octavo.parent().unwrap_or(Path::new("/"));
    // Tests lie in `deps` themselves, the binary that they test one above.
    for candidate in [folder.join(NAME), folder.join("deps").join(NAME)] {
        if candidate.is_file() {
            return Ok(candidate);
        }
    }
    bail!(
        "no {NAME} beside {}: the simulated nodes need it; run `cargo build` in Octavo's \
         repository, or name it with --fake-driver or OCTAVO_FAKE_DRIVER",
        octavo.display()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_is_found_beside_the_binary_and_below_it() {
        let folder = tempfile::tempdir().unwrap();
        let octavo = folder.path().join("octavo");
        let message = find(None, &octavo).unwrap_err().to_string();
        assert!(message.contains("cargo build"), "{message}");
        std::fs::create_dir(folder.path().join("deps")).unwrap();
        let below = folder.path().join("deps").join(NAME);
        std::fs::write(&below, "").unwrap();
        assert_eq!(find(None, &octavo).unwrap(), below);
        let beside = folder.path().join(NAME);
        std::fs::write(&beside, "").unwrap();
        assert_eq!(find(None, &octavo).unwrap(), beside);
        assert_eq!(find(Some(&below), &octavo).unwrap(), below);
        assert!(find(Some(Path::new("/no/such.so")), &octavo).is_err());
    }
}
