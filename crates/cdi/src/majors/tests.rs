use octavo_gpu::CharDevices;

use super::{Majors, MissingModule};

fn majors(lines: &[&str]) -> Result<Majors, MissingModule> {
    Majors::of(&CharDevices::parse(&format!("Character devices:\n{}\n", lines.join("\n"))))
}

fn numbers(majors: Majors) -> Vec<(String, u32, u32)> {
    let nodes = majors.common_nodes().into_iter().chain([majors.gpu_node(3)]);
    nodes.map(|node| (node.path, node.major, node.minor)).collect()
}

#[test]
fn drivers_of_all_names_have_their_numbers() {
    let new = majors(&["195 nvidia", "195 nvidia-modeset", "195 nvidiactl", "511 nvidia-uvm"]);
    let old = majors(&["195 nvidia-frontend", "511 nvidia-uvm"]);
    let node = |path: &str, major, minor| (path.to_owned(), major, minor);
    let expected = [
        node("/dev/nvidiactl", 195, 255),
        node("/dev/nvidia-uvm", 511, 0),
        node("/dev/nvidia-uvm-tools", 511, 1),
        node("/dev/nvidia-modeset", 195, 254),
        node("/dev/nvidia3", 195, 3),
    ];
    assert_eq!(numbers(new.unwrap()), expected);
    assert_eq!(numbers(old.unwrap()), expected);
    let without = majors(&["195 nvidia", "511 nvidia-uvm"]).unwrap();
    assert!(!numbers(without).iter().any(|(path, ..)| path == "/dev/nvidia-modeset"));
}

#[test]
fn a_missing_module_is_named() {
    let missing = |device, module| MissingModule { device, module };
    assert_eq!(majors(&["511 nvidia-uvm"]), Err(missing("nvidia", "nvidia")));
    assert_eq!(majors(&["195 nvidia"]), Err(missing("nvidia-uvm", "nvidia-uvm")));
    let without_caps = majors(&["195 nvidia", "511 nvidia-uvm"]).unwrap();
    assert_eq!(without_caps.cap_node(4, 0o444), Err(missing("nvidia-caps", "nvidia")));
    let with_caps = majors(&["195 nvidia", "511 nvidia-uvm", "236 nvidia-caps"]).unwrap();
    let node = with_caps.cap_node(4, 0o444).unwrap();
    assert_eq!((node.major, node.minor, node.file_mode), (236, 4, 0o444));
    assert_eq!(node.path, "/dev/nvidia-caps/nvidia-cap4");
}
