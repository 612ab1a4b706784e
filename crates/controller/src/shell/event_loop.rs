//! The loop: changes in, plans out. It alone has the store and the queue.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use jiff::Timestamp;
use octavo_api::compute_domain::Readiness;
use octavo_kube_io::lease;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::leadership::Leadership;
use super::queue::{Outcome, Queue};
use super::writer::{WriteError, Writer, kind};
use crate::config::Config;
use crate::metrics::Metrics;
use crate::plan::{Plan, Warning, Write, plan};
use crate::store::{Change, Key, Store};
use crate::switch::{self, SwitchRefused};
use crate::view::{ClaimPod, Domain};

/// Least time between two writes of a domain's status.
const STATUS_INTERVAL: Duration = Duration::from_secs(1);
/// Least time between two assignments of a domain's indices: daemons that start together get theirs together.
const INDEX_INTERVAL: Duration = Duration::from_millis(200);
/// Time between two looks at the age of a certificate.
const CERTIFICATE_INTERVAL: Duration = Duration::from_hours(24);
/// Failures of a domain's plans in a row that are worth a warning. A few are usual: others write the same objects.
const LASTING_FAILURES: u32 = 5;
/// Writes of one plan at the same time.
const MAX_WRITES: usize = 16;

/// What the loop listens to.
pub(super) struct Inputs {
    pub(super) changes: mpsc::Receiver<Change>,
    /// Pods that are to be read. Changes answer.
    pub(super) pods: mpsc::UnboundedSender<ClaimPod>,
    /// Changes of the lease; `None` without leader election.
    pub(super) lease: Option<watch::Receiver<lease::Leadership>>,
    /// Called once every kind was listed, unless the settings are refused. The lease may be asked for then.
    pub(super) synced: Option<Box<dyn FnOnce() + Send>>,
    pub(super) stop: CancellationToken,
}

/// What a running plan sends.
enum Message {
    /// A write left this.
    Left(Box<Change>),
    /// A write did not find this.
    Absent(Key),
    /// All writes of a domain's plan were tried. The last problem, if one failed.
    Done { uid: String, outcome: Outcome, problem: Option<String> },
}

/// What is remembered of a domain between plans.
#[derive(Default)]
struct Memory {
    last_status: Option<Instant>,
    last_indices: Option<Instant>,
    /// Warnings that were reported and still hold.
    warnings: BTreeSet<Warning>,
}

pub(super) struct EventLoop<W> {
    config: Config,
    writer: Arc<W>,
    leadership: Leadership,
    metrics: Metrics,
    store: Store,
    queue: Queue,
    memory: BTreeMap<String, Memory>,
    sender: mpsc::UnboundedSender<Message>,
    messages: mpsc::UnboundedReceiver<Message>,
    /// Whether it led when it last looked.
    was_leading: bool,
    is_synced: bool,
    /// Why the settings cannot be used: the loop ends.
    refused: Option<SwitchRefused>,
}

impl<W: Writer> EventLoop<W> {
    pub(super) fn new(config: Config, writer: W, leadership: Leadership, metrics: Metrics) -> Self {
        let (sender, messages) = mpsc::unbounded_channel();
        let store = Store::new(config.services());
        Self {
            config,
            writer: Arc::new(writer),
            leadership,
            metrics,
            store,
            queue: Queue::default(),
            memory: BTreeMap::new(),
            sender,
            messages,
            was_leading: false,
            is_synced: false,
            refused: None,
        }
    }

