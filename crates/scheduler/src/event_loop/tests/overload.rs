//! The API server answers 429 for a minute, to all writes: nothing is lost, and all goes on afterwards.

use tokio::time::sleep;

use super::whole::{Whole, pod};
use super::*;

const MINUTE: Duration = Duration::from_mins(1);
/// Operations that the binder may have in flight.
const MAX_IN_FLIGHT: u64 = 64;

/// With which 429 the server answers.
const FAULTS: [InjectedFault; 3] =
    [InjectedFault::Status(429), InjectedFault::Overloaded(1), InjectedFault::Overloaded(3600)];

fn numbered(stem: &str, count: usize) -> Vec<String> {
    (0..count).map(|number| format!("{stem}-{number}")).collect()
}

fn op_limit(whole: &Whole) -> Option<u64> {
    whole.metric("octavo_scheduler_orders_limit")
}

/// From now on all requests fail.
fn overload(whole: &Whole, fault: InjectedFault) {
    whole.api.inject_from(whole.api.count(), fault);
}

#[tokio::test(start_paused = true)]
async fn binds_that_meet_429_for_a_minute_are_done_afterwards_and_the_limit_recovers() {
    for fault in FAULTS {
        let mut whole = Whole::new(&["a", "b", "c", "d"]).await;
        let first = numbered("first", 100);
        overload(&whole, fault);
        for name in &first {
            whole.create(pod(name, "10m", 0)).await;
        }
        sleep(MINUTE).await;
        assert_eq!(whole.api.writes().len(), 0);
        assert!(op_limit(&whole) < Some(MAX_IN_FLIGHT / 2), "{fault:?}: {:?}", op_limit(&whole));
        whole.api.clear_faults();
        let is_bound = |whole: &Whole, names: &[String]| {
            names.iter().all(|name| whole.node_of(name).is_some())
        };
        whole.until("each is bound", &first, |whole| is_bound(whole, &first)).await;
        // Additive increase: each response in time allows a little more.
        let next = numbered("next", 150);
        for name in &next {
            whole.create(pod(name, "1m", 0)).await;
        }
        whole.until("new ones are bound", &next, |whole| is_bound(whole, &next)).await;
        let low = op_limit(&whole);
        assert!(low > Some(15), "{fault:?}: {low:?}");
        let bindings = whole.api.writes().into_iter().filter(|write| write.ends_with("/binding"));
        assert_eq!(bindings.count(), 250, "each is bound once");
        whole.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn evictions_that_meet_429_for_a_minute_are_repeated_afterwards() {
    for fault in FAULTS {
        let mut whole = Whole::new(&["a", "b"]).await;
        let low = numbered("low", 2);
        for name in &low {
            whole.create(pod(name, "4", 0)).await;
        }
        let all = [low.clone(), vec!["high".to_owned(), "beside".to_owned()]].concat();
        whole
            .until("both run", &all, |whole| low.iter().all(|name| whole.node_of(name).is_some()))
            .await;
        overload(&whole, fault);
        whole.create(pod("high", "4", 100)).await;
        sleep(MINUTE).await;
        assert!(low.iter().all(|name| whole.node_of(name).is_some()), "no pod is evicted yet");
        whole.api.clear_faults();
        whole.until("the preemptor runs", &all, |whole| whole.node_of("high").is_some()).await;
        let left = low.iter().filter(|name| whole.node_of(name).is_some()).count();
        assert_eq!(left, 1, "{fault:?}: one victim is enough");
        whole.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_budgets_429_ends_one_preemption_and_delays_no_other_pod() {
    let mut whole = Whole::new(&["a"]).await;
    let all = ["low-0", "high", "beside"].map(str::to_owned);
    whole.create(pod("low-0", "3", 0)).await;
    whole.until("it runs", &all, |whole| whole.node_of("low-0").is_some()).await;
    // The server knows of the closed budget before the watch does.
    whole.budget("low", 1).await;
    whole.api.forbid_evictions("Cannot evict pod as it would violate the pod's disruption budget.");
    whole.create(pod("high", "3", 100)).await;
    whole.create(pod("beside", "1", 0)).await;
    whole.until("another is bound", &all, |whole| whole.node_of("beside").is_some()).await;
    whole
        .until("its condition is written", &all, |whole| {
            whole.condition("high").is_some_and(|(reason, message)| {
                reason == "Unschedulable" && !message.contains("nominated")
            })
        })
        .await;
    assert!(whole.node_of("low-0").is_some());
    whole.end().await;
}

#[tokio::test(start_paused = true)]
async fn statuses_that_meet_429_for_a_minute_are_written_once_afterwards() {
    for fault in FAULTS {
        let mut whole = Whole::new(&["a"]).await;
        let names = numbered("large", 50);
        overload(&whole, fault);
        for name in &names {
            whole.create(pod(name, "8", 0)).await;
        }
        sleep(MINUTE).await;
        whole.api.clear_faults();
        let begin = Instant::now();
        whole
            .until("each has its condition", &names, |whole| {
                names.iter().all(|name| whole.condition(name).is_some())
            })
            .await;
        // However long the server asked to wait.
        assert!(begin.elapsed() < 2 * MINUTE, "{fault:?}: {:?}", begin.elapsed());
        sleep(MINUTE).await;
        let writes = whole.api.writes();
        let patches = writes.iter().filter(|write| write.ends_with("/status")).count();
        assert_eq!(patches, names.len(), "{fault:?}");
        whole.end().await;
    }
}
