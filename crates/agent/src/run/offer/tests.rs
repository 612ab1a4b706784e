use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, mpsc};

use futures::future::BoxFuture;
use octavo_api::names::TAINT_FOREIGN_MIG;
use octavo_gpu::{Driver, DriverError, DriverVersions, EventStream, Gpu, GpuHealth, UnreadableGpu};
use tempfile::TempDir;
use tokio::sync::oneshot;

use super::*;
use crate::claims::{AllocatedClaim, ClaimReader, ReadError, SilentReporter};
use crate::node::{ClaimRef, NodePaths};
use crate::testing::{self, mig};

/// A driver with the GPUs that a test gives it.
struct Cards {
    gpus: Mutex<Vec<Gpu>>,
    /// Makes the next read say that it has begun, and wait for a word.
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

/// A node whose driver says one thing, and whose monitor may have read another before.
struct Stage {
    _folder: TempDir,
    cards: Arc<Cards>,
    driver: Arc<dyn Driver>,
    follower: Follower,
    snapshots: watch::Sender<Snapshot>,
    setting: watch::Sender<Option<Setting>>,
    pool: watch::Receiver<Option<Arc<Pool>>>,
    notes: watch::Receiver<BTreeSet<Note>>,
}

impl Stage {
    /// Has the monitor read `read` while the driver by now says `now`.
    fn new(read: Gpu, now: Gpu) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let at = |path: &str| folder.path().join(path);
        std::fs::create_dir_all(at("proc/sys/kernel/random")).unwrap();
        std::fs::write(at("proc/sys/kernel/random/boot_id"), "boot-1").unwrap();
        let paths = NodePaths {
            driver_root: at("driver"),
            driver_root_seen: at("driver"),
            dev_root: at(""),
            dev_root_seen: at(""),
            proc_root: at("proc"),
            sys_root: at("sys"),
            cgroup_root: at("sys/fs/cgroup"),
            kubelet_root: at("kubelet"),
            cdi_root: at("cdi"),
            run_root: at("run"),
            hook_path: "/octavo".into(),
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
            driver: OpenDriver::of(&driver),
            ..Snapshot::default()
        };
        let (snapshots, read) = watch::channel(snapshot);
        let (setting, said) = watch::channel(None);
        let (pool_sender, pool) = watch::channel(None);
        let (notes_sender, notes) = watch::channel(BTreeSet::new());
        let outlets = Outlets { pool: pool_sender, notes: notes_sender };
        let follower = Follower::new("node", claims, read, said, outlets);
        Self { _folder: folder, cards, driver, follower, snapshots, setting, pool, notes }
    }

    async fn say(&mut self, dynamic: DynamicMig) {
        self.hear(Setting { dynamic, is_read: true, ..Setting::default() }).await;
    }

