use std::fs;
use std::os::unix::fs::symlink;

use std::time::Duration;

use octavo_gpu::NetworkPort;
use octavo_testkit::eventually;
use rustix::fs::{CWD, Mode, mkfifoat};

use super::super::tests::monitor;
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

#[tokio::test]
async fn a_card_that_hangs_is_waited_for_by_one_thread() {
    let sys = tempfile::tempdir().unwrap();
    card(sys.path(), "mlx5_0", "pci0000:15/0000:15:01.0/0000:18:00.0");
    let inventory = inventory(1);
    device(sys.path(), &format!("pci0000:15/0000:15:01.0/{}", inventory.gpus[0].pci));
    // A reader waits until something is written.
    let state = sys.path().join("class/infiniband/mlx5_0/ports/1/state");
    fs::remove_file(&state).unwrap();
    mkfifoat(CWD, &state, Mode::RUSR | Mode::WUSR).unwrap();
    let mut monitor = monitor();
    monitor.sys_root = Some(sys.path().to_owned());
    monitor.adopt(inventory);
    monitor.look_at_nics();
    let first = monitor.card_looks.thread.as_ref().unwrap().thread().id();
    assert!(!monitor.card_looks.has_failed);
    monitor.look_at_nics();
    assert_eq!(monitor.card_looks.thread.as_ref().unwrap().thread().id(), first);
    assert!(monitor.card_looks.has_failed);

    fs::write(&state, "4: ACTIVE\n").unwrap();
    let receive = |monitor: &Monitor| {
        let message = monitor.requests.inbox.recv_timeout(Duration::from_mins(1)).unwrap();
        let Message::Health(HealthMessage::Nics(number, found)) = message else {
            panic!("no look")
        };
        (number, found)
    };
    let (number, found) = receive(&monitor);
    assert!(found.as_ref().unwrap()[0].ports[&1].as_ref().unwrap().is_active);
    monitor.take_nics(number, found);
    assert!(monitor.card_looks.has_failed, "it began long ago");
    let thread = monitor.card_looks.thread.as_ref().unwrap();
    eventually("the look has ended", || thread.is_finished()).await;
    fs::remove_file(&state).unwrap();
    fs::write(&state, "4: ACTIVE\n").unwrap();
    monitor.look_at_nics();
    let (number, found) = receive(&monitor);
    monitor.take_nics(number, found);
    assert!(!monitor.card_looks.has_failed);
}
