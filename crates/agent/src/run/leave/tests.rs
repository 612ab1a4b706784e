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
        "kubelet/plugins/gpu.nvidia.com/dra-1234.sock",
        "kubelet/plugins/gpu.nvidia.com/health.json",
        "kubelet/plugins/gpu.nvidia.com/health.json.unreadable",
        "kubelet/plugins/gpu.nvidia.com/.health.json.octavo-tmp",
        "kubelet/plugins/gpu.nvidia.com/checkpoint-hooks.json",
        "run/octavo/guard/digest/libcuda.so.1",
        "bin/octavo-cdi-hook",
    ];
    let spec = "cdi/k8s.device-plugin.nvidia.com-gpu.json";
    let others = [
        "kubelet/plugins/other.example.com/state",
        "kubelet/plugins/gpu.nvidia.com/checkpoint.json.adopted",
        "run/nvidia/validations/driver-ready",
        "cdi/nvidia.yaml",
        "cdi/k8s.device-plugin.nvidia.community.json",
        "bin/other",
    ];
    for path in ours.iter().chain(&others).chain([&spec]) {
        fs::create_dir_all(at(path).parent().unwrap()).unwrap();
        fs::write(at(path), "").unwrap();
    }
    remove_files(&config);
    assert!(at(spec).exists(), "it may be of another plugin by now");
    remove_plugin_specs(&config);
    assert!(!at(spec).exists());
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
