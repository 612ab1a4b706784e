//! API servers that drop fields.

use octavo_dra::{AllowedAmounts, CounterConsumption, CounterSet, RequestPolicy};

use super::*;

/// A GPU that is whole or four quarters: alternatives by one counter.
fn cut() -> Pool {
    let amounts = |amount| [("slices".to_owned(), Quantity::decimal(amount))].into();
    let consumes = |amount| {
        vec![CounterConsumption {
            counter_set: "gpu-0-counter-set".to_owned(),
            counters: amounts(amount),
        }]
    };
    let quarter = |index| DraDevice {
        name: format!("gpu-0-mig-{index}"),
        consumes: consumes(1),
        ..DraDevice::default()
    };
    let whole = shared().devices.remove(0);
    let mut devices = vec![DraDevice { consumes: consumes(4), ..whole.clone() }];
    devices.extend((0..4).map(quarter));
    Pool {
        name: "node".to_owned(),
        counters: vec![CounterSet { name: "gpu-0-counter-set".to_owned(), counters: amounts(4) }],
        devices,
        plain: vec![whole],
    }
}

/// A GPU with shares.
fn shared() -> Pool {
    let mut pool = pool(1);
    let all = Quantity::binary(80 << 30);
    let allowed = AllowedAmounts::Range {
        min: Quantity::binary(1 << 20),
        max: Some(all),
        step: Some(Quantity::binary(1 << 20)),
    };
    pool.devices[0].allow_multiple = true;
    pool.devices[0].capacity.get_mut("memory").unwrap().policy =
        Some(RequestPolicy { default: Some(all), allowed });
    pool
}

fn with_sick(mut pool: Pool) -> Pool {
    let mut sick = DraDevice { name: "gpu-9".to_owned(), ..DraDevice::default() };
    sick.taints = tainted(1).devices.remove(0).taints;
    pool.devices.push(sick.clone());
    if !pool.plain.is_empty() {
        pool.plain.push(sick);
    }
    pool
}

/// The published slices.
fn published(api: &SliceApi) -> Vec<octavo_dra::Slice> {
    api.slices().iter().map(|slice| from_api(slice).unwrap()).collect()
}

fn names(api: &SliceApi) -> Vec<String> {
    published(api).into_iter().flat_map(|slice| slice.devices).map(|device| device.name).collect()
}

#[tokio::test]
async fn a_restart_with_kept_counters_writes_nothing() {
    let api = SliceApi::default();
    let mut running = Running::start(&api, Some(cut()));
    running.until_writes(2).await;
    running.stop().await;
    let slices = published(&api);
    assert_eq!(slices[0].counters, cut().counters);
    assert_eq!(slices[1].devices, cut().devices);
    assert_eq!(api.probes(), 2, "a device and a counter set");
    let before = api.slices();
    let mut running = Running::start(&api, Some(cut()));
    running.until_writes(0).await;
    running.stop().await;
    assert_eq!(api.slices(), before);
}

#[tokio::test]
async fn a_server_that_drops_counters_gets_whole_gpus_and_is_asked_before() {
    let api = SliceApi::default();
    api.turn_off([Feature::Counters]);
    let mut running = Running::start(&api, Some(cut()));
    running.until(1, &[Feature::Counters]).await;
    running.stop().await;
    let slices = published(&api);
    assert_eq!(slices.len(), 1);
    assert_eq!(slices[0].devices, cut().plain, "shares stay");
    assert_eq!(api.writes(), ["POST"]);
    // A restart probes again and writes nothing.
    let mut running = Running::start(&api, Some(cut()));
    running.until(0, &[Feature::Counters]).await;
    running.stop().await;
    assert_eq!(api.slices().len(), 1);
}

#[tokio::test]
async fn a_server_with_no_feature_at_all_gets_whole_gpus_that_are_well() {
    let api = SliceApi::default();
    api.turn_off(Feature::ALL);
    let pool = with_sick(cut());
    let mut running = Running::start(&api, Some(pool.clone()));
    let used = [Feature::Counters, Feature::Shares, Feature::Taints];
    running.until(1, &used).await;
    running.stop().await;
    let slices = published(&api);
    assert_eq!(names(&api), ["gpu-0"]);
    assert!(!slices[0].devices[0].allow_multiple);
    assert_eq!(slices[0].devices[0].capacity["memory"].policy, None);
    let mut running = Running::start(&api, Some(pool));
    running.until(0, &used).await;
    running.stop().await;
}

#[tokio::test]
async fn shares_need_no_question_where_they_are_kept() {
    let api = SliceApi::default();
    let mut running = Running::start(&api, Some(shared()));
    running.until_writes(1).await;
    running.stop().await;
    let mut running = Running::start(&api, Some(shared()));
    running.until_writes(0).await;
    running.stop().await;
    assert_eq!(published(&api)[0].devices, shared().devices);
    assert_eq!(api.probes(), 0);
}

