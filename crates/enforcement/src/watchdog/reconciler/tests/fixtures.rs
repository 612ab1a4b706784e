//! A node with shares and real processes. The test sets the driver's counts.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::mem::offset_of;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _, symlink};
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use octavo_api::config::{OverflowPolicy, ShareClass, Strictness};
use octavo_gpu::{DriverError, GpuProcess};
use octavo_guard_abi::limits::Terms;
use octavo_guard_abi::message::{Frame, Kind};
use octavo_guard_abi::state::{Slot, State};
use octavo_guard_abi::{SHARES, STATE_FILE};
use octavo_node::ClaimRef;
use prometheus_client::registry::Registry;
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
use tempfile::TempDir;
use tokio::time::{Instant, sleep};

use crate::backend::BackendKind;
use crate::gpu_time::GpuTime;
use crate::metrics::EnforcementMetrics;
use crate::process::proc::Proc;
use crate::share::files::{self, LimitsFile, RuntimeWords};
use crate::share::{ActiveShare, CONTEXT_BYTES, ShareFinding};
use crate::watchdog::consumers::ClaimConsumers;
use crate::watchdog::driver_poll::PollResult;
use crate::watchdog::notify::notifier::Notify;
use crate::watchdog::reconciler::ShareReconciler;
use crate::watchdog::visibility::BlindSpot;

pub(super) const MIB: u64 = 1 << 20;
const GPU: &str = "GPU-1";
const GENERATION: u64 = 7;
/// Time between polls.
const INTERVAL: Duration = Duration::from_millis(200);

/// Recorded reports.
#[derive(Default)]
pub(super) struct Recorder(Mutex<Vec<String>>);

impl Notify for Recorder {
    fn share(&self, share: &ActiveShare, finding: ShareFinding) {
        let mut text = format!("{} {}", share.claim.name, finding.reason);
        if let Some((kind, status)) = finding.condition {
            write!(text, " {kind}={}", status.as_str().to_lowercase()).unwrap();
        }
        write!(text, ": {}", finding.message).unwrap();
        self.0.lock().unwrap().push(text);
    }

    fn foreign_processes(&self, gpu: &str, pids: &[u32]) {
        let pids: Vec<_> = pids.iter().map(u32::to_string).collect();
        self.0.lock().unwrap().push(format!("foreign {gpu}: {}", pids.join(" ")));
    }

    fn visibility(&self, gpu: &str, _: Option<BlindSpot>, now: Option<BlindSpot>) {
        let word = now.map_or("sees", BlindSpot::as_str);
        self.0.lock().unwrap().push(format!("sight {gpu}: {word}"));
    }
}

/// A process. It is killed on drop if the test started it.
pub(super) struct Program {
    child: Option<Child>,
    pid: u32,
}

impl Program {
    /// A process started elsewhere.
    pub(super) fn of(pid: u32) -> Self {
        Self { child: None, pid }
    }

    pub(super) fn pid(&self) -> u32 {
        self.pid
    }

    pub(super) fn is_alive(&mut self) -> bool {
        self.child.as_mut().is_some_and(|child| child.try_wait().unwrap().is_none())
    }

