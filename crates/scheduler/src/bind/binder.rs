//! Orders in, outcomes out: many at once, no more than the API server can bear.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use kube::Client;
use tokio::sync::mpsc;
use tokio::task::{self, JoinHandle, JoinSet};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::call::{Api, Call};
use super::leadership::Leadership;
use super::pod::Ordered;
use super::rights::Rights;
use super::sent::Sent;
use super::turns::Turns;
use super::window::Window;
use super::{Failure, FailureKind, Order, OrderId, Outcome, Task, evict, pod};
use crate::metrics::Metrics;
use octavo_kube_io::objects::ObjectName;

/// How a binder works.
#[derive(Clone, Copy, Debug)]
pub struct BinderOptions {
    /// Most orders in flight at once. An overloaded API server makes it fewer for a while.
    pub most_in_flight: u32,
    /// Orders that may wait before the sender has to.
    pub queue: usize,
    /// Longest time for one request.
    pub timeout: Duration,
    /// How long an order may repeat what fails because the API server is away or too busy; what it
    /// undoes may take as long again.
    pub patience: Duration,
    /// How long orders in flight may take when the program ends.
    pub farewell: Duration,
}

impl Default for BinderOptions {
    fn default() -> Self {
        Self {
            most_in_flight: 64,
            queue: 8192,
            timeout: Duration::from_secs(10),
            patience: Duration::from_secs(15),
            farewell: Duration::from_secs(4),
        }
    }
}

/// A binder at work.
#[derive(Debug)]
pub struct Binder {
    /// Takes orders. Where a pod's claim is allocated by one order and only reserved by others, the
    /// first must be sent first. The binder ends when it is dropped and all orders are carried out.
    pub orders: mpsc::Sender<Order>,
    /// Gives an outcome for every order, in the order in which they end. Never full, so that a core which
    /// waits for room in `orders` cannot be waited for.
    pub outcomes: mpsc::UnboundedReceiver<Outcome>,
    /// How much it has to do, for those who let it go first.
    pub load: Load,
    /// Ends with the binder, and says whether all that was begun has its end: if not, the API server may still
    /// carry it out.
    pub task: JoinHandle<bool>,
}

/// How much a binder has to do.
#[derive(Clone, Debug, Default)]
pub struct Load(Arc<AtomicUsize>);

impl Load {
    /// Orders in flight or waiting.
    pub fn orders(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    pub(crate) fn set(&self, orders: usize) {
        self.0.store(orders, Ordering::Relaxed);
    }
}

/// What orders share.
struct Shared {
    api: Api,
    window: Window,
    rights: Rights,
    patience: Duration,
}

impl Binder {
    /// Starts a binder.
    ///
    /// `client` must not repeat requests by itself: a repeated create whose first answer was lost makes
    /// two objects, and refusals for too many requests would stay unseen. At `stop` orders in flight get
    /// [`BinderOptions::farewell`], those that wait are refused.
    pub fn start(
        client: Client,
        options: BinderOptions,
        leadership: Leadership,
        metrics: Metrics,
        stop: CancellationToken,
    ) -> Self {
        let BinderOptions { most_in_flight, queue, timeout, patience, farewell } = options;
        let (orders, waiting) = mpsc::channel(queue.max(1));
        let (ended, outcomes) = mpsc::unbounded_channel();
        let load = Load::default();
        let shared = Arc::new(Shared {
            api: Api { client, leadership, metrics, timeout },
            window: Window::new(most_in_flight),
            rights: Rights::default(),
            patience,
        });
        let run = Run {
            shared,
            turns: Turns::default(),
            flying: JoinSet::new(),
            ids: HashMap::new(),
            ended,
            load: load.clone(),
        };
        let task = tokio::spawn(run.run(waiting, farewell, stop));
        Self { orders, outcomes, load, task }
    }
}

/// The binder's own task.
struct Run {
    shared: Arc<Shared>,
    turns: Turns,
    flying: JoinSet<Result<(), Failure>>,
    /// What flies: number and claims of the order, for those that end without an outcome.
    ids: HashMap<task::Id, (OrderId, Vec<ObjectName>)>,
    ended: mpsc::UnboundedSender<Outcome>,
    load: Load,
}

impl Run {
    async fn run(
        mut self,
        mut waiting: mpsc::Receiver<Order>,
        farewell: Duration,
        stop: CancellationToken,
    ) -> bool {
        let mut is_open = true;
        while is_open || !self.flying.is_empty() {
            self.note(waiting.len());
            let limit = usize::try_from(self.shared.window.limit()).unwrap_or(usize::MAX);
            let has_room = self.flying.len() < limit;
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                Some(ended) = self.flying.join_next_with_id() => self.landed(ended),
                order = waiting.recv(), if is_open && has_room => match order {
                    Some(order) => self.launch(order),
                    None => is_open = false,
                },
            }
        }
        waiting.close();
        while let Some(order) = waiting.recv().await {
            self.end(order.id, Err(refused_at_the_end()));
        }
        let too_late = tokio::time::sleep(farewell);
        tokio::pin!(too_late);
        let mut is_whole = true;
        loop {
            self.note(0);
            tokio::select! {
                ended = self.flying.join_next_with_id() => match ended {
                    Some(ended) => self.landed(ended),
                    None => break,
                },
                () = &mut too_late => {
                    is_whole = false;
                    self.flying.abort_all();
                    while let Some(ended) = self.flying.join_next_with_id().await {
                        self.landed(ended);
                    }
                }
            }
        }
        is_whole
    }

