use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;

use octavo_gpu::KernelLogPosition;
use octavo_health::policy::Policy;
use octavo_health::signal::Word;
use octavo_health::xid::XidClass;
use octavo_testkit::eventually;
use prometheus_client::registry::Registry;
use tempfile::TempDir;
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::super::{HealthInputs, MonitorRequests, Opener, Snapshot, Waker, start};
use super::*;
use crate::health::{Orders, RecordFile};
use crate::metrics::Metrics;
use crate::testing::{TestDriver, gpu, uuid};

/// Longer than anything here takes.
const TIMEOUT: Duration = Duration::from_mins(1);

fn append(path: &Path, text: &str) {
    let mut file = OpenOptions::new().append(true).create(true).open(path).unwrap();
    file.write_all(text.as_bytes()).unwrap();
}

/// The line of an XID of the GPU with this index.
fn line(index: u32, number: u64) -> String {
    let pci = gpu(index).pci.to_string();
    let pci = pci.strip_suffix(".0").unwrap();
    format!("kernel: NVRM: Xid (PCI:{pci}): {number}, pid='<unknown>', name=<unknown>, text\n")
}

fn look(reader: &mut LogReader, note: Option<&LogNote>) -> Found {
    reader.next_at = Instant::now();
    reader.read("node", note)
}

#[test]
fn the_first_look_and_events_are_noted() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("kern.log");
    append(&path, &line(0, 1));
    let mut reader = LogReader::new(path.clone());
    assert!(reader.is_read(), "as far as is known");
    let first = look(&mut reader, None);
    assert!(reader.is_read() && first.is_first && first.events.is_empty());
    append(&path, "kernel: another line\n");
    let nothing = look(&mut reader, first.note.as_ref());
    assert!(!nothing.is_first && nothing.events.is_empty() && nothing.note != first.note);
    append(&path, "nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 12028, Non-fatal, Link 32 egress\n");
    append(&path, &line(0, 48));
    let news = look(&mut reader, first.note.as_ref());
    assert_eq!(news.events.len(), 2);
    // Another agent.
    let mut later = LogReader::new(path.clone());
    let none = Found { events: Vec::new(), is_first: true, ..news.clone() };
    assert_eq!(look(&mut later, news.note.as_ref()), none);
    let mut earlier = LogReader::new(path);
    let again = look(&mut earlier, first.note.as_ref());
    assert_eq!(again, Found { is_first: true, ..news });
    // The node went to another agent and came back.
    earlier.close();
    assert_eq!(look(&mut earlier, first.note.as_ref()), again);
}

#[test]
fn a_log_that_could_not_be_read_is_read_from_its_end() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("kern.log");
    let note = LogNote::new(&path, KernelLogPosition { file: Some((0, 0)), next: 0 });
    let mut reader = LogReader::new(path.clone());
    assert_eq!(look(&mut reader, Some(&note)), Found::default());
    append(&path, &line(0, 48));
    assert!(look(&mut reader, Some(&note)).events.is_empty());
    append(&path, &line(0, 95));
    assert_eq!(look(&mut reader, Some(&note)).events.len(), 1);
}

/// An agent's thread on a node with two GPUs, a record and a log.
struct Agent {
    snapshots: watch::Receiver<Snapshot>,
    waker: Waker,
    stop: CancellationToken,
}

impl Agent {
    /// One that has the node, and has read the log.
    async fn start(folder: &TempDir) -> Self {
        Self::start_with(folder, TestDriver::new(2), &mut Registry::default()).await
    }

    async fn start_with(folder: &TempDir, driver: TestDriver, registry: &mut Registry) -> Self {
        let stop = CancellationToken::new();
        let (requests, waker) = MonitorRequests::new(watch::channel(Some(false)).1);
        let inputs = HealthInputs {
            record: Some(RecordFile::new(folder.path().join("health.json"))),
            boot_id: "boot".to_owned(),
            kernel_log: Some(folder.path().join("kern.log")),
            ..HealthInputs::default()
        };
        let metrics = Arc::new(Metrics::new(registry));
        let open: Opener = Box::new(move || Ok(Arc::new(driver.clone())));
        let modules = Box::new(|| None);
        let snapshots =
            start("node", open, modules, requests, inputs, metrics, stop.clone()).unwrap();
        timeout(TIMEOUT, waker.serve()).await.unwrap();
        let record = folder.path().join("health.json");
        eventually("the first look is recorded", || {
            std::fs::read_to_string(&record).is_ok_and(|text| text.contains("kernelLog"))
        })
        .await;
        Self { snapshots, waker, stop }
    }

