use std::fs;

use super::{MigCaps, MigCapsError, caps, minor_in};

/// A `/proc` with one instance, whose files have the driver's format.
fn proc_root(outer: &str, inner: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let instance = folder.path().join("driver/nvidia/capabilities/gpu3/mig/gi9");
    fs::create_dir_all(instance.join("ci0")).unwrap();
    fs::write(instance.join("access"), outer).unwrap();
    fs::write(instance.join("ci0/access"), inner).unwrap();
    folder
}

#[test]
fn an_instance_has_two_nodes() {
    let text =
        |minor| format!("DeviceFileMinor: {minor}\nDeviceFileMode: 292\nDeviceFileModify: 1\n");
    let folder = proc_root(&text(489), &text(490));
    let read = caps(folder.path(), 3, 9, 0).unwrap();
    assert_eq!(read, MigCaps { gi_minor: 489, ci_minor: 490 });
}

#[test]
fn a_missing_instance_is_named_by_its_file() {
    let folder = proc_root("DeviceFileMinor: 1\n", "DeviceFileMinor: 2\n");
    for (minor, gi, ci, file) in [
        (2, 9, 0, "gpu2/mig/gi9/access"),
        (3, 8, 0, "gpu3/mig/gi8/access"),
        (3, 9, 1, "gpu3/mig/gi9/ci1/access"),
    ] {
        let error = caps(folder.path(), minor, gi, ci).unwrap_err();
        assert!(error.to_string().contains(file), "{error}");
        assert!(matches!(error, MigCapsError::Read { .. }));
    }
}

#[test]
fn a_file_without_a_number_is_no_number() {
    for text in ["", "DeviceFileMode: 292\n", "DeviceFileMinor:\n", "DeviceFileMinor: -1\n"] {
        assert_eq!(minor_in(text), None, "{text:?}");
        let folder = proc_root("DeviceFileMinor: 5\n", text);
        let error = caps(folder.path(), 3, 9, 0).unwrap_err();
        assert!(matches!(&error, MigCapsError::Form { path } if path.ends_with("ci0/access")));
    }
    assert_eq!(minor_in("Other: 1\n DeviceFileMinor :\t77 \n"), Some(77));
}
