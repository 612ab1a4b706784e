use super::*;

fn slice(taints: usize) -> api::ResourceSlice {
    let taint = api::DeviceTaint { key: "a.b/c".to_owned(), ..api::DeviceTaint::default() };
    let device =
        api::Device { taints: (taints > 0).then(|| vec![taint; taints]), ..api::Device::default() };
    let mut slice = api::ResourceSlice::default();
    slice.spec.devices = Some(vec![device]);
    slice
}

#[test]
fn a_dropped_field_is_reported_once() {
    let mut features = Features::default();
    assert!(features.compare(&slice(2), &slice(2)).is_empty());
    assert_eq!(features.compare(&slice(2), &slice(1)), [Feature::Taints].into());
    assert!(features.compare(&slice(2), &slice(0)).is_empty());
    assert!(features.drops(Feature::Taints));
}

#[test]
fn what_was_not_sent_or_is_there_already_proves_nothing_of_taints() {
    let mut features = Features::default();
    features.compare(&slice(0), &slice(0));
    assert!(!features.drops(Feature::Taints));
    let pool = Pool {
        devices: vec![Device {
            taints: vec![octavo_dra::DeviceTaint {
                key: "a.b/c".to_owned(),
                value: String::new(),
                effect: TaintEffect::NoSchedule,
            }],
            ..Device::default()
        }],
        ..Pool::default()
    };
    assert!(features.is_unknown(Feature::Taints, &pool));
    features.observe_shares(shows_shares(&slice(1).spec));
    assert!(features.is_unknown(Feature::Taints, &pool));
}

#[test]
fn a_taint_that_only_informs_keeps_no_device_back() {
    let taint =
        |effect| octavo_dra::DeviceTaint { key: "a.b/c".to_owned(), value: String::new(), effect };
    let device = |name: &str, effect| Device {
        name: name.to_owned(),
        taints: vec![taint(effect)],
        ..Device::default()
    };
    let effects = [TaintEffect::None, TaintEffect::NoSchedule, TaintEffect::NoExecute];
    let devices = ["a", "b", "c"].into_iter().zip(effects);
    let pool = Pool {
        devices: devices.map(|(name, effect)| device(name, effect)).collect(),
        ..Pool::default()
    };
    let mut features = Features::default();
    features.set(Feature::Taints, false);
    let left = features.content(&pool).devices;
    assert_eq!(left.iter().map(|device| device.name.as_str()).collect::<Vec<_>>(), ["a"]);
    assert!(left[0].taints.is_empty());
}

#[test]
fn a_server_without_taints_that_only_inform_keeps_the_others() {
    let mut pool = Pool { devices: vec![Device::default()], ..Pool::default() };
    pool.devices[0].taints = [TaintEffect::None, TaintEffect::NoSchedule]
        .map(|effect| octavo_dra::DeviceTaint {
            key: "a.b/c".to_owned(),
            value: String::new(),
            effect,
        })
        .into();
    let mut features = Features::default();
    features.set(Feature::TaintsWithoutEffect, false);
    let left = &features.content(&pool).devices[0].taints;
    assert_eq!(
        left.iter().map(|taint| taint.effect).collect::<Vec<_>>(),
        [TaintEffect::NoSchedule]
    );
    assert_eq!(features.missing(&pool), [Feature::TaintsWithoutEffect].into());
}