    async fn hear(&mut self, setting: Setting) {
        self.setting.send_replace(Some(setting));
        assert!(self.follower.step().await);
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
async fn nothing_is_published_before_the_node_s_label_was_read() {
    let mut stage = Stage::new(mig::gpu(0, false), mig::gpu(0, false));
    assert!(stage.follower.step().await);
    assert!(stage.pool.borrow().is_none() && stage.follower.told.is_none());
    let own = Setting { dynamic: DynamicMig::All, ..Setting::default() };
    stage.setting.send_replace(Some(own));
    assert!(stage.follower.step().await);
    assert!(stage.pool.borrow().is_none());
    assert_eq!(stage.follower.told.as_ref().unwrap().1.len(), 26, "claims are served all the same");
    stage.say(DynamicMig::All).await;
    assert_eq!(stage.names().len(), 26);
    stage.say(DynamicMig::None).await;
    assert_eq!(stage.names(), ["gpu-0"]);
}

#[tokio::test]
async fn every_device_of_a_node_says_which_scheduler_owns_it_for_as_long_as_one_does() {
    let mut stage = Stage::new(mig::gpu(0, false), mig::gpu(0, false));
    let dynamic = DynamicMig::All;
    let owner = "octavo".parse().unwrap();
    stage.hear(Setting { dynamic, owner, is_read: true, ..Setting::default() }).await;
    let pool = stage.pool.borrow().clone().unwrap();
    let devices = pool.devices.iter().chain(&pool.plain);
    let taints: Vec<_> = devices.map(|device| device.taints.clone()).collect();
    let owned = octavo_dra::DeviceTaint {
        key: "octavo.dev/scheduler".to_owned(),
        value: "octavo".to_owned(),
        effect: octavo_dra::TaintEffect::NoSchedule,
    };
    assert_eq!(taints, vec![vec![owned]; 26 + 1]);
    stage.say(DynamicMig::All).await;
    let pool = stage.pool.borrow().clone().unwrap();
    let mut devices = pool.devices.iter().chain(&pool.plain);
    assert!(devices.all(|device| device.taints.is_empty()));
}

#[tokio::test]
async fn an_instance_that_is_gone_since_it_was_read_is_nobody_s() {
    let mut stage = Stage::new(cut(), mig::gpu(0, true));
    stage.say(DynamicMig::All).await;
    assert_eq!((stage.names().len(), stage.tainted()), (26, 0));
    assert!(stage.notes.borrow().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_foreign_instance_is_told_for_as_long_as_it_is_there() {
    let mut stage = Stage::new(cut(), cut());
    stage.say(DynamicMig::All).await;
    assert!(stage.tainted() > 0 && stage.tainted() < 26);
    assert_eq!(stage.notes.borrow().first().unwrap().reason, "ForeignMigInstance");
    // It is looked at again though nothing is told.
    stage.cards.gpus.lock().unwrap()[0].mig_instances.clear();
    assert!(stage.follower.step().await);
    assert_eq!((stage.tainted(), stage.notes.borrow().len()), (0, 0));
    // And is not made foreign again by what was read before.
    stage.snapshots.send_modify(|snapshot| snapshot.error = None);
    assert!(stage.follower.step().await);
    assert_eq!(stage.tainted(), 0);
}

#[tokio::test]
async fn a_gpu_that_is_opted_out_is_read_anew() {
    let mut stage = Stage::new(cut(), mig::gpu(0, false));
    stage.say(DynamicMig::All).await;
    stage.say(DynamicMig::None).await;
    assert_eq!(stage.names(), ["gpu-0"]);
}

#[tokio::test]
async fn what_only_an_old_read_shows_is_not_called_somebody_s() {
    // Claims may have given the instance back since the monitor read it, and now the driver is busy.
    let mut stage = Stage::new(cut(), cut());
    stage.cards.is_failing.store(true, Ordering::SeqCst);
    stage.say(DynamicMig::All).await;
    assert_eq!((stage.names().len(), stage.tainted()), (26, 0));
    assert!(stage.notes.borrow().is_empty());
    assert!(stage.follower.offering.is_unsettled, "it is looked at again");
}

#[tokio::test(start_paused = true)]
async fn what_was_seen_to_be_somebody_s_stays_so_while_the_driver_does_not_answer() {
    let mut stage = Stage::new(cut(), cut());
    stage.say(DynamicMig::All).await;
    let tainted = stage.tainted();
    assert!(tainted > 0);
    stage.cards.is_failing.store(true, Ordering::SeqCst);
    assert!(stage.follower.step().await);
    assert_eq!((stage.tainted(), stage.notes.borrow().len()), (tainted, 1));
}

#[tokio::test]
async fn without_a_driver_the_devices_are_those_that_were_read() {
    let stage = Stage::new(cut(), mig::gpu(0, true));
    let Stage { driver, cards, mut follower, setting, pool, .. } = stage;
    drop((driver, cards));
    let said = Setting { dynamic: DynamicMig::All, is_read: true, ..Setting::default() };
    setting.send_replace(Some(said));
    assert!(follower.step().await);
    assert_eq!(pool.borrow().as_ref().unwrap().devices.len(), 26);
}

#[tokio::test]
async fn a_beginning_that_is_cut_short_by_a_slow_driver_is_made_up_for() {
    let stage = Stage::new(cut(), cut());
    let Stage { cards, mut follower, setting, mut pool, .. } = stage;
    let (begun, has_begun) = oneshot::channel();
    let (word, slow) = mpsc::channel();
    *cards.slow.lock().unwrap() = Some((begun, slow));
    setting.send_replace(Some(Setting {
        dynamic: DynamicMig::All,
        is_read: true,
        ..Setting::default()
    }));
    tokio::select! {
        () = follower.begin() => panic!("the driver has not answered"),
        begun = has_begun => begun.unwrap(),
    }
    word.send(()).unwrap();
    // Nothing is new from here on: what the beginning took must be passed on all the same.
    let served = tokio::spawn(follower.run());
    pool.wait_for(Option::is_some).await.unwrap();
    served.abort();
}

#[tokio::test]
async fn which_gpus_are_cut_is_known_with_the_label_alone() {
    let mut stage = Stage::new(mig::gpu(0, false), mig::gpu(0, false));
    let own = Setting { dynamic: DynamicMig::All, ..Setting::default() };
    stage.setting.send_replace(Some(own));
    assert!(stage.follower.step().await);
    let cut = |stage: &Stage| stage.follower.told.as_ref().unwrap().2.gpus.clone();
    assert_eq!(cut(&stage), None, "nothing may be destroyed");
    stage.say(DynamicMig::None).await;
    assert_eq!(cut(&stage), Some(BTreeSet::new()));
    stage.say(DynamicMig::All).await;
    assert_eq!(cut(&stage), Some([testing::uuid(0)].into()));
}
