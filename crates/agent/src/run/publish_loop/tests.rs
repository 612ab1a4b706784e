use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, mpsc};

use futures::future::BoxFuture;
use octavo_api::names::TAINT_FOREIGN_MIG;
use octavo_gpu::{Driver, DriverError, DriverVersions, EventStream, Gpu, GpuHealth, UnreadableGpu};
use octavo_node::{ClaimRef, NodePaths};
use tempfile::TempDir;
use tokio::sync::oneshot;

use super::*;
use crate::claims::{AllocatedClaim, ClaimReader, ReadError, SilentReporter};
use crate::config::GpuShares;
use crate::testing::{self, mig};

/// A driver with the GPUs that a test gives it.
struct Cards {
    gpus: Mutex<Vec<Gpu>>,
    /// Makes the next read signal its start and wait for permission.
    slow: Mutex<Option<(oneshot::Sender<()>, mpsc::Receiver<()>)>>,
    is_failing: AtomicBool,
}

impl Driver for Cards {
    fn versions(&self) -> Result<DriverVersions, DriverError> {
        Ok(testing::inventory(0).versions)
    }

    fn gpus(&self) -> Result<Vec<Result<Gpu, UnreadableGpu>>, DriverError> {
        if self.is_failing.load(Ordering::SeqCst) {
            return Err(DriverError::InUse { call: "nvmlDeviceGetCount_v2" });
        }
        let slow = self.slow.lock().unwrap().take();
        if let Some((begun, word)) = slow {
            begun.send(()).unwrap();
            word.recv().unwrap();
        }
        Ok(self.gpus.lock().unwrap().iter().cloned().map(Ok).collect())
    }

    fn health(&self, _: &str) -> Result<GpuHealth, DriverError> {
        Ok(testing::well())
    }

    fn events(&self) -> Result<Box<dyn EventStream>, DriverError> {
        Err(DriverError::NotSupported { call: "nvmlEventSetCreate" })
    }
}

struct NoClaims;

impl ClaimReader for NoClaims {
    fn read<'a>(
        &'a self,
        _: &'a ClaimRef,
    ) -> BoxFuture<'a, Result<Option<AllocatedClaim>, ReadError>> {
        Box::pin(async { Ok(None) })
    }
}

/// A node whose driver and monitor may have different states.
struct Fixture {
    _folder: TempDir,
    cards: Arc<Cards>,
    driver: Arc<dyn Driver>,
    publish_loop: PublishLoop,
    snapshots: watch::Sender<Snapshot>,
    setting: watch::Sender<Option<NodeSettings>>,
    slices: watch::Sender<Option<bool>>,
    closed: watch::Sender<Option<ClosedParts>>,
    pool: watch::Receiver<Option<Arc<Pool>>>,
    notes: watch::Receiver<BTreeSet<Note>>,
}

