//! The binder: takes write operations and returns results. It runs many at once, limited by the API
//! server's load.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use kube::Client;
use tokio::sync::mpsc;
use tokio::task::{self, JoinHandle, JoinSet};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::aimd_limit::AimdLimit;
use super::call::{Api, Call};
use super::claim_sequencer::ClaimSequencer;
use super::leadership::Leadership;
use super::pod::SequencedBind;
use super::rbac_denials::RbacDenials;
use super::settle::SettleBarrier;
use super::{ClaimVersions, Failure, FailureKind, OpId, OpKind, OpResult, WriteOp, evict, pod};
use crate::metrics::Metrics;
use octavo_kube_io::objects::ObjectName;

/// Options of a binder.
#[derive(Clone, Copy, Debug)]
pub struct BinderOptions {
    /// Most operations in flight at once. An overloaded API server lowers it for a while.
    pub max_in_flight: u32,
    /// Operations that may be queued before the sender has to wait.
    pub queue: usize,
    /// Timeout of one request.
    pub timeout: Duration,
    /// How long an operation may retry while the API server is away or overloaded. Its rollback may
    /// take as long again.
    pub retry_timeout: Duration,
    /// How long operations in flight may take at shutdown.
    pub shutdown_grace: Duration,
}

impl Default for BinderOptions {
    fn default() -> Self {
        Self {
            max_in_flight: 64,
            queue: 8192,
            timeout: Duration::from_secs(10),
            retry_timeout: Duration::from_secs(15),
            shutdown_grace: Duration::from_secs(4),
        }
    }
}

/// A running binder.
#[derive(Debug)]
pub struct Binder {
    /// Takes operations. An operation that allocates a claim must be sent before those that only
    /// reserve it. The binder ends when this is dropped and all operations are done.
    pub ops: mpsc::Sender<WriteOp>,
    /// Gives a result for every operation, in the order in which they end. Unbounded, so that a
    /// decision thread which waits for room in `ops` cannot deadlock with it.
    pub results: mpsc::UnboundedReceiver<OpResult>,
    /// The binder's load, for tasks that yield to it.
    pub load: Load,
    /// Ends with the binder. Its value says whether every operation has a known end. If not, the
    /// API server may still carry one out.
    pub task: JoinHandle<bool>,
}

/// The number of unfinished operations of a binder.
#[derive(Clone, Debug, Default)]
pub struct Load(Arc<AtomicUsize>);

impl Load {
    /// Operations in flight or queued.
    pub fn ops(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    pub(crate) fn set(&self, ops: usize) {
        self.0.store(ops, Ordering::Relaxed);
    }
}

/// State that operations share.
struct Shared {
    api: Api,
    aimd: AimdLimit,
    rbac_denials: RbacDenials,
    retry_timeout: Duration,
}

impl Binder {
    /// Starts a binder.
    ///
    /// `client` must not retry requests by itself. A retried create whose first response was lost
    /// makes two objects, and 429 responses would stay unseen. At `stop`, operations in flight get
    /// [`BinderOptions::shutdown_grace`] and queued ones are rejected.
    pub fn start(
        client: Client,
        options: BinderOptions,
        leadership: Leadership,
        metrics: Metrics,
        stop: CancellationToken,
    ) -> Self {
        let BinderOptions { max_in_flight, queue, timeout, retry_timeout, shutdown_grace } =
            options;
        let (ops, waiting) = mpsc::channel(queue.max(1));
        let (result_sender, results) = mpsc::unbounded_channel();
        let load = Load::default();
        let shared = Arc::new(Shared {
            api: Api { client, leadership, metrics, timeout },
            aimd: AimdLimit::new(max_in_flight),
            rbac_denials: RbacDenials::default(),
            retry_timeout,
        });
        let run = BinderTask {
            shared,
            sequencer: ClaimSequencer::default(),
            in_flight: JoinSet::new(),
            op_by_task: HashMap::new(),
            results: result_sender,
            load: load.clone(),
        };
        let task = tokio::spawn(run.run(waiting, shutdown_grace, stop));
        Self { ops, results, load, task }
    }
}

/// The binder's own task.
struct BinderTask {
    shared: Arc<Shared>,
    sequencer: ClaimSequencer,
    in_flight: JoinSet<Result<ClaimVersions, Failure>>,
    /// Per task: number and claims of its operation, for tasks that end without a result.
    op_by_task: HashMap<task::Id, (OpId, Vec<ObjectName>)>,
    results: mpsc::UnboundedSender<OpResult>,
    load: Load,
}

impl BinderTask {
    async fn run(
        mut self,
        mut waiting: mpsc::Receiver<WriteOp>,
        shutdown_grace: Duration,
        stop: CancellationToken,
    ) -> bool {
        let mut is_open = true;
        while is_open || !self.in_flight.is_empty() {
            self.report_load(waiting.len());
            let limit = usize::try_from(self.shared.aimd.limit()).unwrap_or(usize::MAX);
            let has_room = self.in_flight.len() < limit;
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                Some(ended) = self.in_flight.join_next_with_id() => self.finish_task(ended),
                op = waiting.recv(), if is_open && has_room => match op {
                    Some(op) => self.start_op(op),
                    None => is_open = false,
                },
            }
        }
        waiting.close();
        while let Some(op) = waiting.recv().await {
            let message = "the scheduler is shutting down: nothing was written";
            self.report(op.id, Err(Failure::new("waiting", FailureKind::NotLeader, message)));
        }
        let grace_end = tokio::time::sleep(shutdown_grace);
        tokio::pin!(grace_end);
        let mut is_clean = true;
        loop {
            self.report_load(0);
            tokio::select! {
                ended = self.in_flight.join_next_with_id() => match ended {
                    Some(ended) => self.finish_task(ended),
                    None => break,
                },
                () = &mut grace_end => {
                    is_clean = false;
                    self.in_flight.abort_all();
                    while let Some(ended) = self.in_flight.join_next_with_id().await {
                        self.finish_task(ended);
                    }
                }
            }
        }
        is_clean
    }