    /// Runs until `stop`, and then until the writes in flight have ended. It ends itself if the settings are refused.
    pub(super) async fn run(mut self, mut inputs: Inputs) -> Result<(), SwitchRefused> {
        loop {
            self.look_at_lease();
            if let Some(refused) = self.refused.take() {
                return Err(refused);
            }
            for pod in self.store.take_unread() {
                // Without a reader the process is about to end.
                let _ = inputs.pods.send(pod);
            }
            self.start_due();
            let wake = if self.can_plan() { self.queue.next_due() } else { None };
            tokio::select! {
                biased;
                () = inputs.stop.cancelled() => break,
                Some(message) = self.messages.recv() => self.receive(message),
                () = lease_changed(&mut inputs.lease) => {}
                Some(change) = inputs.changes.recv() => {
                    self.apply(change);
                    // A burst is planned once.
                    while let Ok(change) = inputs.changes.try_recv() {
                        self.apply(change);
                    }
                    if !self.is_synced && self.store.is_complete() && self.may_lead() {
                        self.is_synced = true;
                        if let Some(synced) = inputs.synced.take() {
                            synced();
                        }
                    }
                    self.count_domains();
                }
                () = at(wake) => {}
            }
        }
        while self.queue.is_running() {
            match self.messages.recv().await {
                Some(message) => self.receive(message),
                None => break,
            }
        }
        Ok(())
    }

    /// Whether the domains allow the settings. Those of another controller may have got pods while this one waited.
    fn may_lead(&mut self) -> bool {
        self.refused = switch::check(&self.store, self.config.imex).err();
        self.refused.is_none()
    }

    fn can_plan(&self) -> bool {
        self.was_leading && self.is_synced
    }

    fn look_at_lease(&mut self) {
        let is_leading = self.leadership.is_leading();
        if is_leading && !self.was_leading && (!self.is_synced || self.may_lead()) {
            // The watches went on; what the last leader left undone is done now.
            let now = Instant::now();
            for uid in self.store.all_uids() {
                self.queue.mark(&uid, now);
            }
            self.memory.clear();
            self.store.forget_decisions();
        }
        self.was_leading = is_leading;
        self.metrics.leader(is_leading);
    }

    fn apply(&mut self, change: Change) {
        let concerned = self.store.apply(change);
        self.mark(&concerned);
    }

    fn receive(&mut self, message: Message) {
        match message {
            Message::Left(change) => {
                let concerned = self.store.apply_own(*change);
                self.mark(&concerned);
                self.count_domains();
            }
            Message::Absent(key) => {
                let concerned = self.store.forget(&key);
                self.mark(&concerned);
            }
            Message::Done { uid, outcome, problem } => {
                let failures = self.queue.done(&uid, outcome, Instant::now());
                if let Some(problem) = problem.filter(|_| failures == LASTING_FAILURES) {
                    let domain = self.store.view(&uid).domain;
                    let domain = domain.map_or(uid, |domain| domain.full_name());
                    tracing::warn!(%domain, problem, "writes have failed {failures} times in a row; they are tried on");
                }
            }
        }
    }

    fn mark(&mut self, uids: &BTreeSet<String>) {
        let now = Instant::now();
        for uid in uids {
            self.queue.mark(uid, now);
        }
    }

    fn count_domains(&self) {
        let is_ready = |domain: &&Domain| {
            domain.status.as_ref().is_some_and(|status| status.status == Readiness::Ready)
        };
        let (all, ready) =
            (self.store.domains().count(), self.store.domains().filter(is_ready).count());
        self.metrics.domains(ready, all - ready);
    }

    fn start_due(&mut self) {
        while self.can_plan()
            && let Some(uid) = self.queue.take(Instant::now())
        {
            self.start(uid);
        }
    }