impl Fixture {
    /// The monitor read `read`; the driver's state is `now` by now.
    fn new(read: Gpu, now: Gpu) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let at = |path: &str| folder.path().join(path);
        std::fs::create_dir_all(at("proc/sys/kernel/random")).unwrap();
        std::fs::write(at("proc/sys/kernel/random/boot_id"), "boot-1").unwrap();
        std::fs::write(at("proc/devices"), testing::PROC_DEVICES).unwrap();
        let paths = NodePaths {
            driver_root: at("driver"),
            driver_root_seen: at("driver"),
            proc_root: at("proc"),
            sys_root: at("sys"),
            cgroup_root: at("sys/fs/cgroup"),
            kubelet_root: at("kubelet"),
            device_plugin_root: at("kubelet/device-plugins"),
            cdi_root: at("cdi"),
            run_root: at("run"),
            hook_path: "/octavo".into(),
            share_tmpfs: false,
            mounts: Vec::new(),
        };
        let (reader, reporter) = (Arc::new(NoClaims), Arc::new(SilentReporter));
        let (claims, _) = Claims::open(paths, "node".to_owned(), reader, reporter).unwrap();
        let (gpus, slow) = (Mutex::new(vec![now]), Mutex::default());
        let cards = Arc::new(Cards { gpus, slow, is_failing: AtomicBool::new(false) });
        let driver: Arc<dyn Driver> = cards.clone();
        let inventory = Inventory { gpus: vec![read], ..testing::inventory(0) };
        let snapshot = Snapshot {
            inventory: Some(Arc::new(inventory)),
            driver: DriverHandle::of(&driver),
            ..Snapshot::default()
        };
        let (snapshots, read) = watch::channel(snapshot);
        let (setting, message) = watch::channel(None);
        let (slices, permitted) = watch::channel(Some(true));
        let (closed, closed_changes) = watch::channel(Some(ClosedParts::default()));
        let inputs =
            PublishInputs { slices: permitted, closed: closed_changes, shares: GpuShares::Memory };
        let (pool_sender, pool) = watch::channel(None);
        let (notes_sender, notes) = watch::channel(BTreeSet::new());
        let outputs = PublishOutputs { pool: pool_sender, notes: notes_sender };
        let publish_loop = PublishLoop::new("node", claims, read, message, inputs, outputs);
        Self {
            _folder: folder,
            cards,
            driver,
            publish_loop,
            snapshots,
            setting,
            slices,
            closed,
            pool,
            notes,
        }
    }

    async fn say(&mut self, dynamic: DynamicMig) {
        self.hear(NodeSettings { dynamic, is_read: true, ..NodeSettings::default() }).await;
    }

    async fn hear(&mut self, setting: NodeSettings) {
        self.setting.send_replace(Some(setting));
        assert!(self.publish_loop.step().await);
    }

    fn tainted(&self) -> usize {
        let pool = self.pool.borrow();
        let devices = pool.iter().flat_map(|pool| &pool.devices);
        let is_foreign = |device: &&octavo_dra::Device| {
            device.taints.iter().any(|taint| taint.key == TAINT_FOREIGN_MIG)
        };
        devices.filter(is_foreign).count()
    }

    fn names(&self) -> Vec<String> {
        let pool = self.pool.borrow();
        pool.iter().flat_map(|pool| &pool.devices).map(|device| device.name.clone()).collect()
    }
}

/// A GPU in MIG mode with an instance.
fn cut() -> Gpu {
    Gpu { mig_instances: vec![mig::instance(3, 9, 4)], ..mig::gpu(0, true) }
}

#[tokio::test]
async fn an_agent_that_finds_no_driver_takes_back_what_another_offered() {
    let mut fixture = Fixture::new(mig::gpu(0, false), mig::gpu(0, false));
    fixture.snapshots.send_replace(Snapshot::default());
    fixture.say(DynamicMig::None).await;
    assert!(fixture.pool.borrow().is_none(), "the driver may be starting");
    fixture.snapshots.send_replace(Snapshot { is_driver_gone: true, ..Snapshot::default() });
    assert!(fixture.publish_loop.step().await);
    let pool = fixture.pool.borrow().clone().expect("a pool");
    assert_eq!((pool.name.as_str(), pool.devices.len()), ("node", 0));
}

#[tokio::test]
async fn nothing_is_published_before_the_node_s_label_was_read() {
    let mut fixture = Fixture::new(mig::gpu(0, false), mig::gpu(0, false));
    assert!(fixture.publish_loop.step().await);
    assert!(fixture.pool.borrow().is_none() && fixture.publish_loop.applied.is_none());
    let own = NodeSettings { dynamic: DynamicMig::All, ..NodeSettings::default() };
    fixture.setting.send_replace(Some(own));
    assert!(fixture.publish_loop.step().await);
    assert!(fixture.pool.borrow().is_none());
    assert_eq!(
        fixture.publish_loop.applied.as_ref().unwrap().1.len(),
        26,
        "claims are served all the same"
    );
    fixture.say(DynamicMig::All).await;
    assert_eq!(fixture.names().len(), 26);
    fixture.say(DynamicMig::None).await;
    assert_eq!(fixture.names(), ["gpu-0"]);
}

