//! The thread that decides: it takes in what is told, decides while this scheduler leads, and hands on what
//! follows. Nothing here waits for a write.

mod standing;

use std::time::Duration;

use octavo_kube_io::watch::{Relist, WatchEvent};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::admin::{AdminQuestion, Explained, Unknown};
use crate::bind::{Failure, FailureKind, Gate, Leadership, Order, OrderId, Outcome};
use crate::core::Core;
use crate::metrics::{Metrics, Subject};
use crate::outside::OutsideTold;
use crate::status::Reports;
use standing::Standing;

/// Changes that are taken in before the next decisions.
const AT_ONCE: usize = 1024;
/// How often the core is told the time at least.
const TICK: Duration = Duration::from_millis(250);

/// The core's clock has no finer steps.
const MILLISECOND: Duration = Duration::from_millis(1);

/// What the deciding thread listens to and speaks into.
pub(crate) struct Ends {
    pub(crate) news: mpsc::Receiver<WatchEvent>,
    /// Asks for lists that are not older than a moment.
    pub(crate) anew: Relist,
    pub(crate) outcomes: mpsc::UnboundedReceiver<Outcome>,
    pub(crate) orders: mpsc::Sender<Order>,
    pub(crate) reports: Reports,
    pub(crate) questions: mpsc::Receiver<AdminQuestion>,
    pub(crate) leadership: Leadership,
    /// Lets those who write write what is decided here.
    pub(crate) gate: Gate,
    pub(crate) metrics: Metrics,
    /// Told once all has been read for the first time.
    pub(crate) synced: Box<dyn FnOnce() + Send>,
    pub(crate) stop: CancellationToken,
}

/// Decides until `stop`, or until nobody tells anything any more.
pub(crate) async fn run(mut core: Core, ends: Ends) {
    let Ends {
        mut news,
        anew,
        mut outcomes,
        orders,
        reports,
        mut questions,
        leadership,
        gate,
        metrics,
        synced,
        stop,
    } = ends;
    let begin = Instant::now();
    let mut synced = Some(synced);
    let mut standing = Standing::default();
    let mut wanted = None;
    let mut has_more = false;
    let mut batch = Vec::with_capacity(AT_ONCE);
    let mut wake = begin;
    let mut outside = OutsideTold::default();
    loop {
        let wait = if has_more { Instant::now() } else { wake };
        tokio::select! {
            biased;
            () = stop.cancelled() => break,
            outcome = outcomes.recv() => match outcome {
                Some(outcome) => core.outcome(&outcome),
                None => break,
            },
            count = news.recv_many(&mut batch, AT_ONCE) => {
                if count == 0 {
                    break;
                }
            }
            Some(question) = questions.recv() => answer(&mut core, question),
            () = tokio::time::sleep_until(wait) => {}
        }
        while let Ok(outcome) = outcomes.try_recv() {
            core.outcome(&outcome);
        }
        // Whatever woke it, nobody is passed over for long.
        while batch.len() < AT_ONCE
            && let Ok(one) = news.try_recv()
        {
            batch.push(one);
        }
        if let Ok(question) = questions.try_recv() {
            answer(&mut core, question);
        }
        for one in batch.drain(..) {
            match one {
                WatchEvent::Change(change) => core.apply(&change),
                WatchEvent::Synced => {
                    if let Some(synced) = synced.take() {
                        synced();
                    }
                }
                WatchEvent::FreshAsOf(at) => {
                    standing.has_read(at);
                    core.read_anew(milliseconds(at.saturating_duration_since(begin)));
                }
            }
        }
        let now = milliseconds(begin.elapsed());
        let next = core.time_is(now);
        let since = if synced.is_none() { leadership.since() } else { None };
        let turn = standing.leads_since(since, core.counts().in_flight == 0);
        let decides = standing.decides();
        if turn.has_ended {
            core.stand_down();
        }
        if let Some(since) = turn.must_read {
            tracing::info!("leading: pods and claims are read anew before anything is decided");
            anew.not_older_than(since);
        }
        let has_forgotten = decides && reports.take_forgotten();
        if has_forgotten || turn.has_begun {
            core.stand_up();
        }
        if turn.has_ended || turn.has_begun {
            gate.open_for(standing.decides_since());
            metrics.leader(decides);
            tracing::info!(is_leading = decides, "leadership");
        }
        let before = Instant::now();
        has_more = decides && core.decide();
        let took = before.elapsed();
        for order in core.take_orders() {
            if !decides {
                core.outcome(&not_sent(order.id));
                continue;
            }
            if orders.send(order).await.is_err() {
                return;
            }
        }
        for report in core.take_reports() {
            if decides {
                reports.send(report);
            }
        }
        let wish = core.wants_reading();
        if wish != wanted {
            wanted = wish;
            // A list that begins within that millisecond may be older than what is meant.
            let after = wish.and_then(|at| Duration::from_millis(at).checked_add(MILLISECOND));
            if let Some(at) = after.and_then(|after| begin.checked_add(after)) {
                anew.not_older_than(at);
            }
        }
        let decided = core.take_decided();
        // The clock is looked at for each round and not for each decision.
        let each = took / u32::try_from(decided.len()).unwrap_or(u32::MAX).max(1);
        for one in decided {
            let subject = if one.is_gang { Subject::Gang } else { Subject::Pod };
            metrics.decided(subject, one.result, one.reason, each);
        }
        metrics.undos_given_up(core.take_given_up());
        tell(&core, &metrics);
        if synced.is_none() {
            // Before, half is known of most nodes.
            outside.tell(core.outside(), &metrics);
        }
        let at = next.map_or(TICK, |next| Duration::from_millis(next.saturating_sub(now)));
        wake = Instant::now() + at.min(TICK);
    }
}