#[tokio::test]
async fn a_server_that_drops_shares_is_written_to_once() {
    let api = SliceApi::default();
    api.turn_off([Feature::Shares]);
    let mut running = Running::start(&api, Some(shared()));
    running.until(1, &[Feature::Shares]).await;
    running.stop().await;
    let mut running = Running::start(&api, Some(shared()));
    running.until(0, &[Feature::Shares]).await;
    // A restored watch reads it again and changes nothing.
    let name = api.slices()[0].metadata.name.clone().unwrap();
    api.edit(&name, |slice| slice.metadata.labels = Some([("a".into(), "b".into())].into()));
    running.want(Pool { devices: Vec::new(), ..shared() });
    running.until(1, &[]).await;
    running.stop().await;
}

#[tokio::test]
async fn a_sick_device_is_left_out_where_taints_are_dropped() {
    let api = SliceApi::default();
    api.turn_off([Feature::Taints]);
    let mut running = Running::start(&api, Some(pool(2)));
    running.until_writes(1).await;
    running.want(tainted(2));
    running.until(2, &[Feature::Taints]).await;
    assert_eq!(names(&api), ["gpu-1"]);
    running.want(pool(2));
    running.until_writes(3).await;
    assert_eq!(names(&api), ["gpu-0", "gpu-1"]);
    running.stop().await;
}

#[tokio::test]
async fn without_a_probe_the_first_write_is_read_back() {
    let api = SliceApi::default();
    api.turn_off([Feature::Counters]);
    api.refuse_dry_runs();
    let mut running = Running::start(&api, Some(cut()));
    running.until(2, &[Feature::Counters]).await;
    running.stop().await;
    // The devices were sent first, when the pool was still incomplete.
    assert_eq!(api.writes(), ["POST", "PUT node-gpu.nvidia.com-001"]);
    assert_eq!(names(&api), ["gpu-0"]);
}

#[tokio::test]
async fn counters_of_an_older_form_are_as_good_as_dropped() {
    let api = SliceApi::default();
    api.need_counters_beside_devices();
    let mut running = Running::start(&api, Some(cut()));
    running.until(1, &[Feature::Counters]).await;
    running.stop().await;
    assert_eq!(names(&api), ["gpu-0"]);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_learns_a_feature_is_found_out_without_a_restart() {
    let api = SliceApi::default();
    api.turn_off([Feature::Counters]);
    let mut running = Running::start(&api, Some(cut()));
    running.until(1, &[Feature::Counters]).await;
    api.turn_off([]);
    let found = running.state.wait_for(
        |state| matches!(state, PublishState::Published { missing, .. } if missing.is_empty()),
    );
    timeout(FEATURE_RECHECK_INTERVAL * 2, found).await.unwrap().unwrap();
    assert_eq!(names(&api).len(), 5);
    running.stop().await;
}

#[tokio::test]
async fn existing_counters_do_not_prove_the_feature() {
    let api = SliceApi::default();
    let mut running = Running::start(&api, Some(cut()));
    running.until_writes(2).await;
    running.stop().await;
    // Stored fields are kept, but allocators ignore them.
    api.turn_off([Feature::Counters]);
    let mut running = Running::start(&api, Some(cut()));
    running.until(2, &[Feature::Counters]).await;
    running.stop().await;
    let slices = published(&api);
    assert_eq!((slices.len(), names(&api)), (1, vec!["gpu-0".to_owned()]));
    assert!(slices[0].counters.is_empty());
}

#[tokio::test]
async fn existing_taints_do_not_prove_the_feature() {
    let api = SliceApi::default();
    let mut running = Running::start(&api, Some(tainted(2)));
    running.until_writes(1).await;
    running.stop().await;
    // Stored fields are kept, but allocators ignore them.
    api.turn_off([Feature::Taints]);
    let mut running = Running::start(&api, Some(tainted(2)));
    running.until(1, &[Feature::Taints]).await;
    assert_eq!(names(&api), ["gpu-1"]);
    running.stop().await;
}

#[tokio::test]
async fn a_new_watch_probes_taints_and_counters_again() {
    let mut publisher = Publisher::new(SliceApi::default().client(), "gpu.nvidia.com", "node");
    for feature in Feature::ALL {
        publisher.features.set(feature, true);
    }
    for _ in 0..2 {
        publisher.apply(Event::Init);
        publisher.apply(Event::InitDone);
    }
    let pool = with_sick(cut());
    let is_unknown = |feature: &Feature| publisher.features.is_unknown(*feature, &pool);
    let unknown: Vec<_> = Feature::ALL.into_iter().filter(is_unknown).collect();
    assert_eq!(unknown, [Feature::Counters, Feature::Taints]);
}

#[tokio::test]
async fn a_server_that_refuses_taints_without_effect_gets_the_others() {
    let api = SliceApi::default();
    api.turn_off([Feature::TaintsWithoutEffect]);
    let mut pool = tainted(2);
    let mut taint = pool.devices[0].taints[0].clone();
    taint.effect = TaintEffect::None;
    pool.devices[1].taints.push(taint);
    let mut running = Running::start(&api, Some(pool));
    running.until(1, &[Feature::TaintsWithoutEffect]).await;
    running.stop().await;
    let devices = published(&api).remove(0).devices;
    assert_eq!((devices[0].taints.len(), devices[1].taints.len()), (1, 0));
}