#[tokio::test]
async fn devices_are_withdrawn_for_the_device_plugin_and_nothing_is_written_before_that_is_known() {
    let mut fixture = Fixture::new(mig::gpu(0, false), mig::gpu(0, false));
    fixture.slices.send_replace(None);
    fixture.say(DynamicMig::None).await;
    assert!(fixture.pool.borrow().is_none(), "an earlier agent's slices stay meanwhile");
    for (slices, devices) in [(true, 1), (false, 0), (true, 1)] {
        fixture.slices.send_replace(Some(slices));
        assert!(fixture.publish_loop.step().await);
        assert_eq!(fixture.names().len(), devices);
    }
    assert_eq!(fixture.publish_loop.applied.as_ref().unwrap().1.len(), 1, "claims know them");
}

#[tokio::test]
async fn parts_of_gpus_that_change_are_not_published_meanwhile_and_stay_known() {
    let mut gpu = mig::gpu(0, true);
    gpu.mig_instances = vec![mig::instance(1, 9, 0), mig::instance(2, 9, 4)];
    let mut fixture = Fixture::new(gpu.clone(), gpu.clone());
    fixture.say(DynamicMig::None).await;
    assert_eq!(fixture.names().len(), 2);
    let mut half = ClosedParts::default();
    half.add_place(&gpu.uuid, gpu.mig_instances[1].placement);
    let mut whole = ClosedParts::default();
    whole.add_gpu(&gpu.uuid);
    for (closed, devices) in [(half, 1), (whole, 0), (ClosedParts::default(), 2)] {
        fixture.closed.send_replace(Some(closed));
        assert!(fixture.publish_loop.step().await);
        assert_eq!(fixture.names().len(), devices);
        assert_eq!(fixture.publish_loop.applied.as_ref().unwrap().1.len(), 3, "claims know them");
    }
}

#[tokio::test]
async fn all_devices_are_tainted_while_a_scheduler_owns_the_node() {
    let mut fixture = Fixture::new(mig::gpu(0, false), mig::gpu(0, false));
    let dynamic = DynamicMig::All;
    let owner = "octavo".parse().unwrap();
    fixture.hear(NodeSettings { dynamic, owner, is_read: true, ..NodeSettings::default() }).await;
    let pool = fixture.pool.borrow().clone().unwrap();
    let devices = pool.devices.iter().chain(&pool.plain);
    let taints: Vec<_> = devices.map(|device| device.taints.clone()).collect();
    let owned = octavo_dra::DeviceTaint {
        key: "octavo.dev/scheduler".to_owned(),
        value: "octavo".to_owned(),
        effect: octavo_dra::TaintEffect::NoSchedule,
    };
    assert_eq!(taints, vec![vec![owned]; 26 + 1]);
    fixture.say(DynamicMig::All).await;
    let pool = fixture.pool.borrow().clone().unwrap();
    let mut devices = pool.devices.iter().chain(&pool.plain);
    assert!(devices.all(|device| device.taints.is_empty()));
}

#[tokio::test]
async fn vanished_instance_is_not_foreign() {
    let mut fixture = Fixture::new(cut(), mig::gpu(0, true));
    fixture.say(DynamicMig::All).await;
    assert_eq!((fixture.names().len(), fixture.tainted()), (26, 0));
    assert!(fixture.notes.borrow().is_empty());
}

#[tokio::test(start_paused = true)]
async fn foreign_instance_is_noted_while_it_exists() {
    let mut fixture = Fixture::new(cut(), cut());
    fixture.say(DynamicMig::All).await;
    assert!(fixture.tainted() > 0 && fixture.tainted() < 26);
    assert_eq!(fixture.notes.borrow().first().unwrap().reason, "ForeignMigInstance");
    // It is read again without a notification.
    fixture.cards.gpus.lock().unwrap()[0].mig_instances.clear();
    assert!(fixture.publish_loop.step().await);
    assert_eq!((fixture.tainted(), fixture.notes.borrow().len()), (0, 0));
    // The older read does not make it foreign again.
    fixture.snapshots.send_modify(|snapshot| snapshot.error = None);
    assert!(fixture.publish_loop.step().await);
    assert_eq!(fixture.tainted(), 0);
}

