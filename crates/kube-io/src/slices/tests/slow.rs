//! API servers that are too slow for a whole pool.

use super::*;

fn generations(api: &SliceApi) -> Vec<(i64, i64)> {
    let pool =
        |slice: ResourceSlice| (slice.spec.pool.generation, slice.spec.pool.resource_slice_count);
    api.slices().into_iter().map(pool).collect()
}

#[tokio::test(start_paused = true)]
async fn written_slices_are_not_rewritten_when_a_later_one_fails() {
    let api = SliceApi::default();
    let mut running = Running::start(&api, None);
    api.fail_writes(&[500]);
    running.want(pool(600));
    running.until_writes(5).await;
    assert_eq!(api.writes().len(), 6, "one more than slices");
    assert_eq!(generations(&api), [(1, 5); 5]);
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_write_that_was_done_and_not_answered_is_seen_by_the_watch() {
    let api = SliceApi::default();
    api.leave_unanswered(&[false, true]);
    let mut running = Running::start(&api, Some(pool(300)));
    running.until_writes(2).await;
    assert_eq!(api.writes(), ["POST", "POST", "POST"]);
    assert_eq!(generations(&api), [(1, 3); 3]);
    // The same for replaced slices.
    api.leave_unanswered(&[true, true]);
    running.want(tainted(130));
    let published =
        |state: &PublishState| matches!(state, PublishState::Published { writes: 3, .. });
    timeout(DEADLINE, running.state.wait_for(published)).await.unwrap().unwrap();
    assert_eq!(api.writes().len(), 6);
    assert_eq!(generations(&api), [(2, 3); 3]);
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_write_that_was_done_and_not_answered_is_found_by_the_next_one() {
    let api = SliceApi::default();
    let mut running = Running::start(&api, Some(pool(300)));
    running.until_writes(3).await;
    api.mute(true);
    api.leave_unanswered(&[false, true]);
    running.want(tainted(130));
    running.until_writes(5).await;
    let names = ["000", "001", "001", "002"].map(|last| format!("PUT node-gpu.nvidia.com-{last}"));
    assert_eq!(api.writes()[3..], names, "the second try meets what the first one did");
    assert_eq!(generations(&api), [(2, 3); 3]);
    // The events of all that change nothing.
    api.mute(false);
    for _ in 0..200 {
        tokio::task::yield_now().await;
    }
    assert_eq!(api.writes().len(), 7);
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_create_without_answer_is_found_at_the_next_attempt() {
    let api = SliceApi::default();
    let mut running = Running::start(&api, None);
    // The watch must be open before its events are withheld.
    while api.queries().len() < 2 {
        tokio::task::yield_now().await;
    }
    api.mute(true);
    api.leave_unanswered(&[true]);
    let begun = Instant::now();
    running.want(pool(300));
    running.until_writes(2).await;
    assert!(begun.elapsed() <= Duration::from_secs(4), "{:?}: one pause", begun.elapsed());
    assert_eq!(api.writes(), ["POST", "POST", "POST", "POST"]);
    assert_eq!(generations(&api), [(1, 3); 3]);
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_foreign_slice_with_our_name_is_kept() {
    let api = SliceApi::default();
    let mut running = Running::start(&api, None);
    while api.queries().len() < 2 {
        tokio::task::yield_now().await;
    }
    api.mute(true);
    let mut stranger = ResourceSlice::default();
    stranger.metadata.name = Some("node-gpu.nvidia.com-000".to_owned());
    stranger.spec.driver = "other".to_owned();
    stranger.spec.node_name = Some("node".to_owned());
    api.put(&stranger);
    running.want(pool(1));
    running.until_writes(1).await;
    let drivers: Vec<_> = api.slices().into_iter().map(|slice| slice.spec.driver).collect();
    assert_eq!(drivers, ["other", "gpu.nvidia.com"]);
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_overloaded_server_gets_longer_pauses() {
    let mut pauses = Vec::new();
    for code in [500, 429] {
        let api = SliceApi::default();
        api.fail_writes(&[code]);
        let begun = Instant::now();
        let mut running = Running::start(&api, Some(pool(1)));
        running.until_writes(1).await;
        pauses.push(begun.elapsed());
        running.stop().await;
    }
    assert!(pauses[0] < Duration::from_secs(1), "{pauses:?}");
    assert!(pauses[1] >= Duration::from_secs(2), "{pauses:?}");
}

#[test]
fn a_timeout_is_overload_and_a_refusal_is_none() {
    let elapsed = tower::timeout::error::Elapsed::new();
    assert!(is_overloaded(&kube::Error::Service(Box::new(elapsed))));
    assert!(!is_overloaded(&kube::Error::Service("refused".into())));
}