    fn start(&mut self, uid: String) {
        let now = Instant::now();
        let mut view = self.store.view(&uid);
        view.now = Timestamp::now();
        if self.config.imex.encryption && (view.domain.is_some() || view.secret.is_some()) {
            // No change says that a certificate has become old.
            self.queue.mark(&uid, now + CERTIFICATE_INTERVAL);
        }
        let mut plan = plan(&view, &self.config);
        self.metrics.planned(now.elapsed());
        // The channels of pods that outlive a removed domain stay taken.
        if view.domain.is_some() || view.claims.is_empty() {
            self.store.decide(&uid, plan.channels(&view));
        }
        if view.domain.is_none() && plan.writes.is_empty() {
            self.memory.remove(&uid);
            self.queue.done(&uid, Outcome::Done, now);
            return;
        }
        let memory = self.memory.entry(uid.clone()).or_default();
        let mut rest = Outcome::Done;
        if plan.status.is_some()
            && let Some(due) = not_before(&mut memory.last_status, STATUS_INTERVAL, now)
        {
            plan.status = None;
            rest = Outcome::Deferred;
            self.queue.mark(&uid, due);
        }
        let is_index = |write: &Write| matches!(write, Write::AssignIndices { .. });
        if plan.writes.iter().any(is_index)
            && let Some(due) = not_before(&mut memory.last_indices, INDEX_INTERVAL, now)
        {
            plan.writes.retain(|write| !is_index(write));
            rest = Outcome::Deferred;
            self.queue.mark(&uid, due);
        }
        let warnings: BTreeSet<Warning> = std::mem::take(&mut plan.warnings).into_iter().collect();
        plan.warnings = warnings.difference(&memory.warnings).cloned().collect();
        memory.warnings = warnings;
        if plan == Plan::default() {
            self.queue.done(&uid, rest, now);
            return;
        }
        let (writer, sender) = (Arc::clone(&self.writer), self.sender.clone());
        tokio::spawn(carry_out(writer, (uid, view.domain), plan, rest, sender));
    }
}

/// When a kind of write is due, if that is later than `now`. Else it is done now.
fn not_before(last: &mut Option<Instant>, interval: Duration, now: Instant) -> Option<Instant> {
    let due = last.map(|last| last + interval).filter(|due| *due > now);
    if due.is_none() {
        *last = Some(now);
    }
    due
}

/// Carries out a plan. Its writes do not depend on each other. `rest` is the outcome if all succeed.
async fn carry_out<W: Writer>(
    writer: Arc<W>,
    (uid, domain): (String, Option<Domain>),
    plan: Plan,
    rest: Outcome,
    sender: mpsc::UnboundedSender<Message>,
) {
    let Plan { writes, status, warnings } = plan;
    let mut problem = None;
    let results = futures::stream::iter(writes.into_iter().chain(status)).map(|write| {
        let writer = &writer;
        async move { (kind(&write), writer.write(&write).await) }
    });
    let mut results = std::pin::pin!(results.buffer_unordered(MAX_WRITES));
    while let Some((kind, result)) = results.next().await {
        match result {
            Ok(change) => {
                // The loop listens until this plan is done.
                let _ = sender.send(Message::Left(Box::new(change)));
            }
            Err(error) => {
                problem = Some(format!("{kind}: {error}"));
                report(&uid, domain.as_ref(), kind, &error);
                if let WriteError::Absent(key) = error {
                    let _ = sender.send(Message::Absent(key));
                }
            }
        }
    }
    let outcome = if problem.is_some() { Outcome::Failed } else { rest };
    let _ = sender.send(Message::Done { uid, outcome, problem });
    // Each may take seconds while the server is slow, and nothing depends on it.
    for warning in &warnings {
        writer.report(domain.as_ref(), warning).await;
    }
}

fn report(uid: &str, domain: Option<&Domain>, kind: &str, error: &WriteError) {
    let domain = domain.map_or_else(|| uid.to_owned(), Domain::full_name);
    match error {
        WriteError::NotLeader | WriteError::Conflict(_) | WriteError::Absent(_) => {
            tracing::debug!(%domain, kind, %error, "a write was not done");
        }
        WriteError::Failed(_) | WriteError::Timeout(_) => {
            tracing::warn!(%domain, kind, %error, "a write failed; it is tried again");
        }
    }
}

async fn lease_changed(lease: &mut Option<watch::Receiver<lease::Leadership>>) {
    if let Some(receiver) = lease
        && receiver.changed().await.is_ok()
    {
        return;
    }
    std::future::pending::<()>().await;
}

async fn at(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => std::future::pending().await,
    }
}
