use std::sync::Arc;

use super::*;
use crate::health::GpuState;
use crate::testing;

#[tokio::test(start_paused = true)]
async fn an_idle_stream_repeats_itself_before_the_kubelet_loses_trust() {
    let snapshot =
        Snapshot { inventory: Some(Arc::new(testing::inventory(1))), ..Snapshot::default() };
    let (_sender, receiver) = watch::channel(snapshot);
    let service = HealthService::new("node", receiver, CancellationToken::new());
    let mut states = service.states();
    assert_eq!(states.next().await.unwrap().len(), 1);
    let started = tokio::time::Instant::now();
    assert_eq!(states.next().await.unwrap().len(), 1);
    assert!(started.elapsed() < TRUSTED_FOR / 2, "{:?}", started.elapsed());
}

#[tokio::test]
async fn nothing_is_told_of_gpus_that_were_not_read_yet() {
    let (sender, receiver) = watch::channel(Snapshot::default());
    let mut states = HealthService::new("node", receiver, CancellationToken::new()).states();
    assert_eq!(states.next().await.unwrap().len(), 0);
    sender.send_modify(|snapshot| snapshot.inventory = Some(Arc::new(testing::inventory(2))));
    assert_eq!(states.next().await.unwrap().len(), 2);
    drop(sender);
    assert!(states.next().await.is_none());
}

#[test]
fn nothing_is_known_of_gpus_whose_driver_does_not_answer_but_what_was_wrong() {
    let state = GpuState { is_lost: true, xid: None, advice: None, since: 7 };
    let snapshot = Snapshot {
        inventory: Some(Arc::new(testing::inventory(2))),
        health: [(testing::uuid(1), state)].into(),
        error: Some("the driver is not loaded".to_owned()),
        ..Snapshot::default()
    };
    let told = report(&snapshot);
    assert_eq!((told[0].is_healthy, told[0].message.as_str()), (None, "the driver is not loaded"));
    assert_eq!((told[1].is_healthy, told[1].since), (Some(false), 7));
}
