use std::sync::Arc;

use super::*;
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
