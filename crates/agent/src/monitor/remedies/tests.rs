use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::sync::Arc;

use octavo_gpu::DriverError;
use octavo_health::policy::{Mode, Policy, Test};
use octavo_health::signal::{Attempt, LinkSeverity};
use octavo_health::state::Rules;
use octavo_testkit::eventually;
use prometheus_client::registry::Registry;
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::reboot::tests::{program, rebooter};
use super::*;
use crate::health::{NodeHealth, Orders, Permit, RecordFile};
use crate::metrics::Metrics;
use crate::monitor::{HealthInputs, MonitorRequests, Opener, Snapshot, Waker, start};
use crate::testing::{self, TestDriver, lost, uuid};

/// Longer than anything here takes.
const TIMEOUT: Duration = Duration::from_mins(1);

fn record(folder: &tempfile::TempDir) -> RecordFile {
    RecordFile::new(folder.path().join("health.json"))
}

/// An agent's thread on a node that a rebooter reboots.
fn agent(
    folder: &tempfile::TempDir,
    open: Opener,
    rebooter: Rebooter,
) -> (watch::Receiver<Snapshot>, Waker, DropGuard) {
    let inputs = HealthInputs {
        record: Some(record(folder)),
        boot_id: "boot".to_owned(),
        rebooter,
        ..HealthInputs::default()
    };
    agent_with(inputs, open)
}

fn agent_with(inputs: HealthInputs, open: Opener) -> (watch::Receiver<Snapshot>, Waker, DropGuard) {
    agent_counted(inputs, open, &mut Registry::default())
}

fn agent_counted(
    inputs: HealthInputs,
    open: Opener,
    registry: &mut Registry,
) -> (watch::Receiver<Snapshot>, Waker, DropGuard) {
    let stop = CancellationToken::new();
    let (requests, waker) = MonitorRequests::new(watch::channel(Some(false)).1);
    let metrics = Arc::new(Metrics::new(registry));
    let modules = Box::new(|| None);
    let snapshots = start("node", open, modules, requests, inputs, metrics, stop.clone()).unwrap();
    (snapshots, waker, stop.drop_guard())
}

/// What opens no driver.
fn no_driver() -> DriverError {
    let (path, reason) = ("libnvidia-ml.so.1".to_owned(), "not there".to_owned());
    DriverError::Load { path, reason }
}

/// Orders that permit the reboot for the first GPU.
fn permitted(rules: Rules) -> Orders {
    let permit = Permit { after: Attempt(0), remedy: Remedy::Reboot, since: u64::MAX };
    let policy = Policy { mode: Mode::Act, rules, ..Policy::default() };
    Orders { policy, permits: [(uuid(0), permit)].into(), ..Orders::default() }
}

