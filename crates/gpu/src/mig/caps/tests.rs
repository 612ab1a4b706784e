use std::fs;

use super::{Capability, CapabilityError, MigCaps, cap_in, caps};

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
    let cap = |minor| Capability { minor, mode: 0o444 };
    assert_eq!(read, MigCaps { gpu_instance: cap(489), compute_instance: cap(490) });
}

#[test]
fn a_missing_instance_is_named_by_its_file() {
    let text = |minor| format!("DeviceFileMinor: {minor}\nDeviceFileMode: 292\n");
    let folder = proc_root(&text(1), &text(2));
    for (minor, gi, ci, file) in [
        (2, 9, 0, "gpu2/mig/gi9/access"),
        (3, 8, 0, "gpu3/mig/gi8/access"),
        (3, 9, 1, "gpu3/mig/gi9/ci1/access"),
    ] {
        let error = caps(folder.path(), minor, gi, ci).unwrap_err();
        assert!(error.to_string().contains(file), "{error}");
        assert!(matches!(error, CapabilityError::Read { .. }));
    }
}

#[test]
fn a_file_without_numbers_is_no_capability() {
    let mode = "DeviceFileMode: 292\n";
    for minor in ["", "DeviceFileMinor:\n", "DeviceFileMinor: -1\n"] {
        let text = format!("{minor}{mode}");
        assert_eq!(cap_in(&text), None, "{text:?}");
        let folder = proc_root("DeviceFileMinor: 5\nDeviceFileMode: 292\n", &text);
        let error = caps(folder.path(), 3, 9, 0).unwrap_err();
        assert!(matches!(&error, CapabilityError::Form { path } if path.ends_with("ci0/access")));
    }
    for mode in ["", "DeviceFileMode: r--\n", "DeviceFileMode: 65536\n"] {
        assert_eq!(cap_in(&format!("DeviceFileMinor: 1\n{mode}")), None, "{mode:?}");
    }
    let text = "Other: 1\n DeviceFileMinor :\t77 \nDeviceFileMode: 256\n";
    assert_eq!(cap_in(text), Some(Capability { minor: 77, mode: 0o400 }));
}