    fn note(&self, waiting: usize) {
        self.load.set(self.flying.len() + waiting);
        self.shared.api.metrics.orders(self.flying.len(), waiting, self.shared.window.limit());
    }

    fn launch(&mut self, order: Order) {
        let shared = Arc::clone(&self.shared);
        let (id, claims) = (order.id, names(&order.task));
        let handle = match order.task {
            Task::Bind(bind) => {
                // Turns are taken here, in the order of orders.
                let awaited = bind.claims.iter().map(|write| match write.allocation {
                    Some(_) => None,
                    None => self.turns.awaited(&write.claim.meta.uid),
                });
                let awaited = awaited.collect();
                let allocating = bind.claims.iter().filter_map(|write| {
                    let allocation = &write.allocation.as_ref()?.allocation;
                    Some(self.turns.allocate(&write.claim.meta.uid, allocation, id.0))
                });
                let allocating = allocating.collect();
                let ordered = Ordered { bind, allocating, awaited };
                self.flying.spawn(async move {
                    let sent = Sent::default();
                    pod::bind(shared.call(&sent), || shared.call(&sent), ordered).await
                })
            }
            Task::Evict(evict) => self
                .flying
                .spawn(async move { evict::evict(shared.call(&Sent::default()), &evict).await }),
            Task::Nominate { pod, node } => self.flying.spawn(async move {
                evict::nominate(shared.call(&Sent::default()), &pod, node.as_deref()).await
            }),
            Task::Undo { pod, claim } => self.flying.spawn(async move {
                evict::undo(shared.call(&Sent::default()), &pod, &claim).await
            }),
        };
        self.ids.insert(handle.id(), (id, claims));
    }

    fn landed(&mut self, ended: Result<(task::Id, Result<(), Failure>), task::JoinError>) {
        let (task, result) = match ended {
            Ok((task, result)) => (task, result),
            Err(error) => {
                let claims = self.ids.get(&error.id()).map(|(_, claims)| claims.clone());
                (error.id(), Err(cut_short(claims.unwrap_or_default())))
            }
        };
        if let Some((order, _)) = self.ids.remove(&task) {
            self.end(order, result);
        }
    }

    fn end(&self, id: OrderId, result: Result<(), Failure>) {
        self.shared.api.metrics.outcome(&result);
        // A core that is gone needs no outcomes.
        let _ = self.ended.send(Outcome { id, result });
    }
}

impl Shared {
    fn call<'a>(&'a self, sent: &'a Sent) -> Call<'a> {
        Call {
            api: &self.api,
            window: &self.window,
            rights: &self.rights,
            sent,
            deadline: Instant::now() + self.patience,
        }
    }
}

fn names(task: &Task) -> Vec<ObjectName> {
    match task {
        Task::Bind(bind) => {
            let made = bind.extended.iter();
            let made = made.map(|_| {
                let namespace = bind.pod.name.namespace.clone();
                ObjectName::new(namespace, super::extended::name(&bind.pod, 0))
            });
            let claims = bind.claims.iter().map(|write| write.claim.meta.name.clone());
            made.chain(claims).collect()
        }
        Task::Undo { claim, .. } => vec![claim.meta.name.clone()],
        Task::Evict(_) | Task::Nominate { .. } => Vec::new(),
    }
}

fn refused_at_the_end() -> Failure {
    Failure {
        stage: "waiting",
        message: "the scheduler is ending: nothing was written".to_owned(),
        kind: FailureKind::NotLeader,
        left: Vec::new(),
    }
}

fn cut_short(left: Vec<ObjectName>) -> Failure {
    Failure {
        stage: "writing",
        message: "the order was cut short: what it wrote is not known".to_owned(),
        kind: FailureKind::Undecided,
        left,
    }
}