    /// Waits for its end; the signal that ended it.
    pub(super) fn end(&mut self) -> Option<i32> {
        self.child.as_mut()?.wait().unwrap().signal()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// The node.
pub(super) struct Fixture {
    folder: PathBuf,
    /// Kept as long as the node.
    temp: Option<TempDir>,
    shares: Vec<ActiveShare>,
    notifier: Arc<Recorder>,
    registry: Registry,
    metrics: Arc<EnforcementMetrics>,
    reconciler: Option<ShareReconciler>,
    /// Gives leases. For reconcilers that are made later.
    pub(super) gpu_time: Option<Arc<GpuTime>>,
    at: Duration,
}

impl Fixture {
    pub(super) fn new() -> Self {
        let temp = tempfile::tempdir().unwrap();
        let fixture = Self { temp: Some(temp), ..Self::at(Path::new("")) };
        let folder = fixture.temp.as_ref().unwrap().path().to_owned();
        fs::create_dir_all(folder.join("proc/self")).unwrap();
        fs::write(folder.join("proc/self/cgroup"), "0::/agent\n").unwrap();
        // Of this process nothing is made up: it plays the guards.
        let own = std::process::id().to_string();
        symlink(Path::new("/proc").join(&own), folder.join("proc").join(&own)).unwrap();
        Self { folder, ..fixture }
    }

    /// A node that another process made.
    pub(super) fn at(folder: &Path) -> Self {
        let mut registry = Registry::default();
        let metrics = Arc::new(EnforcementMetrics::new(&mut registry));
        Self {
            folder: folder.to_owned(),
            temp: None,
            shares: Vec::new(),
            notifier: Arc::default(),
            registry,
            metrics,
            reconciler: None,
            gpu_time: None,
            at: Duration::ZERO,
        }
    }

    pub(super) fn path(&self, path: &str) -> PathBuf {
        self.folder.join(path)
    }

    /// Makes a share of a claim of this name.
    pub(super) fn share(
        &mut self,
        name: &str,
        mebibytes: u64,
        overflow: OverflowPolicy,
    ) -> ActiveShare {
        let share = self.known_share(name, mebibytes, overflow);
        let terms = Terms {
            generation: GENERATION,
            memory_bytes: share.memory_bytes,
            context_bytes: CONTEXT_BYTES,
            ..Terms::default()
        };
        files::write(&share.folder, &terms, 0).unwrap();
        share
    }

    /// The same where its files are there.
    pub(super) fn known_share(
        &mut self,
        name: &str,
        mebibytes: u64,
        overflow: OverflowPolicy,
    ) -> ActiveShare {
        let share = ActiveShare {
            claim: ClaimRef {
                namespace: "team".to_owned(),
                name: name.to_owned(),
                uid: format!("uid-{name}"),
            },
            pool: "node".to_owned(),
            device: "gpu-0".to_owned(),
            share_id: "s".to_owned(),
            gpu_uuid: GPU.to_owned(),
            folder: self.path(&format!("run/octavo/shares/uid-{name}_s")),
            memory_bytes: mebibytes * MIB,
            memory_request: mebibytes * MIB,
            swap_unit: octavo_api::config::SwapUnit::default(),
            compute_milli_percent: 0,
            compute_limit: None,
            quantum_ms: None,
            overflow,
            strictness: Strictness::Lenient,
            class: ShareClass::Normal,
            backend: Some(BackendKind::Guard),
            generation: GENERATION,
        };
        self.shares.push(share.clone());
        share
    }

    /// Changes a share.
    pub(super) fn set(&mut self, share: &ActiveShare) {
        let known = self.shares.iter_mut().find(|known| known.claim == share.claim).unwrap();
        *known = share.clone();
    }

    /// Starts a process in a container with a share.
    pub(super) fn program(&self, share: &ActiveShare, cgroup: &str) -> Program {
        self.start(cgroup, &Self::mount(share))
    }

    /// A line of `mountinfo`.
    fn mount(share: &ActiveShare) -> String {
        let device = fs::metadata(&share.folder).unwrap().dev();
        let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
        let (root, name) = (share.folder.display(), share.folder.file_name().unwrap().display());
        format!("36 35 {major}:{minor} {root} {SHARES}/{name} ro - tmpfs tmpfs rw\n")
    }

    /// Starts a process in a container with two shares.
    pub(super) fn program_of_two(&self, shares: [&ActiveShare; 2], cgroup: &str) -> Program {
        self.start(cgroup, &shares.map(Self::mount).concat())
    }

    /// Starts a process that is of no container with a share.
    pub(super) fn stranger(&self, cgroup: &str) -> Program {
        self.start(cgroup, "")
    }

    /// Makes the mounts of a process unreadable, even for root for the rest of this thread's life.
    pub(super) fn hide_mounts(&self, program: &Program) {
        let path = self.path(&format!("proc/{}/mountinfo", program.pid));
        fs::set_permissions(path, fs::Permissions::from_mode(0o0)).unwrap();
        let mut sets = capabilities(None).unwrap();
        sets.effective -= CapabilitySet::DAC_OVERRIDE | CapabilitySet::DAC_READ_SEARCH;
        set_capabilities(None, sets).unwrap();
    }

    /// An unused pid.
    pub(super) fn gone() -> Program {
        Program::of(u32::MAX - 1)
    }

    fn start(&self, cgroup: &str, mounts: &str) -> Program {
        let child = Command::new("sleep").arg("600").spawn().unwrap();
        let pid = child.id();
        let (own, real) = (self.path(&format!("proc/{pid}")), format!("/proc/{pid}"));
        fs::create_dir_all(&own).unwrap();
        for share_quota in ["stat", "task", "status", "ns"] {
            symlink(Path::new(&real).join(share_quota), own.join(share_quota)).unwrap();
        }
        fs::write(own.join("cgroup"), format!("0::{cgroup}\n")).unwrap();
        fs::write(own.join("mountinfo"), mounts).unwrap();
        let folder = self.path("cgroup").join(cgroup.trim_start_matches('/'));
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("cgroup.freeze"), "0").unwrap();
        let processes =
            fs::OpenOptions::new().create(true).append(true).open(folder.join("cgroup.procs"));
        writeln!(processes.unwrap(), "{pid}").unwrap();
        Program { child: Some(child), pid }
    }

    /// Content of a container's freezer control file.
    pub(super) fn frozen(&self, cgroup: &str) -> String {
        let folder = self.path("cgroup").join(cgroup.trim_start_matches('/'));
        fs::read_to_string(folder.join("cgroup.freeze")).unwrap()
    }

    /// Writes a process's slot, as its guard does.
    pub(super) fn slot(share: &ActiveShare, index: usize, program: &Program, mebibytes: u64) {
        let proc = Proc::new("/proc".into());
        let inside = proc.inside(program.pid).unwrap();
        let at = offset_of!(State, slots) + index * size_of::<Slot>();
        let file = fs::OpenOptions::new().write(true).open(share.folder.join(STATE_FILE)).unwrap();
        for (offset, value) in [
            (offset_of!(State, high), index as u64 + 1),
            (at + offset_of!(Slot, pid), inside.pid),
            (at + offset_of!(Slot, start_time), proc.stat(program.pid).unwrap().start_time),
            (at + offset_of!(Slot, pid_namespace), inside.namespace.unwrap()),
            (at + offset_of!(Slot, used_bytes), mebibytes * MIB),
        ] {
            file.write_all_at(&value.to_ne_bytes(), offset as u64).unwrap();
        }
    }

    /// Writes how much of a process's slot is for contexts.
    pub(super) fn context(share: &ActiveShare, index: usize, mebibytes: u64) {
        let at = offset_of!(State, slots) + index * size_of::<Slot>();
        let file = fs::OpenOptions::new().write(true).open(share.folder.join(STATE_FILE)).unwrap();
        let offset = at + offset_of!(Slot, context_bytes);
        file.write_all_at(&(mebibytes * MIB).to_ne_bytes(), offset as u64).unwrap();
    }

    /// Charge for a context of a share, in mebibytes.
    pub(super) fn counted_context(share: &ActiveShare) -> u64 {
        LimitsFile::open(&share.folder).unwrap().terms().unwrap().context_bytes / MIB
    }

    pub(super) fn reconciler(&mut self) -> &mut ShareReconciler {
        self.reconciler.get_or_insert_with(|| {
            let proc = Proc::new(self.folder.join("proc"));
            let (metrics, notifier) = (Arc::clone(&self.metrics), Arc::clone(&self.notifier));
            let consumers = Arc::new(ClaimConsumers::new().0);
            ShareReconciler::new(
                "node",
                proc,
                &self.folder.join("cgroup"),
                metrics,
                notifier,
                Some(consumers),
                self.gpu_time.clone(),
            )
        })
    }

    /// Sets the current shares on the reconciler.
    pub(super) fn adopt(&mut self) {
        let shares = self.shares.clone();
        self.reconciler().set_shares(&shares);
    }

    /// Takes a share away, as the claims do: its files go afterwards.
    pub(super) fn give_back(&mut self, share: &ActiveShare) {
        self.shares.retain(|known| known.claim != share.claim);
        self.adopt();
        fs::remove_dir_all(&share.folder).unwrap();
    }

    /// Another agent takes over.
    pub(super) fn restart(&mut self) {
        self.reconciler = None;
        self.adopt();
    }

    /// Lets time pass.
    pub(super) fn advance(&mut self, time: Duration) {
        self.at += time;
    }

    /// A poll in which the driver counts these mebibytes.
    pub(super) fn look(&mut self, counted: &[(&Program, u64)]) {
        let processes = counted.iter().map(|(program, mebibytes)| GpuProcess {
            pid: program.pid,
            used_bytes: Some(mebibytes * MIB),
        });
        let list = processes.collect();
        self.answer(&PollResult::Answered {
            lists: [(GPU.to_owned(), Ok(list))].into(),
            hanging: BTreeSet::new(),
        });
    }

    /// A poll with this answer of the driver.
    pub(super) fn answer(&mut self, answer: &PollResult) {
        self.at += INTERVAL;
        let at = self.at;
        self.reconciler().reconcile(at, answer);
    }

    /// A poll without an answer of the driver.
    pub(super) fn look_blind(&mut self) {
        self.answer(&PollResult::Answered { lists: BTreeMap::new(), hanging: BTreeSet::new() });
    }

    /// Polls in which the driver gives this answer for a GPU.
    pub(super) fn answer_repeatedly(
        &mut self,
        times: u32,
        message: &Result<Vec<GpuProcess>, DriverError>,
    ) {
        for _ in 0..times {
            let lists = [(GPU.to_owned(), message.clone())].into();
            self.answer(&PollResult::Answered { lists, hanging: BTreeSet::new() });
        }
    }

    /// Polls until a condition holds.
    pub(super) async fn look_until(&mut self, mut is_so: impl FnMut(&Self) -> bool) {
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            self.look(&[]);
            // Test polls take no time: the clock does not advance.
            self.at -= INTERVAL;
            if is_so(self) {
                return;
            }
            assert!(Instant::now() < deadline, "not in time");
            sleep(Duration::from_millis(5)).await;
        }
    }

