use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use octavo_hook::ldcache::{Library, format};
use tempfile::TempDir;

use super::*;

/// A node's folder with files at some paths.
fn node(files: &[&str]) -> TempDir {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for file in files {
        let path = folder.path().join(file);
        fs::create_dir_all(path.parent().expect("has a parent")).expect("makes");
        fs::write(path, "").expect("writes");
    }
    folder
}

fn strings(paths: &[PathBuf]) -> Vec<&str> {
    paths.iter().map(|path| path.to_str().expect("text")).collect()
}

#[test]
fn the_driver_files_of_its_version_are_found_once() {
    let node = node(&[
        "driver/usr/lib64/libcuda.so.580.95.05",
        "driver/usr/lib64/libcuda.so.570.1",
        "driver/usr/lib64/libnvidia-ml.so.580.95.05",
        "driver/usr/lib64/libc.so.6",
        "driver/usr/lib64/vdpau/libvdpau_nvidia.so.580.95.05",
        "driver/opt/nv/libnvidia-ptxjitcompiler.so.580.95.05",
        "driver/usr/bin/nvidia-smi",
        "driver/lib/firmware/nvidia/580.95.05/gsp_ga10x.bin",
        "driver/lib/firmware/nvidia/580.95.05/readme",
        "driver/etc/vulkan/icd.d/nvidia_icd.json",
        "driver/etc/OpenCL/vendors/nvidia.icd",
        "driver/usr/lib64/libnvidia-allocator.so.580.95.05",
        "driver/usr/lib64/libnvidia-egl-gbm.so.1.1.2",
        "driver/usr/lib64/libnvidia-eglcore.so.570.1",
        "driver/usr/lib64/gbm/dri_gbm.so",
        "driver/usr/lib64/xorg/modules/drivers/nvidia_drv.so",
        "driver/usr/lib64/xorg/modules/drivers/modesetting_drv.so",
        "driver/usr/lib64/xorg/modules/extensions/libglxserver_nvidia.so.580.95.05",
    ]);
    let at = |path: &str| node.path().join("driver").join(path);
    symlink("../libnvidia-allocator.so.1", at("usr/lib64/gbm/nvidia-drm_gbm.so")).expect("links");
    let glx = "libglxserver_nvidia.so.580.95.05";
    let link = at("usr/lib64/xorg/modules/extensions/libglxserver_nvidia.so");
    symlink(glx, link).expect("links");
    symlink("libcuda.so.580.95.05", at("usr/lib64/libcuda.so.1")).expect("links");
    symlink("libcuda.so.1", at("usr/lib64/libcuda.so")).expect("links");
    symlink("libcuda.so.570.1", at("usr/lib64/libcuda.so.old")).expect("links");
    symlink("libloop.so", at("usr/lib64/libloop.so")).expect("links");
    symlink("/usr/lib64", at("lib64")).expect("links");
    let cache = format(&[Library {
        flags: 0x303,
        name: "libnvidia-ptxjitcompiler.so.1".to_owned(),
        path: "/opt/nv/libnvidia-ptxjitcompiler.so.1".to_owned(),
        hwcap: 0,
    }]);
    fs::create_dir_all(at("etc")).expect("makes");
    fs::write(at("etc/ld.so.cache"), cache.expect("fits")).expect("writes");

    let files = DriverFiles::discover(&at(""), "580.95.05");
    assert_eq!(
        strings(&files.mounts),
        [
            "/opt/nv/libnvidia-ptxjitcompiler.so.580.95.05",
            "/usr/lib64/libcuda.so.580.95.05",
            "/usr/lib64/libnvidia-allocator.so.580.95.05",
            "/usr/lib64/libnvidia-egl-gbm.so.1.1.2",
            "/usr/lib64/libnvidia-ml.so.580.95.05",
            "/usr/lib64/vdpau/libvdpau_nvidia.so.580.95.05",
            "/lib/firmware/nvidia/580.95.05/gsp_ga10x.bin",
            "/usr/bin/nvidia-smi",
            "/etc/OpenCL/vendors/nvidia.icd",
            "/etc/vulkan/icd.d/nvidia_icd.json",
            "/usr/lib64/xorg/modules/drivers/nvidia_drv.so",
            "/usr/lib64/xorg/modules/extensions/libglxserver_nvidia.so.580.95.05",
        ]
    );
    let link = |target: &str, link: &str| (target.to_owned(), link.to_owned());
    assert_eq!(
        files.links,
        [
            link("libcuda.so.1", "/usr/lib64/libcuda.so"),
            link("libcuda.so.580.95.05", "/usr/lib64/libcuda.so.1"),
            link("../libnvidia-allocator.so.1", "/usr/lib64/gbm/nvidia-drm_gbm.so"),
            link(glx, "/usr/lib64/xorg/modules/extensions/libglxserver_nvidia.so"),
        ]
    );
    assert_eq!(strings(&files.library_folders), ["/opt/nv", "/usr/lib64", "/usr/lib64/vdpau"]);
    assert_eq!(files.cuda_folder.as_deref(), Some(Path::new("/usr/lib64")));
}

#[test]
fn a_driver_without_versions_in_its_names_is_found_and_none_is_none() {
    let node = node(&["driver/usr/lib64/libnvidia-ml.so.1"]);
    let files = DriverFiles::discover(&node.path().join("driver"), "580.95.05");
    assert_eq!(strings(&files.mounts), ["/usr/lib64/libnvidia-ml.so.1"]);
    let files = DriverFiles::discover(&node.path().join("nothing"), "580.95.05");
    assert_eq!(files, DriverFiles::default());
}