    fn report_load(&self, waiting: usize) {
        self.load.set(self.in_flight.len() + waiting);
        self.shared.api.metrics.ops(self.in_flight.len(), waiting, self.shared.aimd.limit());
    }

    fn start_op(&mut self, op: WriteOp) {
        let shared = Arc::clone(&self.shared);
        let (id, claims) = (op.id, claim_names(&op.kind));
        let handle = match op.kind {
            OpKind::Bind(bind) => {
                // Places in the claim sequence are taken here, in the order of operations.
                let pending = bind.claims.iter().map(|write| match write.allocation {
                    Some(_) => None,
                    None => self.sequencer.pending(&write.claim.meta.uid),
                });
                let pending = pending.collect();
                let guards = bind.claims.iter().filter_map(|write| {
                    let allocation = &write.allocation.as_ref()?.allocation;
                    Some(self.sequencer.begin(write.claim.uid(), allocation, id))
                });
                let guards = guards.collect();
                let sequenced = SequencedBind { bind, guards, pending };
                self.in_flight.spawn(async move {
                    let barrier = SettleBarrier::default();
                    pod::bind(shared.call(&barrier), || shared.call(&barrier), sequenced).await
                })
            }
            OpKind::Evict(evict) => self.in_flight.spawn(async move {
                evict::evict(shared.call(&SettleBarrier::default()), &evict).await.map(no_claims)
            }),
            OpKind::Nominate { pod, node } => self.in_flight.spawn(async move {
                let barrier = SettleBarrier::default();
                let written = evict::nominate(shared.call(&barrier), &pod, node.as_deref()).await;
                written.map(no_claims)
            }),
            OpKind::RequestVolumes { pod, node, writes } => self.in_flight.spawn(async move {
                let barrier = SettleBarrier::default();
                let written =
                    evict::request_volumes(shared.call(&barrier), &pod, &node, &writes).await;
                written.map(no_claims)
            }),
            OpKind::Rollback { pod, claim } => self.in_flight.spawn(async move {
                let barrier = SettleBarrier::default();
                evict::rollback(shared.call(&barrier), &pod, &claim).await.map(no_claims)
            }),
        };
        self.op_by_task.insert(handle.id(), (id, claims));
    }

    fn finish_task(
        &mut self,
        ended: Result<(task::Id, Result<ClaimVersions, Failure>), task::JoinError>,
    ) {
        let (task, result) = match ended {
            Ok((task, result)) => (task, result),
            Err(error) => {
                let claims = self.op_by_task.get(&error.id()).map(|(_, claims)| claims.clone());
                (error.id(), Err(aborted(claims.unwrap_or_default())))
            }
        };
        if let Some((op, _)) = self.op_by_task.remove(&task) {
            self.sequencer.end(op);
            self.report(op, result);
        }
    }

    fn report(&self, id: OpId, result: Result<ClaimVersions, Failure>) {
        self.shared.api.metrics.op_finished(result.as_ref().err());
        // Without a receiver nothing is left to do for the result.
        let _ = self.results.send(OpResult { id, result });
    }
}

impl Shared {
    fn call<'a>(&'a self, barrier: &'a SettleBarrier) -> Call<'a> {
        Call {
            api: &self.api,
            aimd: &self.aimd,
            rbac_denials: &self.rbac_denials,
            barrier,
            deadline: Instant::now() + self.retry_timeout,
        }
    }
}

/// The result of an operation that leaves no claim allocated.
fn no_claims((): ()) -> ClaimVersions {
    ClaimVersions::new()
}

fn claim_names(task: &OpKind) -> Vec<ObjectName> {
    match task {
        OpKind::Bind(bind) => {
            let made = bind.extended.iter();
            let made = made.map(|_| {
                let namespace = bind.pod.name.namespace.clone();
                ObjectName::new(namespace, super::extended::name(&bind.pod, 0))
            });
            let claims = bind.claims.iter().map(|write| write.claim.meta.name.clone());
            made.chain(claims).collect()
        }
        OpKind::Rollback { claim, .. } => vec![claim.meta.name.clone()],
        OpKind::Evict(_) | OpKind::Nominate { .. } | OpKind::RequestVolumes { .. } => Vec::new(),
    }
}

fn aborted(unreleased: Vec<ObjectName>) -> Failure {
    let message = "the operation was aborted at shutdown: its outcome is unknown";
    Failure { unreleased, ..Failure::new("writing", FailureKind::Indeterminate, message) }
}
