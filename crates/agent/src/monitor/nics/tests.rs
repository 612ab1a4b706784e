use std::fs;
use std::os::unix::fs::symlink;

use octavo_gpu::NetworkPort;

use super::*;
use crate::testing::{inventory, uuid};

/// Places a device in a sysfs. Returns its folder.
fn device(sys_root: &Path, place: &str) -> std::path::PathBuf {
    let folder = sys_root.join("devices").join(place);
    fs::create_dir_all(&folder).unwrap();
    let links = sys_root.join("bus/pci/devices");
    fs::create_dir_all(&links).unwrap();
    let target = Path::new("../../../devices").join(place);
    symlink(target, links.join(folder.file_name().unwrap())).unwrap();
    folder
}

fn card(sys_root: &Path, name: &str, place: &str) {
    let port = device(sys_root, place).join("infiniband").join(name).join("ports/1");
    fs::create_dir_all(port.join("counters")).unwrap();
    fs::write(port.join("state"), "4: ACTIVE\n").unwrap();
    fs::write(port.join("counters/link_downed"), "2\n").unwrap();
    let class = sys_root.join("class/infiniband");
    fs::create_dir_all(&class).unwrap();
    let target = Path::new("../../devices").join(place).join("infiniband").join(name);
    symlink(target, class.join(name)).unwrap();
}

#[test]
fn ports_are_read_of_cards_that_serve_a_gpu() {
    let sys = tempfile::tempdir().unwrap();
    let gpus = inventory(2).gpus;
    let look = || look(sys.path(), &gpus).unwrap();
    assert_eq!(look(), [], "the kernel has no RDMA");
    card(sys.path(), "mlx5_0", "pci0000:15/0000:15:01.0/0000:18:00.0");
    card(sys.path(), "mlx5_1", "pci0000:29/0000:29:01.0/0000:2a:00.0");
    device(sys.path(), &format!("pci0000:15/0000:15:01.0/{}", gpus[0].pci));
    let looks = look();
    let [first, second] = &looks[..] else { panic!("{looks:?}") };
    let port = NetworkPort { is_active: true, downs: Some(2), ..NetworkPort::default() };
    assert_eq!((first.name.as_str(), &first.gpus), ("mlx5_0", &[uuid(0)].into()));
    assert_eq!(first.ports, [(1, Some(port))].into());
    assert_eq!((second.pci.to_string().as_str(), second.ports.len()), ("0000:2a:00.0", 0));
    assert!(second.gpus.is_empty());
    fs::remove_file(sys.path().join("class/infiniband/mlx5_0/ports/1/state")).unwrap();
    assert_eq!(look()[0].ports, [(1, None)].into());
}