/// A time by the core's clock.
fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// What becomes of an order that follows from what was decided when this scheduler led before.
fn not_sent(id: OrderId) -> Outcome {
    let failure = Failure {
        stage: "waiting",
        message:
            "this scheduler does not lead, or has not yet read what others wrote before it did: \
                  nothing was written"
                .to_owned(),
        kind: FailureKind::NotLeader,
        left: Vec::new(),
    };
    Outcome { id, result: Err(failure) }
}

/// Tells the metrics how much is where.
fn tell(core: &Core, metrics: &Metrics) {
    let counts = core.counts();
    metrics.queue("waiting", counts.waiting);
    metrics.queue("ready", counts.ready);
    metrics.queue("inFlight", counts.in_flight);
    metrics.queue("promised", counts.promised);
    metrics.queue("clashes", counts.clashes);
}

pub(crate) fn answer(core: &mut Core, question: AdminQuestion) {
    let json = |value: Result<serde_json::Value, serde_json::Error>| {
        value.map_err(|error| Unknown(error.to_string()))
    };
    match question {
        AdminQuestion::Explain { subject, name, answer } => {
            let (found, kind) = match subject {
                Explained::Pod => (core.explain_pod(&name), "pod"),
                Explained::PodGroup => (core.explain_group(&name), "gang with pods"),
            };
            answer.give(match found {
                Some(found) => {
                    let is_open = found.is_open;
                    json(serde_json::to_value(found)).map(|said| (said, is_open))
                }
                None => Err(Unknown(format!("there is no {kind} {name}"))),
            });
        }
        AdminQuestion::Search { subject, name, answer } => answer.give(Ok(match subject {
            Explained::Pod => core.search_for_pod(&name),
            Explained::PodGroup => core.search_for_group(&name),
        })),
        AdminQuestion::Found { found, answer } => answer.give(Ok(core.take_found(*found))),
        AdminQuestion::Snapshot { answer } => {
            answer.give(json(serde_json::to_value(core.snapshot())));
        }
        AdminQuestion::Record { subject, name, answer } => {
            let (found, kind, key) = match subject {
                Explained::Pod => (core.recorded_pod(&name), "pod", "podRecords"),
                Explained::PodGroup => (core.recorded(&name), "gang", "records"),
            };
            answer.give(match found {
                Some(recorded) => json(serde_json::to_value(recorded)),
                None => Err(Unknown(format!(
                    "no decision on the {kind} {name} is recorded; the config's `{key}` says how many \
                     are kept"
                ))),
            });
        }
    }
}

#[cfg(test)]
mod tests;