#[tokio::test]
async fn opted_out_gpu_is_read_again() {
    let mut fixture = Fixture::new(cut(), mig::gpu(0, false));
    fixture.say(DynamicMig::All).await;
    fixture.say(DynamicMig::None).await;
    assert_eq!(fixture.names(), ["gpu-0"]);
}

#[tokio::test]
async fn stale_read_makes_no_instance_foreign() {
    // A claim may have released the instance since the monitor's read, and now the driver is busy.
    let mut fixture = Fixture::new(cut(), cut());
    fixture.cards.is_failing.store(true, Ordering::SeqCst);
    fixture.say(DynamicMig::All).await;
    assert_eq!((fixture.names().len(), fixture.tainted()), (26, 0));
    assert!(fixture.notes.borrow().is_empty());
    assert!(fixture.publish_loop.observer.is_inconsistent, "it is looked at again");
}

#[tokio::test(start_paused = true)]
async fn foreign_instance_stays_foreign_while_the_driver_does_not_answer() {
    let mut fixture = Fixture::new(cut(), cut());
    fixture.say(DynamicMig::All).await;
    let tainted = fixture.tainted();
    assert!(tainted > 0);
    fixture.cards.is_failing.store(true, Ordering::SeqCst);
    assert!(fixture.publish_loop.step().await);
    assert_eq!((fixture.tainted(), fixture.notes.borrow().len()), (tainted, 1));
}

#[tokio::test]
async fn without_a_driver_the_devices_are_those_that_were_read() {
    let fixture = Fixture::new(cut(), mig::gpu(0, true));
    let Fixture { driver, cards, mut publish_loop, setting, pool, .. } = fixture;
    drop((driver, cards));
    let message =
        NodeSettings { dynamic: DynamicMig::All, is_read: true, ..NodeSettings::default() };
    setting.send_replace(Some(message));
    assert!(publish_loop.step().await);
    assert_eq!(pool.borrow().as_ref().unwrap().devices.len(), 26);
}

#[tokio::test]
async fn a_beginning_that_is_cut_short_by_a_slow_driver_is_made_up_for() {
    let fixture = Fixture::new(cut(), cut());
    let Fixture { cards, mut publish_loop, setting, mut pool, .. } = fixture;
    let (begun, has_begun) = oneshot::channel();
    let (word, slow) = mpsc::channel();
    *cards.slow.lock().unwrap() = Some((begun, slow));
    setting.send_replace(Some(NodeSettings {
        dynamic: DynamicMig::All,
        is_read: true,
        ..NodeSettings::default()
    }));
    tokio::select! {
        () = publish_loop.begin() => panic!("the driver has not answered"),
        begun = has_begun => begun.unwrap(),
    }
    word.send(()).unwrap();
    // There are no changes from here on: those consumed at the start must be published nevertheless.
    let served = tokio::spawn(publish_loop.run());
    pool.wait_for(Option::is_some).await.unwrap();
    served.abort();
}

#[tokio::test]
async fn which_gpus_are_cut_is_known_with_the_label_alone() {
    let mut fixture = Fixture::new(mig::gpu(0, false), mig::gpu(0, false));
    let own = NodeSettings { dynamic: DynamicMig::All, ..NodeSettings::default() };
    fixture.setting.send_replace(Some(own));
    assert!(fixture.publish_loop.step().await);
    let cut = |fixture: &Fixture| fixture.publish_loop.applied.as_ref().unwrap().2.gpus.clone();
    assert_eq!(cut(&fixture), None, "nothing may be destroyed");
    fixture.say(DynamicMig::None).await;
    assert_eq!(cut(&fixture), Some(BTreeSet::new()));
    fixture.say(DynamicMig::All).await;
    assert_eq!(cut(&fixture), Some([testing::uuid(0)].into()));
}
