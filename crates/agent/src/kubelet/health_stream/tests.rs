use std::sync::Arc;

use octavo_health::reason::Reason;

use super::*;
use crate::testing;

/// A channel on which nothing comes.
fn never() -> watch::Receiver<()> {
    watch::channel(()).1
}

#[tokio::test(start_paused = true)]
async fn an_idle_stream_repeats_itself_before_the_kubelet_loses_trust() {
    let snapshot =
        Snapshot { inventory: Some(Arc::new(testing::inventory(1))), ..Snapshot::default() };
    let (_sender, receiver) = watch::channel(snapshot);
    let service = HealthService::new("node", receiver, never(), CancellationToken::new());
    let mut states = service.states();
    for _ in 0..FIRST_REPEAT_DELAYS.len() + 2 {
        let before = tokio::time::Instant::now();
        assert_eq!(states.next().await.unwrap().len(), 1);
        assert!(before.elapsed() < HEALTH_LIFETIME / 2, "{:?}", before.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn health_is_repeated_after_another_agents_stream_ends() {
    let snapshot =
        Snapshot { inventory: Some(Arc::new(testing::inventory(1))), ..Snapshot::default() };
    let (_sender, receiver) = watch::channel(snapshot);
    let (again, listener) = watch::channel(());
    let service = HealthService::new("node", receiver, listener, CancellationToken::new());
    let mut states = service.states();
    for _ in 0..=FIRST_REPEAT_DELAYS.len() {
        states.next().await.unwrap();
    }
    let settled = tokio::time::Instant::now();
    again.send_replace(());
    assert_eq!(states.next().await.unwrap().len(), 1);
    assert_eq!(settled.elapsed(), Duration::ZERO);
    assert_eq!(states.next().await.unwrap().len(), 1);
    assert_eq!(settled.elapsed(), FIRST_REPEAT_DELAYS[0]);
}

#[tokio::test]
async fn unread_gpus_have_no_health() {
    let (sender, receiver) = watch::channel(Snapshot::default());
    let mut states =
        HealthService::new("node", receiver, never(), CancellationToken::new()).states();
    assert_eq!(states.next().await.unwrap().len(), 0);
    sender.send_modify(|snapshot| snapshot.inventory = Some(Arc::new(testing::inventory(2))));
    assert_eq!(states.next().await.unwrap().len(), 2);
    drop(sender);
    assert!(states.next().await.is_none());
}

#[test]
fn without_driver_answers_only_known_faults_are_reported() {
    let state = testing::fenced(Reason::Lost, 7);
    let snapshot = Snapshot {
        inventory: Some(Arc::new(testing::inventory(2))),
        health: [(testing::uuid(1), state)].into(),
        error: Some("the driver is not loaded".to_owned()),
        ..Snapshot::default()
    };
    let reported = report(&snapshot);
    assert_eq!(
        (reported[0].is_healthy, reported[0].message.as_str()),
        (None, "the driver is not loaded")
    );
    assert_eq!((reported[1].is_healthy, reported[1].since), (Some(false), 7));
}

#[test]
fn mig_devices_are_as_healthy_as_their_gpu() {
    let mut inventory = testing::inventory(1);
    inventory.gpus.extend([testing::mig::gpu(1, true), testing::mig::gpu(2, true)]);
    let state = testing::fenced(Reason::Xid(79), 7);
    let snapshot = Snapshot {
        inventory: Some(Arc::new(inventory)),
        health: [(testing::uuid(2), state)].into(),
        ..Snapshot::default()
    };
    let reported = report(&snapshot);
    let of = |prefix: &str| -> Vec<Option<bool>> {
        let devices = reported.iter().filter(|found| found.device.starts_with(prefix));
        devices.map(|found| found.is_healthy).collect()
    };
    assert_eq!(of("gpu-0"), [Some(true)]);
    assert_eq!(
        (of("gpu-1-mig-").len(), of("gpu-1").len()),
        (25, 25),
        "the GPU itself is no device"
    );
    assert!(of("gpu-1-mig-").iter().all(|healthy| *healthy == Some(true)));
    assert!(of("gpu-2-mig-").iter().all(|healthy| *healthy == Some(false)));
}
