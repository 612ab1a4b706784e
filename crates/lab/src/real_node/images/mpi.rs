//! The layer of an image for MPI jobs: Open MPI and OpenSSH as Debian has them, without their manuals.
//!
//! Below it are the layers with a shell and with `octavo`. So `mpirun octavo probe --fabric` runs in it, and
//! `sshd -De` is the program of a worker.

use std::collections::BTreeSet;
use std::fs;
use std::io::Read as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};

use super::{copy, libraries_of, tool};

/// Packages to install, which bring all others.
const PACKAGES: [&str; 3] = ["openmpi-bin", "openssh-client", "openssh-server"];

/// Names of packages with files for the image, as patterns. Names of libraries have versions.
const PATTERNS: [&str; 6] = [
    "openmpi-bin",
    "openmpi-common",
    "libopenmpi*",
    "libpmix*",
    "openssh-client",
    "openssh-server",
];

/// Parts of paths without which programs run.
const LEFT_OUT: [&str; 6] = [
    "/usr/share/doc",
    "/usr/share/man",
    "/usr/share/lintian",
    "/lib/systemd",
    "/usr/lib/systemd",
    "/etc/init.d",
];

/// Files of the image that no package has.
const FILES: [(&str, &str); 5] = [
    ("etc/passwd", "root:x:0:0:root:/root:/bin/sh\nsshd:x:100:65534::/run/sshd:/bin/false\n"),
    ("etc/group", "root:x:0:\nnogroup:x:65534:\n"),
    ("etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files dns\n"),
    (
        "etc/ssh/sshd_config",
        "# Keys come from a Secret, whose files others may read.\n\
         PermitRootLogin prohibit-password\nStrictModes no\nUsePAM no\nUseDNS no\n",
    ),
    (
        "etc/ssh/ssh_config",
        "# Workers have the keys of their image, and names that the next job uses again.\n\
         StrictHostKeyChecking no\nUserKnownHostsFile /dev/null\nLogLevel ERROR\n",
    ),
];

/// The reason why this machine cannot pack the image; `None` if it can.
pub fn mpi_obstacle() -> Option<String> {
    check().err().map(|error| format!("{error:#}"))
}

/// Rejects a machine without the packages.
pub(crate) fn check() -> anyhow::Result<()> {
    let missing: Vec<&str> =
        PACKAGES.into_iter().filter(|package| installed(&[package]).is_empty()).collect();
    if missing.is_empty() {
        return Ok(());
    }
    bail!(
        "the image for MPI jobs is packed from Debian's packages, and this machine lacks some: install with `apt-get \
         install --no-install-recommends {}`",
        missing.join(" ")
    )
}

/// Fills the root file system.
pub(super) fn fill(root: &Path) -> anyhow::Result<()> {
    let mut programs = Vec::new();
    for package in installed(&PATTERNS) {
        for path in tool::run("dpkg-query", &["-L", &package])?.lines().map(Path::new) {
            if is_wanted(path) && add(root, path)? {
                programs.push(path.to_owned());
            }
        }
    }
    for name in ["mpirun", "mpiexec"] {
        // On Debian an alternative, which belongs to no package.
        symlink("orterun", root.join("usr/bin").join(name))
            .with_context(|| format!("link {name} in an image"))?;
    }
    let programs: Vec<&Path> = programs.iter().map(PathBuf::as_path).collect();
    for library in libraries_of(&programs)? {
        let to = root.join(library.strip_prefix("/").unwrap_or(&library));
        if !to.exists() {
            copy(&library, &to)?;
        }
    }
    for (file, text) in FILES {
        let path = root.join(file);
        let folder = path.parent().unwrap_or(root);
        fs::create_dir_all(folder)
            .and_then(|()| fs::write(&path, text))
            .with_context(|| format!("write {}", path.display()))?;
    }
    fs::create_dir_all(root.join("run/sshd")).context("make sshd's folder in an image")?;
    tool::run("ssh-keygen", &["-A", "-f", &root.to_string_lossy()]).map(drop)
}

/// Packages that are installed, of those with these names.
fn installed(patterns: &[&str]) -> BTreeSet<String> {
    let form = ["-W", "-f", "${binary:Package} ${db:Status-Status}\n"];
    // It fails if one pattern has no package, and lists those of the others.
    let output = tool::command("dpkg-query").args(form).args(patterns).output();
    let stdout = output.map(|output| output.stdout).unwrap_or_default();
    parse_installed(&String::from_utf8_lossy(&stdout))
}

fn parse_installed(text: &str) -> BTreeSet<String> {
    let names = text.lines().filter_map(|line| line.strip_suffix(" installed"));
    names.filter(|name| !name.contains("-dev")).map(str::to_owned).collect()
}

fn is_wanted(path: &Path) -> bool {
    !LEFT_OUT.iter().any(|folder| path.starts_with(folder))
}

/// Adds a file of this machine, and returns whether it is a program or library.
fn add(root: &Path, path: &Path) -> anyhow::Result<bool> {
    let to = root.join(path.strip_prefix("/").unwrap_or(path));
    let context = || format!("copy {} to an image", path.display());
    let Ok(meta) = fs::symlink_metadata(path) else {
        // The administrator removed a file of the package.
        return Ok(false);
    };
    if meta.is_dir() {
        fs::create_dir_all(&to).with_context(context)?;
    } else if meta.is_symlink() {
        let target = fs::read_link(path).with_context(context)?;
        symlink(target, &to).with_context(context)?;
    } else {
        copy(path, &to)?;
        // No set-uid programs, and no writable ones.
        let mode = meta.permissions().mode() & 0o755;
        fs::set_permissions(&to, fs::Permissions::from_mode(mode)).with_context(context)?;
        return is_elf(path).with_context(context);
    }
    Ok(false)
}

fn is_elf(path: &Path) -> std::io::Result<bool> {
    let mut start = Vec::new();
    fs::File::open(path)?.take(4).read_to_end(&mut start)?;
    Ok(start == b"\x7fELF")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn removed_packages_and_those_for_developers_are_left_out() {
        let text = "libopenmpi3:amd64 installed\nlibopenmpi-dev:amd64 installed\n\
                    libpmix2:amd64 config-files\nopenmpi-bin installed\n";
        let expected = ["libopenmpi3:amd64", "openmpi-bin"].map(str::to_owned);
        assert_eq!(parse_installed(text), BTreeSet::from(expected));
        assert!(is_wanted(Path::new("/usr/share/openmpi/help-hostfile.txt")));
        assert!(!is_wanted(Path::new("/usr/share/doc/openmpi-bin/README")));
    }
}
