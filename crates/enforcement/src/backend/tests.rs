use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

use octavo_testkit::{simulated_cuda, simulated_nvml};
use tempfile::TempDir;

use super::*;

fn node() -> (TempDir, NodePaths) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let at = |path: &str| folder.path().join(path);
    fs::create_dir_all(at("driver/usr/lib64")).expect("makes");
    for (from, name) in
        [(simulated_cuda(), "libcuda.so.580"), (simulated_nvml(), "libnvidia-ml.so.580")]
    {
        fs::copy(from, at("driver/usr/lib64").join(name)).expect("copies");
    }
    let paths = NodePaths {
        driver_root: "/driver".into(),
        driver_root_seen: at("driver"),
        proc_root: at("proc"),
        sys_root: at("sys"),
        cgroup_root: at("sys/fs/cgroup"),
        kubelet_root: at("kubelet"),
        device_plugin_root: at("kubelet/device-plugins"),
        cdi_root: at("cdi"),
        run_root: at("run"),
        hook_path: "/octavo".into(),
        share_tmpfs: false,
        mounts: Vec::new(),
    };
    (folder, paths)
}

fn make(paths: &NodePaths) -> Result<GuardBackend, String> {
    GuardBackend::make(paths, &DriverFiles::discover(&paths.driver_root_seen, "580"))
}

/// The folders of guards, each with its files.
fn guards(paths: &NodePaths) -> Vec<PathBuf> {
    let folder = paths.run_root.join("octavo/guard");
    let entries = fs::read_dir(folder).into_iter().flatten();
    let mut guards: Vec<_> = entries.map(|entry| entry.expect("reads").path()).collect();
    guards.sort();
    guards
}

#[test]
fn a_driver_has_one_guard_and_another_driver_another() {
    let (_folder, paths) = node();
    make(&paths).expect("is made");
    let [first] = guards(&paths).try_into().expect("one guard");
    let inode = || fs::metadata(first.join("libcuda.so.1")).expect("is there").ino();
    let before = inode();
    make(&paths).expect("is made");
    assert_eq!(
        (guards(&paths), inode()),
        (vec![first.clone()], before),
        "nothing is written twice"
    );
    for file in ["liboctavo_guard.so", "libcuda.so.1", "libnvidia-ml.so.1"] {
        let rights = fs::metadata(first.join(file)).expect("is there").permissions().mode();
        assert_eq!(rights & 0o777, 0o555, "{file}");
    }
    // The proxy of one library is not that of the other: NVML's of another driver.
    let library = paths.driver_root_seen.join("usr/lib64/libnvidia-ml.so.580");
    fs::rename(&library, library.with_extension("581")).expect("renames");
    let files = DriverFiles {
        mounts: ["cuda.so.580", "nvidia-ml.so.581"]
            .map(|n| format!("/usr/lib64/lib{n}").into())
            .into(),
        ..DriverFiles::default()
    };
    GuardBackend::make(&paths, &files).expect("is made");
    assert_eq!(guards(&paths).len(), 2, "containers of the first driver keep theirs");
}

#[test]
fn a_damaged_guard_is_made_whole() {
    let (_folder, paths) = node();
    let backend = make(&paths).expect("is made");
    let [folder] = guards(&paths).try_into().expect("one guard");
    let path = folder.join("libcuda.so.1");
    let whole = fs::read(&path).expect("reads");
    fs::remove_file(&path).expect("removes");
    fs::write(&path, "x").expect("writes");
    fs::remove_file(folder.join("liboctavo_guard.so")).expect("removes");
    backend.ensure().expect("writes");
    assert_eq!(fs::read(&path).expect("reads"), whole);
    assert_eq!(fs::read_dir(&folder).expect("reads").count(), 3);
}

#[test]
fn a_library_for_another_processor_is_passed_over() {
    let (_folder, paths) = node();
    let other = paths.driver_root_seen.join("usr/lib");
    fs::create_dir_all(&other).expect("makes");
    fs::write(other.join("libcuda.so.580"), "\x7fELF of 32 bits").expect("writes");
    let libraries = ["lib/libcuda.so.580", "lib64/libcuda.so.580", "lib64/libnvidia-ml.so.580"];
    let files = DriverFiles {
        mounts: libraries.map(|path| format!("/usr/{path}").into()).into(),
        ..DriverFiles::default()
    };
    let backend = GuardBackend::make(&paths, &files).expect("is made");
    let share = EnforcedShare {
        gpu_uuid: "GPU-1",
        memory_bytes: 1,
        folder: "/run/octavo/shares/u_s".into(),
        folder_in_container: "/run/octavo/shares/u_s".into(),
    };
    let edits = backend.edits(&paths, &share);
    let real =
        edits.mounts.iter().filter(|mount| mount.container_path.starts_with("/run/octavo/real"));
    let real: Vec<_> = real.map(|mount| mount.host_path.as_str()).collect();
    let expected = ["/driver/usr/lib64/libcuda.so.580", "/driver/usr/lib64/libnvidia-ml.so.580"];
    assert_eq!(real, expected);
}

#[test]
fn a_driver_without_a_library_or_with_a_broken_one_says_so() {
    let (_folder, paths) = node();
    let library = paths.driver_root_seen.join("usr/lib64/libnvidia-ml.so.580");
    fs::write(&library, "no library").expect("writes");
    let problem = make(&paths).expect_err("is broken");
    assert!(problem.contains("libnvidia-ml.so.580"), "{problem}");
    fs::remove_file(&library).expect("removes");
    let problem = make(&paths).expect_err("is missing");
    assert!(problem.contains("has no libnvidia-ml.so.1"), "{problem}");
    assert_eq!(guards(&paths), [""; 0].map(PathBuf::from), "nothing is made in part");
}