    /// Waits until the GPUs have these states.
    async fn until(&mut self, states: [&str; 2]) {
        let has_states = |snapshot: &Snapshot| {
            snapshot.devices.iter().map(|device| device.state.as_str()).eq(states)
        };
        timeout(TIMEOUT, self.snapshots.wait_for(has_states)).await.unwrap().unwrap();
    }

    /// Ends it, and waits until it reads and writes nothing any more.
    async fn end(mut self) {
        self.stop.cancel();
        self.waker.look();
        let ended = async { while self.snapshots.changed().await.is_ok() {} };
        timeout(TIMEOUT, ended).await.unwrap();
    }
}

/// Waits until an XID is counted, which is before the driver is asked about its GPU.
async fn is_counted(registry: &Registry, number: u32) {
    let counted = format!("xid=\"{number}\"");
    eventually("the line is read", || {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, registry).unwrap();
        text.contains(&counted)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_xid_that_is_logged_between_two_agents_is_taken_once() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("kern.log");
    append(&log, &line(1, 48));
    let mut first = Agent::start(&folder).await;
    first.until(["Healthy", "Healthy"]).await;
    first.end().await;

    append(&log, &line(0, 48));
    let mut second = Agent::start(&folder).await;
    second.until(["Fenced", "Healthy"]).await;
    let words = [(uuid(0), (1, Word::Release))].into();
    second.waker.set_orders(Orders { words, ..Orders::default() });
    second.until(["Probation", "Healthy"]).await;
    second.end().await;

    append(&log, &line(1, 48));
    let mut third = Agent::start(&folder).await;
    third.until(["Probation", "Fenced"]).await;
    third.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_driver_that_hangs_while_another_agent_gets_the_node_leaves_the_record_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let (log, record) = (folder.path().join("kern.log"), folder.path().join("health.json"));
    append(&log, "");
    let (driver, mut registry) = (TestDriver::new(2), Registry::default());
    let agent = Agent::start_with(&folder, driver.clone(), &mut registry).await;
    let hanging = driver.hang(1);
    append(&log, &line(1, 48));
    is_counted(&registry, 48).await;
    agent.waker.rest().await;
    std::fs::write(&record, "of the other agent").unwrap();
    drop(hanging);
    agent.end().await;
    assert_eq!(std::fs::read_to_string(&record).unwrap(), "of the other agent");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lines_of_applications_are_recorded_if_a_policy_says_that_they_are_of_the_device() {
    let folder = tempfile::tempdir().unwrap();
    let (log, record) = (folder.path().join("kern.log"), folder.path().join("health.json"));
    append(&log, "");
    let mut registry = Registry::default();
    let mut agent = Agent::start_with(&folder, TestDriver::new(2), &mut registry).await;
    let before = std::fs::read_to_string(&record).unwrap();
    append(&log, &line(1, 31));
    is_counted(&registry, 31).await;
    let policy = Policy { xid_classes: [(31, XidClass::Reset)].into(), ..Policy::default() };
    assert_eq!(std::fs::read_to_string(&record).unwrap(), before);
    // The word shows that the policy is known.
    let words = [(uuid(1), (1, Word::Fence))].into();
    agent.waker.set_orders(Orders { policy, words, ..Orders::default() });
    agent.until(["Healthy", "Fenced"]).await;
    append(&log, &line(0, 31));
    agent.until(["Fenced", "Fenced"]).await;
    agent.end().await;
    let length = std::fs::metadata(&log).unwrap().len();
    let after = std::fs::read_to_string(&record).unwrap();
    assert!(after.contains(&format!("\"next\":{length}")), "{after}");
}