async fn assert_rebooted(child: &mut std::process::Child) {
    let mut ended = None;
    eventually("systemd is asked", || {
        ended = child.try_wait().unwrap();
        ended.is_some()
    })
    .await;
    assert_eq!(ended.unwrap().signal(), Some(rustix::process::Signal::INT.as_raw()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_hangs_in_the_driver_is_in_no_reboot_s_way() {
    let folder = tempfile::tempdir().unwrap();
    let (_program, mut child) = program("systemd");
    let driver = TestDriver::new(1);
    driver.set_health(0, Err(lost()));
    let opened = driver.clone();
    let open: Opener = Box::new(move || Ok(Arc::new(opened.clone())));
    let (mut snapshots, waker, _stop) = agent(&folder, open, rebooter(&child));
    waker.serve().await;
    let snapshot = timeout(TIMEOUT, snapshots.wait_for(|found| found.driver.get().is_some()));
    let hanging = snapshot.await.unwrap().unwrap().driver.get().unwrap();
    // This driver does not say which processes a lost GPU has.
    waker.set_orders(permitted(Rules { stuck: 0, ..Rules::default() }));
    assert_rebooted(&mut child).await;
    drop(hanging);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_driver_that_cannot_be_opened_is_in_no_reboot_s_way() {
    let folder = tempfile::tempdir().unwrap();
    let mut health = NodeHealth::open(Some(record(&folder)), "boot");
    health.set_gpus(&testing::inventory(3), 0);
    for (gpu, xid) in [(0, 79), (1, 48)] {
        health.xid(&uuid(gpu), xid, LinkSeverity::Unknown, 1);
    }
    health.decide(1, |_| true);
    assert!(health.store());

    let (_program, mut child) = program("systemd");
    let open: Opener = Box::new(|| Err(no_driver()));
    let (mut snapshots, waker, _stop) = agent(&folder, open, rebooter(&child));
    timeout(TIMEOUT, waker.serve()).await.unwrap();
    let states = |snapshot: &Snapshot| -> Vec<String> {
        snapshot.devices.iter().map(|device| device.state.clone()).collect()
    };
    let shown = timeout(TIMEOUT, snapshots.wait_for(|found| found.is_driver_gone));
    assert_eq!(states(&shown.await.unwrap().unwrap()), ["Fenced", "Fenced", "Healthy"]);

    // A pod has the third GPU.
    waker.set_orders(Orders { held: [uuid(2)].into(), ..permitted(Rules::default()) });
    // The decision takes no new pods there, and begins nothing.
    let waiting = snapshots.wait_for(|found| states(found) == ["Fenced", "Fenced", "Suspect"]);
    timeout(TIMEOUT, waiting).await.unwrap().unwrap();
    assert_eq!(child.try_wait().unwrap(), None);
    waker.set_orders(permitted(Rules::default()));
    assert_rebooted(&mut child).await;
    let begun = snapshots.wait_for(|found| states(found)[0] == "Resetting");
    timeout(TIMEOUT, begun).await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_that_gets_the_node_loads_the_driver_that_a_dead_one_unloaded() {
    let folder = tempfile::tempdir().unwrap();
    let (programs, loaded) = (folder.path().join("usr/bin"), folder.path().join("loaded"));
    fs::create_dir_all(&programs).unwrap();
    let modprobe = programs.join("modprobe");
    fs::write(&modprobe, format!("#!/bin/sh\necho $1 >> {}\n", loaded.display())).unwrap();
    fs::set_permissions(&modprobe, fs::Permissions::from_mode(0o755)).unwrap();
    let note = folder.path().join("note.json");
    fs::write(&note, r#"{"services": [], "modules": ["nvidia_uvm", "nvidia"]}"#).unwrap();

    let (driver, list) = (TestDriver::new(1), loaded.clone());
    let open: Opener = Box::new(move || {
        let text = fs::read_to_string(&list).unwrap_or_default();
        if text == "nvidia\nnvidia_uvm\n" { Ok(Arc::new(driver.clone())) } else { Err(no_driver()) }
    });
    let inputs = HealthInputs {
        driver_root: folder.path().to_owned(),
        reloader: Reloader { note, ..Reloader::default() },
        ..HealthInputs::default()
    };
    let (mut snapshots, waker, _stop) = agent_with(inputs, open);
    // One that stands by leaves it alone: the agent that has the node may be in the midst of a reload.
    timeout(TIMEOUT, snapshots.wait_for(|found| found.error.is_some())).await.unwrap().unwrap();
    assert!(!loaded.exists());
    timeout(TIMEOUT, waker.serve()).await.unwrap();
    let opened = snapshots.wait_for(|found| found.driver.get().is_some());
    timeout(TIMEOUT, opened).await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_kernel_logs_of_a_reset_is_no_fault_after_it() {
    let folder = tempfile::tempdir().unwrap();
    let (programs, log) = (folder.path().join("usr/bin"), folder.path().join("kern.log"));
    fs::create_dir_all(&programs).unwrap();
    fs::write(&log, "").unwrap();
    let pci = testing::gpu(0).pci.to_string();
    let line = format!("NVRM: Xid (PCI:{}): 119, Timeout", pci.strip_suffix(".0").unwrap());
    let smi = programs.join("nvidia-smi");
    fs::write(&smi, format!("#!/bin/sh\necho '{line}' >> {}\n", log.display())).unwrap();
    fs::set_permissions(&smi, fs::Permissions::from_mode(0o755)).unwrap();

    let driver = TestDriver::new(1);
    driver.set_idle();
    let open: Opener = Box::new(move || Ok(Arc::new(driver.clone())));
    let inputs = HealthInputs {
        record: Some(record(&folder)),
        boot_id: "boot".to_owned(),
        kernel_log: Some(log.clone()),
        driver_root: folder.path().to_owned(),
        ..HealthInputs::default()
    };
    let mut registry = Registry::default();
    let (mut snapshots, waker, _stop) = agent_counted(inputs, open, &mut registry);
    timeout(TIMEOUT, waker.serve()).await.unwrap();
    eventually("the first look is recorded", || {
        let text = fs::read_to_string(folder.path().join("health.json"));
        text.is_ok_and(|text| text.contains("kernelLog"))
    })
    .await;
    let mut file = fs::OpenOptions::new().append(true).open(&log).unwrap();
    writeln!(file, "{}", line.replace("119", "48")).unwrap();
    let shows = |state| move |found: &Snapshot| found.devices.iter().all(|it| it.state == state);
    let fenced = snapshots.wait_for(shows("Fenced"));
    timeout(TIMEOUT, fenced).await.unwrap().unwrap();
    let permit = Permit { after: Attempt(0), remedy: Remedy::ResetFunction, since: u64::MAX };
    let policy = Policy { mode: Mode::Act, test: Test::Driver, ..Policy::default() };
    waker.set_orders(Orders { policy, permits: [(uuid(0), permit)].into(), ..Orders::default() });
    let back = snapshots.wait_for(shows("Probation"));
    timeout(TIMEOUT, back).await.unwrap().unwrap();
    let text = fs::read_to_string(&log).unwrap();
    assert!(text.contains("119"), "{text}");
    let read_to = format!("\"next\":{}", text.len());
    eventually("all of the log is read", || {
        fs::read_to_string(folder.path().join("health.json")).unwrap().contains(&read_to)
    })
    .await;
    let device = snapshots.borrow().devices[0].clone();
    assert_eq!((device.state.as_str(), device.attempt), ("Probation", 1));
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
    for line in [
        r#"octavo_agent_health_remedies_total{node="node",remedy="reset-function",outcome="remedied"} 1"#,
        r#"octavo_agent_health_remedies_total{node="node",remedy="reset-bus",outcome="refused"} 0"#,
        r#"octavo_agent_health_remedy_seconds_count{remedy="reset-function"} 1"#,
        r#"octavo_agent_health_tests_total{node="node",outcome="passed"} 1"#,
        r#"octavo_agent_health_tests_total{node="node",outcome="failed"} 0"#,
    ] {
        assert!(text.contains(line), "{line} in\n{text}");
    }
}
