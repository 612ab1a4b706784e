use std::os::unix::fs::symlink;
use std::path::PathBuf;

use super::*;

const UID: &str = "u-1";

/// A kubelet's root, and the volume `control` of a pod in it.
fn kubelet() -> (tempfile::TempDir, PathBuf) {
    let root = tempfile::tempdir().unwrap();
    let volume = root.path().join("pods/u-1/volumes/kubernetes.io~empty-dir/control");
    std::fs::create_dir_all(&volume).unwrap();
    (root, volume)
}

fn file(path: &str) -> FileRequest {
    FileRequest { volume: "control".to_owned(), path: path.to_owned() }
}

#[test]
fn a_file_is_made_once_and_its_removal_is_seen() {
    let (root, volume) = kubelet();
    std::fs::create_dir(volume.join("deep")).unwrap();
    for path in ["save", "deep/save"] {
        let found = ControlFile::find(root.path(), UID, &file(path)).unwrap();
        assert!(!found.is_there());
        found.make().unwrap();
        assert!(found.is_there() && volume.join(path).is_file());
        assert!(matches!(found.make(), Err(FileError::Exists(_))));
        std::fs::remove_file(volume.join(path)).unwrap();
        assert!(!found.is_there());
        found.make().unwrap();
        found.remove();
        found.remove();
        assert!(!volume.join(path).exists());
    }
}

#[test]
fn links_of_a_hostile_pod_lead_nowhere() {
    let (root, volume) = kubelet();
    let outside = root.path().join("outside");
    std::fs::create_dir(&outside).unwrap();
    std::fs::write(outside.join("kept"), "").unwrap();
    symlink(&outside, volume.join("folder")).unwrap();
    symlink("../../../../../outside", volume.join("relative")).unwrap();
    symlink(outside.join("made"), volume.join("save")).unwrap();
    symlink(outside.join("kept"), volume.join("kept")).unwrap();
    for path in ["folder/save", "relative/save"] {
        let error = ControlFile::find(root.path(), UID, &file(path)).unwrap_err().to_string();
        assert!(error.contains("symbolic link"), "{error}");
    }
    // The link itself has the name, and is what is removed.
    let found = ControlFile::find(root.path(), UID, &file("save")).unwrap();
    assert!(matches!(found.make(), Err(FileError::Exists(_))));
    ControlFile::find(root.path(), UID, &file("kept")).unwrap().remove();
    assert!(outside.join("kept").exists() && !outside.join("made").exists());
    assert!(!volume.join("kept").is_symlink());
}

#[test]
fn a_volume_that_is_a_link_or_missing_is_none() {
    let (root, volume) = kubelet();
    let another = FileRequest { volume: "another".to_owned(), path: "save".to_owned() };
    symlink(root.path(), volume.with_file_name("another")).unwrap();
    let error = ControlFile::find(root.path(), UID, &another).unwrap_err();
    assert!(matches!(error, FileError::NoVolume(_)), "{error}");
    let error = ControlFile::find(root.path(), "u-2", &file("save")).unwrap_err();
    assert!(matches!(error, FileError::NoVolume(_)), "{error}");
    let error = ControlFile::find(root.path(), UID, &file("deep/save")).unwrap_err();
    assert!(matches!(error, FileError::Io { .. }), "{error}");
}