    /// Sends a frame as a guard does.
    pub(super) fn say(guard: &mut UnixStream, kind: Kind, value: u64, text: &str) {
        guard.write_all(&Frame::new(kind, 0, value, text.as_bytes()).encode()).unwrap();
    }

    /// The words that the share's guards read.
    pub(super) fn live(share: &ActiveShare) -> RuntimeWords {
        LimitsFile::open(&share.folder).unwrap().live().unwrap()
    }

    /// Recorded reports.
    pub(super) fn reported(&self) -> Vec<String> {
        self.notifier.0.lock().unwrap().clone()
    }

    pub(super) fn metrics(&self) -> String {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.registry).unwrap();
        text
    }

    /// A share's figure.
    pub(super) fn metric(&self, name: &str, share: &ActiveShare) -> Option<u64> {
        self.figure(&format!("octavo_agent_share_{name}{{"), &share.claim.name, "")
    }

    /// How often something was done about a share's overflows.
    pub(super) fn overflows(&self, action: &str, share: &ActiveShare) -> Option<u64> {
        let action = format!("action=\"{action}\"");
        self.figure("octavo_agent_share_overflows_total{", &share.claim.name, &action)
    }

    fn figure(&self, start: &str, claim: &str, label: &str) -> Option<u64> {
        let text = self.metrics();
        let claim = format!("claim=\"{claim}\"");
        let is_recorded =
            |line: &&str| line.starts_with(start) && line.contains(&claim) && line.contains(label);
        text.lines().find(is_recorded)?.rsplit(' ').next()?.parse().ok()
    }
}
