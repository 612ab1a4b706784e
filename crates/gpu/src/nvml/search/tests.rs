use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use super::{LIBRARY_NAME, find_library};

fn put(root: &Path, folder: &str) {
    let folder = root.join(folder);
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join(LIBRARY_NAME), "").unwrap();
}

#[test]
fn the_library_is_found_in_each_distributions_folder() {
    for folder in ["usr/lib64", "usr/lib/x86_64-linux-gnu", "lib/aarch64-linux-gnu", "usr/lib"] {
        let root = tempfile::tempdir().unwrap();
        put(root.path(), folder);
        let found = find_library(root.path()).unwrap();
        assert_eq!(found, root.path().join(folder).join(LIBRARY_NAME));
    }
}

#[test]
fn links_are_those_of_the_driver_s_root() {
    let root = tempfile::tempdir().unwrap();
    let current = "usr/lib/x86_64-linux-gnu/nvidia/current";
    put(root.path(), current);
    // As Debian's packages have it.
    let alternatives = root.path().join("etc/alternatives");
    fs::create_dir_all(&alternatives).unwrap();
    let target = format!("/{current}/{LIBRARY_NAME}");
    symlink(target, alternatives.join("nvidia--libnvidia-ml.so.1")).unwrap();
    let link = root.path().join("usr/lib/x86_64-linux-gnu").join(LIBRARY_NAME);
    symlink("/etc/alternatives/nvidia--libnvidia-ml.so.1", link).unwrap();
    let expected = root.path().join(current).join(LIBRARY_NAME);
    assert_eq!(find_library(root.path()).unwrap(), expected);

    // A link out of the root leads nowhere, whatever is there.
    let (outside, root) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    put(outside.path(), "lib");
    fs::create_dir_all(root.path().join("usr/lib64")).unwrap();
    let link = root.path().join("usr/lib64").join(LIBRARY_NAME);
    symlink(outside.path().join("lib").join(LIBRARY_NAME), link).unwrap();
    find_library(root.path()).unwrap_err();
}

#[test]
fn a_driver_container_is_named_and_not_taken() {
    let root = tempfile::tempdir().unwrap();
    put(root.path(), "run/nvidia/driver/usr/lib64");
    let message = find_library(root.path()).unwrap_err().to_string();
    let remedy = format!("set the driver root to {}/run/nvidia/driver", root.path().display());
    assert!(message.contains(&remedy), "{message}");
    put(root.path(), "usr/lib");
    assert_eq!(find_library(root.path()).unwrap(), root.path().join("usr/lib").join(LIBRARY_NAME));
}

#[test]
fn a_missing_library_names_the_searched_folders() {
    let root = tempfile::tempdir().unwrap();
    let message = find_library(root.path()).unwrap_err().to_string();
    assert!(message.starts_with("cannot load the driver library libnvidia-ml.so.1: "));
    for part in ["usr/lib64", "install the NVIDIA driver", "set the driver root"] {
        assert!(message.contains(part), "{part} in {message}");
    }
}
