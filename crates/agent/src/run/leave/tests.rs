use super::*;
use crate::config::NodeFile;

#[test]
fn only_files_of_the_agent_go() {
    let folder = tempfile::tempdir().unwrap();
    let at = |path: &str| folder.path().join(path);
    let file = NodeFile {
        node_name: Some("node".to_owned()),
        kubelet_root: Some(at("kubelet")),
        cdi_root: Some(at("cdi")),
        run_root: Some(at("run")),
        hook_dir: Some(at("bin")),
        ..NodeFile::default()
    };
    let config = file.complete().unwrap();
    let ours = [
        "kubelet/plugins/gpu.nvidia.com/checkpoint/.lock",
        "kubelet/plugins/gpu.nvidia.com/checkpoint.json.adopted",
        "run/octavo/guard/digest/libcuda.so.1",
        "cdi/k8s.device-plugin.nvidia.com-gpu.json",
        "bin/octavo-cdi-hook",
    ];
    let others = [
        "kubelet/plugins/other.example.com/state",
        "run/nvidia/validations/driver-ready",
        "cdi/nvidia.yaml",
        "cdi/k8s.device-plugin.nvidia.community.json",
        "bin/other",
    ];
    for path in ours.iter().chain(&others) {
        fs::create_dir_all(at(path).parent().unwrap()).unwrap();
        fs::write(at(path), "").unwrap();
    }
    remove_files(&config);
    assert!(entries(&at("kubelet/plugins/gpu.nvidia.com")).is_empty());
    assert!(entries(&at("run/octavo")).is_empty());
    for path in ours {
        assert!(!at(path).exists(), "{path}");
    }
    for path in others {
        assert!(at(path).exists(), "{path}");
    }
    // Nothing is left to do.
    remove_files(&config);
}
