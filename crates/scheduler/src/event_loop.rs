//! The decision thread: applies watch events, decides while this scheduler leads, and hands out
//! write operations and reports. It never waits for a write.

mod leader_sync;
mod observed_clock;

use std::time::{Duration, SystemTime};

use octavo_kube_io::watch::{Relist, WatchEvent};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::admin::{AdminQuestion, ExplainSubject, NotFound};
use crate::bind::{Failure, FailureKind, FencingGate, Leadership, OpId, OpResult, WriteOp};
use crate::metrics::Metrics;
use crate::state::{MetricEvent, Scheduler};
use crate::status::StatusSender;
use crate::unmodeled_nodes::UnmodeledNodesReporter;
use leader_sync::LeaderSync;
use observed_clock::ObservedClock;

/// Watch events that are applied before the next decisions.
const MAX_EVENT_BATCH: usize = 1024;
/// Maximum time between two ticks of the scheduler's clock.
const MAX_TICK_INTERVAL: Duration = Duration::from_millis(250);

/// Channels of the decision thread.
pub(crate) struct Channels {
    pub(crate) watch_events: mpsc::Receiver<WatchEvent>,
    /// Requests lists that are no older than an instant.
    pub(crate) relists: Relist,
    pub(crate) op_results: mpsc::UnboundedReceiver<OpResult>,
    pub(crate) write_ops: mpsc::Sender<WriteOp>,
    pub(crate) reports: StatusSender,
    pub(crate) questions: mpsc::Receiver<AdminQuestion>,
    pub(crate) leadership: Leadership,
    /// Opens the gate for writers while this scheduler decides.
    pub(crate) gate: FencingGate,
    pub(crate) metrics: Metrics,
    /// Called once all lists have been read for the first time.
    pub(crate) synced: Box<dyn FnOnce() + Send>,
    pub(crate) stop: CancellationToken,
}

/// Runs until `stop`, or until a channel closes.
pub(crate) async fn run(mut scheduler: Scheduler, channels: Channels) {
    let Channels {
        mut watch_events,
        relists,
        mut op_results,
        write_ops,
        reports,
        mut questions,
        leadership,
        gate,
        metrics,
        synced,
        stop,
    } = channels;
    let mut clock = ObservedClock::start(Instant::now());
    let mut synced = Some(synced);
    let mut leader_sync = LeaderSync::default();
    let mut relist_wanted = None;
    let mut may_have_more = false;
    let mut batch = Vec::with_capacity(MAX_EVENT_BATCH);
    let mut results = Vec::new();
    let mut next_wake = Instant::now();
    let mut unmodeled = UnmodeledNodesReporter::default();
    // At most one runs.
    let mut hint_searches = JoinSet::new();
    let mut found_hint = None;
    loop {
        let wait = if may_have_more { Instant::now() } else { next_wake };
        tokio::select! {
            biased;
            () = stop.cancelled() => break,
            result = op_results.recv() => match result {
                Some(result) => results.push(result),
                None => break,
            },
            count = watch_events.recv_many(&mut batch, MAX_EVENT_BATCH) => {
                if count == 0 {
                    break;
                }
            }
            Some(question) = questions.recv() => answer(&mut scheduler, question),
            Some(Ok(found)) = hint_searches.join_next() => found_hint = Some(found),
            () = tokio::time::sleep_until(wait) => {}
        }
        scheduler.advance_clock(clock.advance(Instant::now()));
        scheduler.set_wall_clock(unix_seconds(SystemTime::now()));
        while let Ok(result) = op_results.try_recv() {
            results.push(result);
        }
        for result in results.drain(..) {
            scheduler.complete_op(&result);
        }
        // Whatever woke the loop, no channel starves.
        while batch.len() < MAX_EVENT_BATCH
            && let Ok(event) = watch_events.try_recv()
        {
            batch.push(event);
        }
        if let Ok(question) = questions.try_recv() {
            answer(&mut scheduler, question);
        }
        let ended = found_hint.take().or_else(|| hint_searches.try_join_next()?.ok());
        if let Some(found) = ended {
            scheduler.store_hint_result(&found);
        }
        for event in batch.drain(..) {
            match event {
                WatchEvent::Change(change) => scheduler.apply(&change),
                WatchEvent::Synced => {
                    if let Some(synced) = synced.take() {
                        synced();
                    }
                }
                WatchEvent::FreshAsOf(at) => {
                    leader_sync.record_relist(at);
                    scheduler.on_relist(clock.time_of(at));
                }
            }
        }
        let now = clock.advance(Instant::now());
        let next = scheduler.tick(now);
        let since = if synced.is_none() { leadership.since() } else { None };
        let transition = leader_sync.observe_term(since, scheduler.counts().in_flight == 0);
        let is_deciding = leader_sync.is_deciding();
        if transition.stopped_deciding {
            scheduler.on_leadership_lost();
        }
        if let Some(since) = transition.relist_since {
            tracing::info!("leading: pods and claims are listed again before the first decision");
            relists.not_older_than(since);
        }
        let has_forgotten = is_deciding && reports.take_cleared();
        if has_forgotten || transition.started_deciding {
            scheduler.on_leadership_acquired();
        }
        if transition.stopped_deciding || transition.started_deciding {
            gate.open_for(leader_sync.deciding_since());
            metrics.leader(is_deciding);
            tracing::info!(is_leading = is_deciding, "leadership");
        }
        let before = Instant::now();
        may_have_more = is_deciding && scheduler.decide();
        let took = before.elapsed();
        if is_deciding
            && hint_searches.is_empty()
            && let Some(search) = scheduler.due_hint_search()
        {
            hint_searches.spawn_blocking(|| search.run());
        }
        for op in scheduler.take_ops() {
            if !is_deciding {
                scheduler.complete_op(&not_sent(op.id));
                continue;
            }
            if write_ops.send(op).await.is_err() {
                return;
            }
        }
        for report in scheduler.take_reports() {
            if is_deciding {
                reports.send(report);
            }
        }
        // A list that began within that millisecond may be older than required.
        let relist_needed = scheduler.relist_needed_since().map(|at| at.saturating_add(1));
        let relist_needed = relist_needed.and_then(|at| clock.instant_of(at));
        if relist_needed != relist_wanted {
            relist_wanted = relist_needed;
            if let Some(at) = relist_needed {
                relists.not_older_than(at);
            }
        }
        record_events(&scheduler.take_metric_events(), took, &metrics);
        metrics.claim_rollbacks_abandoned(scheduler.take_abandoned_rollbacks());
        report_counts(&scheduler, &metrics);
        if synced.is_none() {
            // Before that most nodes are incomplete.
            unmodeled.report(scheduler.unmodeled(), &metrics);
        }
        let at =
            next.map_or(MAX_TICK_INTERVAL, |next| Duration::from_millis(next.saturating_sub(now)));
        next_wake = Instant::now() + at.min(MAX_TICK_INTERVAL);
    }
}

