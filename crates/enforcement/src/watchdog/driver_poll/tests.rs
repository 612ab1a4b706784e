use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use octavo_gpu::{
    Driver, DriverError, DriverVersions, EventStream, Gpu, GpuHealth, GpuProcess, UnreadableGpu,
};

use octavo_gpu::DriverHandle;
use tokio::sync::oneshot;

use super::{DriverPoller, HANG_TIMEOUT, PollResult, ProcessLists};

type Slow = Arc<Mutex<Receiver<Vec<GpuProcess>>>>;

/// A driver whose lists arrive when the test sends them. GPUs without a channel have empty lists.
struct SlowDriver {
    lists: Mutex<BTreeMap<String, Slow>>,
    asked: Sender<String>,
}

impl Driver for SlowDriver {
    fn versions(&self) -> Result<DriverVersions, DriverError> {
        Err(DriverError::NotFound { call: "none" })
    }

    fn gpus(&self) -> Result<Vec<Result<Gpu, UnreadableGpu>>, DriverError> {
        Ok(Vec::new())
    }

    fn health(&self, _: &str) -> Result<GpuHealth, DriverError> {
        Err(DriverError::NotFound { call: "none" })
    }

    fn events(&self) -> Result<Box<dyn EventStream>, DriverError> {
        Err(DriverError::NotFound { call: "none" })
    }

    fn processes(&self, uuid: &str) -> Result<Vec<GpuProcess>, DriverError> {
        self.asked.send(uuid.to_owned()).unwrap();
        let Some(list) = self.lists.lock().unwrap().get(uuid).cloned() else {
            return Ok(Vec::new());
        };
        Ok(list.lock().unwrap().recv().unwrap())
    }
}

/// A driver that is slow on one GPU, with its prepared answers and its calls.
fn slow(gpu: &str) -> (Arc<dyn Driver>, Sender<Vec<GpuProcess>>, Receiver<String>) {
    let (answer, list) = channel();
    let (asked, calls) = channel();
    let lists = [(gpu.to_owned(), Arc::new(Mutex::new(list)))];
    (Arc::new(SlowDriver { lists: Mutex::new(lists.into()), asked }), answer, calls)
}

fn gpus(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

async fn ask(
    poller: &mut DriverPoller,
    open: &DriverHandle,
    names: &[&str],
) -> (ProcessLists, Vec<String>) {
    let PollResult::Answered { lists, hanging } = poller.poll(open, &gpus(names)).await else {
        panic!("the driver is open")
    };
    (lists, hanging.into_iter().collect())
}

/// Polls until the driver has answered for all of these GPUs. Threads may be late on a busy machine.
async fn answered(
    poller: &mut DriverPoller,
    open: &DriverHandle,
    names: &[&str],
    by: &[&str],
) -> ProcessLists {
    let mut all = ProcessLists::new();
    while !by.iter().all(|gpu| all.contains_key(*gpu)) {
        all.extend(ask(poller, open, names).await.0);
        tokio::task::yield_now().await;
    }
    all
}

#[tokio::test]
async fn a_call_that_hangs_is_waited_for_and_no_other_is_begun() {
    let (driver, answer, calls) = slow("GPU-1");
    let open = DriverHandle::of(&driver);
    let mut poller = DriverPoller::default();
    assert_eq!(ask(&mut poller, &open, &["GPU-1"]).await, (ProcessLists::new(), gpus(&[])));
    poller.running.get_mut("GPU-1").unwrap().1 -= HANG_TIMEOUT;
    assert_eq!(ask(&mut poller, &open, &["GPU-1"]).await, (ProcessLists::new(), gpus(&["GPU-1"])));
    assert_eq!(calls.try_iter().count(), 1);
    let process = GpuProcess { pid: 5, used_bytes: Some(6) };
    answer.send(vec![process]).unwrap();
    // It is no longer awaited, so a later poll may get it.
    let reported = answered(&mut poller, &open, &["GPU-1"], &["GPU-1"]).await;
    assert_eq!(reported["GPU-1"], Ok(vec![process]));
    // The next poll begins a new call.
    answer.send(Vec::new()).unwrap();
    let reported = answered(&mut poller, &open, &["GPU-1"], &["GPU-1"]).await;
    assert_eq!(reported["GPU-1"], Ok(Vec::new()));
    assert_eq!(calls.try_iter().count(), 1);
}

/// Fails after 30 s of real time, independent of the runtime's clock, unless the condition is met before. The second
/// value is dropped then.
fn in_vain() -> (oneshot::Receiver<()>, std::sync::mpsc::Sender<()>) {
    let (sender, receiver) = oneshot::channel();
    let (came, waits) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        // An error either way: it came, or the deadline did.
        let _ = waits.recv_timeout(Duration::from_secs(30));
        drop(sender);
    });
    (receiver, came)
}

#[tokio::test]
async fn a_gpu_that_hangs_keeps_no_look_at_others_waiting() {
    let (driver, answer, calls) = slow("GPU-1");
    let open = DriverHandle::of(&driver);
    let mut poller = DriverPoller::default();
    let names = ["GPU-0", "GPU-1", "GPU-2"];
    let lists = answered(&mut poller, &open, &names, &["GPU-0", "GPU-2"]).await;
    assert!(!lists.contains_key("GPU-1"));
    poller.running.get_mut("GPU-1").unwrap().1 -= HANG_TIMEOUT;
    // With a paused clock a task that waits for time would wait forever.
    tokio::time::pause();
    for _ in 0..3 {
        let asked = async { ask(&mut poller, &open, &names).await };
        let (too_late, _came) = in_vain();
        let (lists, hanging) = tokio::select! {
            reported = asked => reported,
            _ = too_late => panic!("GPU-1 is waited for"),
        };
        assert_eq!(lists.keys().collect::<Vec<_>>(), ["GPU-0", "GPU-2"]);
        assert_eq!(hanging, ["GPU-1"]);
    }
    tokio::time::resume();
    assert_eq!(calls.try_iter().filter(|gpu| gpu == "GPU-1").count(), 1);
    // A GPU without shares is ignored.
    assert_eq!(ask(&mut poller, &open, &["GPU-0"]).await.1, [""; 0]);
    answer.send(Vec::new()).unwrap();
}

#[tokio::test]
async fn a_driver_that_is_closed_is_not_asked() {
    let mut poller = DriverPoller::default();
    let answer = poller.poll(&DriverHandle::default(), &gpus(&["GPU-1"])).await;
    assert!(matches!(answer, PollResult::Closed));
}
