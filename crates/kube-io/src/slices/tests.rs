use k8s_openapi::api::resource::v1::Device;
use octavo_dra::{Capacity, Device as DraDevice, DeviceTaint, Quantity, TaintEffect};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::slice_api::SliceApi;
use super::*;

mod dropped;
mod slow;

const DEADLINE: Duration = Duration::from_secs(20);

fn pool(count: usize) -> Pool {
    let device = |index| DraDevice {
        name: format!("gpu-{index}"),
        capacity: [("memory".to_owned(), Capacity::whole(Quantity::binary(80 << 30)))].into(),
        ..DraDevice::default()
    };
    Pool { name: "node".to_owned(), devices: (0..count).map(device).collect(), ..Pool::default() }
}

fn tainted(count: usize) -> Pool {
    let mut pool = pool(count);
    pool.devices[0].taints.push(DeviceTaint {
        key: "gpu.nvidia.com/xid".to_owned(),
        value: "79".to_owned(),
        effect: TaintEffect::NoSchedule,
    });
    pool
}

struct Running {
    wanted: watch::Sender<Option<Arc<Pool>>>,
    state: watch::Receiver<PublishState>,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Running {
    fn start(api: &SliceApi, pool: Option<Pool>) -> Self {
        let (wanted, receiver) = watch::channel(pool.map(Arc::new));
        let (sender, state) = watch::channel(PublishState::Waiting);
        let stop = CancellationToken::new();
        let publisher = Publisher::new(api.client(), "gpu.nvidia.com", "node");
        let task = tokio::spawn(publisher.run(receiver, sender, stop.clone()));
        Self { wanted, state, stop, task }
    }

    fn want(&self, pool: Pool) {
        self.wanted.send_replace(Some(Arc::new(pool)));
    }

    async fn until_writes(&mut self, writes: u64) {
        self.until(writes, &[]).await;
    }

    /// Waits until a number of writes was made and the missing features are these.
    async fn until(&mut self, writes: u64, missing: &[Feature]) {
        let missing = missing.iter().copied().collect();
        let wanted = PublishState::Published { writes, missing };
        let found = timeout(DEADLINE, self.state.wait_for(|state| *state == wanted)).await.is_ok();
        assert!(found, "{:?} instead of {wanted:?}", *self.state.borrow());
    }

    async fn stop(self) {
        self.stop.cancel();
        timeout(DEADLINE, self.task).await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn devices_are_published_once_and_a_restart_writes_nothing() {
    let api = SliceApi::default();
    let mut running = Running::start(&api, None);
    running.want(pool(8));
    running.until_writes(1).await;
    running.stop().await;
    let slices = api.slices();
    let [slice] = slices.as_slice() else { panic!("{slices:?}") };
    assert_eq!(slice.spec.devices.as_ref().unwrap().len(), 8);
    assert_eq!(slice.spec.node_name.as_deref(), Some("node"));
    let owner = &slice.metadata.owner_references.as_ref().unwrap()[0];
    assert_eq!((owner.kind.as_str(), owner.uid.as_str()), ("Node", "node-uid"));

    let mut running = Running::start(&api, Some(pool(8)));
    running.until_writes(0).await;
    running.stop().await;
    assert_eq!(api.writes(), ["POST"]);
    assert_eq!(api.slices(), slices);
}

#[tokio::test]
async fn only_our_own_slices_are_listed_and_watched() {
    let api = SliceApi::default();
    let mut running = Running::start(&api, Some(pool(1)));
    running.until_writes(1).await;
    running.stop().await;
    for query in api.queries() {
        assert!(query.contains("spec.nodeName%3Dnode"), "{query}");
        assert!(query.contains("spec.driver%3Dgpu.nvidia.com"), "{query}");
    }
}

#[tokio::test]
async fn a_deleted_or_edited_slice_is_restored() {
    let api = SliceApi::default();
    let mut running = Running::start(&api, Some(pool(2)));
    running.until_writes(1).await;
    let name = api.slices()[0].metadata.name.clone().unwrap();
    api.delete(&name);
    running.until_writes(2).await;
    api.edit(&name, |slice| slice.spec.devices = None);
    running.until_writes(3).await;
    assert_eq!(api.slices()[0].spec.devices.as_ref().unwrap().len(), 2);
    // The same after the end of a watch.
    api.end_watches();
    api.delete(&name);
    running.until_writes(4).await;
    running.stop().await;
}

#[tokio::test]
async fn a_taint_is_a_write_and_its_end_another() {
    let api = SliceApi::default();
    let mut running = Running::start(&api, Some(pool(2)));
    running.until_writes(1).await;
    running.want(tainted(2));
    running.until_writes(2).await;
    assert_eq!(from_api(&api.slices()[0]).unwrap().devices, tainted(2).devices);
    assert_eq!(api.slices()[0].spec.pool.generation, 2);
    running.want(pool(2));
    running.until_writes(3).await;
    running.stop().await;
}

#[tokio::test]
async fn failed_writes_are_retried_and_reported() {
    let api = SliceApi::default();
    api.fail_writes(&[403, 500, 409]);
    let mut running = Running::start(&api, Some(pool(2)));
    let failing = |state: &PublishState| matches!(state, PublishState::Failing { .. });
    let state = timeout(DEADLINE, running.state.wait_for(failing)).await.unwrap().unwrap().clone();
    let PublishState::Failing { reason } = state else { panic!("{state:?}") };
    assert!(reason.contains("node node") && reason.contains("role"), "{reason}");
    running.until_writes(1).await;
    assert_eq!(api.writes().len(), 4);
    running.stop().await;
}

/// The watch reports our own write.
#[tokio::test(start_paused = true)]
async fn a_pool_with_a_rejected_slice_is_retried_with_backoff() {
    let api = SliceApi::default();
    api.refuse_device(Some("gpu-129"));
    let mut running = Running::start(&api, Some(pool(130)));
    let failing = |state: &PublishState| matches!(state, PublishState::Failing { .. });
    timeout(DEADLINE, running.state.wait_for(failing)).await.unwrap().unwrap();
    // The clock stops while a task can run.
    for _ in 0..200 {
        tokio::task::yield_now().await;
    }
    assert_eq!(api.writes(), ["POST", "POST"], "the news of our own write is no reason to write");
    tokio::time::sleep(Duration::from_mins(1)).await;
    let attempts = api.writes().len() - 1;
    assert!((6..12).contains(&attempts), "{attempts} attempts in a minute");
    // New content does not wait.
    let changed_at = Instant::now();
    running.want(pool(129));
    let published = |state: &PublishState| matches!(state, PublishState::Published { .. });
    timeout(DEADLINE, running.state.wait_for(published)).await.unwrap().unwrap();
    assert!(changed_at.elapsed() < Duration::from_millis(50), "{:?}", changed_at.elapsed());
    running.stop().await;
}

fn slice(version: &str, devices: Option<Vec<Device>>) -> ResourceSlice {
    let mut slice = ResourceSlice::default();
    slice.metadata.name = Some("a".to_owned());
    slice.metadata.resource_version = Some(version.to_owned());
    slice.spec.devices = devices;
    slice
}

#[tokio::test]
async fn events_older_than_our_write_are_ignored() {
    let mut publisher = Publisher::new(SliceApi::default().client(), "gpu.nvidia.com", "node");
    let ours = slice("10", Some(Vec::new()));
    publisher.note(&ours);
    publisher.apply(Event::Apply(slice("9", None)));
    publisher.apply(Event::Delete(slice("8", None)));
    assert_eq!(publisher.found["a"], ObservedSlice::of(&ours));
    publisher.apply(Event::Apply(slice("11", None)));
    assert_eq!(publisher.found["a"], ObservedSlice::of(&slice("11", None)));
    publisher.apply(Event::Delete(slice("12", None)));
    assert!(publisher.found.is_empty());
}

#[tokio::test]
async fn slices_that_went_unseen_may_have_gone_with_their_node() {
    let mut publisher = Publisher::new(SliceApi::default().client(), "gpu.nvidia.com", "node");
    publisher.note(&slice("10", None));
    publisher.owner = Some(OwnerReference::default());
    publisher.apply(Event::Init);
    publisher.apply(Event::InitApply(slice("10", None)));
    publisher.apply(Event::InitDone);
    assert!(publisher.owner.is_some(), "nothing went");
    publisher.apply(Event::Init);
    publisher.apply(Event::InitDone);
    assert_eq!(publisher.owner, None);
}

#[tokio::test(start_paused = true)]
async fn repeated_foreign_edits_are_answered_with_backoff() {
    let api = SliceApi::default();
    let mut running = Running::start(&api, Some(pool(2)));
    running.until_writes(1).await;
    let name = api.slices()[0].metadata.name.clone().unwrap();
    let started = Instant::now();
    for writes in 2..10 {
        api.edit(&name, |slice| slice.spec.devices = None);
        running.until_writes(writes).await;
    }
    assert!(started.elapsed() > Duration::from_secs(5), "{:?}", started.elapsed());
    // Our own changes do not wait.
    let changed_at = Instant::now();
    running.want(tainted(2));
    running.until_writes(10).await;
    assert!(changed_at.elapsed() < Duration::from_millis(50), "{:?}", changed_at.elapsed());
    running.stop().await;
}