/// A time in seconds since 1970.
fn unix_seconds(at: SystemTime) -> u64 {
    at.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// The result of an operation that was decided in an earlier term and is not sent.
fn not_sent(id: OpId) -> OpResult {
    let message = "this scheduler does not lead, or has not yet listed what the previous leader \
                   wrote: nothing was written";
    OpResult { id, result: Err(Failure::new("waiting", FailureKind::NotLeader, message)) }
}

/// Counts the events of a cycle whose decisions took this time in all.
fn record_events(events: &[MetricEvent], took: Duration, metrics: &Metrics) {
    let decisions =
        events.iter().filter(|event| matches!(event, MetricEvent::Decided { .. })).count();
    // The clock is read once for each cycle, not for each decision.
    let each = took / u32::try_from(decisions).unwrap_or(u32::MAX).max(1);
    for event in events {
        match *event {
            MetricEvent::Decided { subject, result, reason } => {
                metrics.decided(subject, result, reason, each);
            }
            MetricEvent::PodBound { after_ms } => metrics.bound(Duration::from_millis(after_ms)),
            MetricEvent::Preempted(subject) => metrics.preempted(subject),
        }
    }
}

/// Reports the state's counts as metrics.
fn report_counts(scheduler: &Scheduler, metrics: &Metrics) {
    let counts = scheduler.counts();
    metrics.queue("waiting", counts.waiting);
    metrics.queue("ready", counts.ready);
    metrics.queue("inFlight", counts.in_flight);
    metrics.queue("nominated", counts.nominated);
    metrics.queue("clashes", counts.clashes);
    for (phase, count) in scheduler.gang_phases() {
        metrics.gangs(phase, count);
    }
}

pub(crate) fn answer(scheduler: &mut Scheduler, question: AdminQuestion) {
    let json = |value: Result<serde_json::Value, serde_json::Error>| {
        value.map_err(|error| NotFound(error.to_string()))
    };
    match question {
        AdminQuestion::Explain { subject, name, answer } => {
            let (found, kind) = match subject {
                ExplainSubject::Pod => (scheduler.explain_pod(&name), "pod"),
                ExplainSubject::PodGroup => (scheduler.explain_group(&name), "gang with pods"),
            };
            answer.send(match found {
                Some(found) => {
                    let needs_search = found.needs_search;
                    json(serde_json::to_value(found)).map(|report| (report, needs_search))
                }
                None => Err(NotFound(format!("there is no {kind} {name}"))),
            });
        }
        AdminQuestion::Search { subject, name, answer } => answer.send(Ok(match subject {
            ExplainSubject::Pod => scheduler.hint_search_for_pod(&name),
            ExplainSubject::PodGroup => scheduler.hint_search_for_group(&name),
        })),
        AdminQuestion::Found { found, answer } => {
            scheduler.store_hint_result(&found);
            answer.send(Ok(()));
        }
        AdminQuestion::Snapshot { answer } => {
            answer.send(json(serde_json::to_value(scheduler.snapshot())));
        }
        AdminQuestion::Record { subject, name, answer } => {
            let (found, kind, key) = match subject {
                ExplainSubject::Pod => {
                    (scheduler.recorded_pod_decision(&name), "pod", "podRecords")
                }
                ExplainSubject::PodGroup => {
                    (scheduler.recorded_group_decision(&name), "gang", "records")
                }
            };
            answer.send(match found {
                Some(recorded) => json(serde_json::to_value(recorded)),
                None => Err(NotFound(format!(
                    "no decision on the {kind} {name} is recorded; set `{key}` in the scheduler's \
                     config to record decisions"
                ))),
            });
        }
    }
}

#[cfg(test)]
mod tests;
