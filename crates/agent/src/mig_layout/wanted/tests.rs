use octavo_api::mig_config::{LayoutEntry, MigLayout};

use super::*;
use crate::mig_layout::plan::change;
use crate::testing::{self, mig};

fn builtin(name: &str) -> NamedLayout {
    NamedLayout::Builtin(name.parse().unwrap())
}

fn on(devices: &[(&str, u32)]) -> GpuLayout {
    GpuLayout::On(devices.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect())
}

/// The ready-made layouts of mig-parted: name, and the devices for some GPU models.
fn known() -> Vec<(String, BTreeMap<String, u32>)> {
    let lines = include_str!("known_layouts.txt").lines().filter(|line| !line.starts_with('#'));
    let layout = |line: &str| {
        let mut words = line.split(' ');
        let name = words.next().unwrap().to_owned();
        let device = |word: &str| {
            let (profile, count) = word.split_once('=').unwrap();
            (profile.to_owned(), count.parse().unwrap())
        };
        (name, words.map(device).collect())
    };
    lines.map(layout).collect()
}

#[test]
fn every_ready_made_layout_of_mig_parted_is_computed_for_its_gpus() {
    let known = known();
    let names: std::collections::BTreeSet<&String> = known.iter().map(|(name, _)| name).collect();
    // With all-disabled and all-enabled, which have no devices.
    assert_eq!(names.len() + 2, 81);
    let mut served = std::collections::BTreeSet::new();
    for gpu in mig::all_models() {
        let has = |profile: &String| gpu.mig_profiles.iter().any(|it| it.name == *profile);
        for name in &names {
            let of_name = known.iter().filter(|(other, _)| other == *name);
            let wanted: Vec<_> =
                of_name.map(|(_, devices)| devices).filter(|it| it.keys().all(has)).collect();
            let found = builtin(name).of(&gpu);
            if wanted.is_empty() {
                assert_eq!(found, Ok(None), "{name}");
                let error = builtin(name).means_none(std::slice::from_ref(&gpu));
                assert!(matches!(error, Some(LayoutError::NoProfile { .. })), "{name}: {error:?}");
                continue;
            }
            let Ok(Some(GpuLayout::On(devices))) = found else { panic!("{name}: {found:?}") };
            assert!(wanted.contains(&&devices), "{name}: {devices:?}, not one of {wanted:?}");
            let change = change(&gpu, &GpuLayout::On(devices.clone()), &|_| false).unwrap();
            let count: u32 = devices.values().sum();
            assert_eq!(u32::try_from(change.created.len()), Ok(count), "{name}");
            served.insert(*name);
        }
    }
    let unserved: Vec<_> = names.difference(&served).map(|name| name.as_str()).collect();
    // Of models whose profiles have no published placements.
    let without_model = ["24gb", "34gb", "35gb", "48gb", "67gb", "70gb", "95gb", "96gb"];
    let is_explained = |name: &&str| {
        without_model
            .iter()
            .chain(&["135gb", "139gb", "189gb", "269gb", "278gb"])
            .any(|memory| name.contains(memory))
    };
    assert!(unserved.iter().all(is_explained), "{unserved:?}");
}

#[test]
fn the_same_profile_fits_as_often_as_the_model_permits() {
    let of = |model: &str| mig::model(model);
    for (model, count) in [("a100-40", 4), ("a100-80", 7), ("h100-80", 7)] {
        let found = builtin("all-1g.10gb").of(&of(model));
        assert_eq!(found, Ok(Some(on(&[("1g.10gb", count)]))), "{model}");
    }
    let found = builtin("all-balanced").of(&of("h100-80"));
    assert_eq!(found, Ok(Some(on(&[("1g.10gb", 2), ("2g.20gb", 1), ("3g.40gb", 1)]))));
    let found = builtin("all-balanced").of(&of("a30-24"));
    assert_eq!(found, Ok(Some(on(&[("1g.6gb", 2), ("2g.12gb", 1)]))));
    let found = builtin("all-1g.10gb.me").of(&of("h100-80"));
    assert_eq!(found, Ok(Some(on(&[("1g.10gb+me", 1)]))));
}

#[test]
fn a_gpu_without_mig_is_left_out_of_computed_layouts_and_an_error_in_a_file_s() {
    let plain = testing::gpu(0);
    assert_eq!(builtin("all-balanced").of(&plain), Ok(None));
    assert_eq!(builtin("all-disabled").of(&plain), Ok(None));
    let file = |devices| {
        let entry = LayoutEntry { device_ids: Vec::new(), gpus: Some(vec![0]), devices };
        NamedLayout::OfFile(MigLayout { entries: vec![entry] })
    };
    assert_eq!(file(Some(BTreeMap::new())).of(&plain), Err(LayoutError::NoMig { gpu: 0 }));
    assert_eq!(file(None).of(&plain), Ok(Some(GpuLayout::Off)));
    assert_eq!(file(None).of(&mig::gpu(1, true)), Ok(None), "it is not meant");
    let none =
        |layout: &str, gpus: &[Gpu]| builtin(layout).means_none(gpus).map(|it| it.to_string());
    let gpus = [plain.clone(), mig::model("a30-24"), mig::gpu(1, true)];
    assert_eq!(none("all-1g.10gb", &gpus), None, "other models stay as they are");
    let missing = none("all-9g.90gb", &gpus[2..]).unwrap();
    assert!(missing.contains("GPU 1 has no MIG profile 9g.90gb; it has 1g.10gb, "), "{missing}");
    assert_eq!(none("all-balanced", &[plain]).unwrap(), "no GPU of this node has MIG mode");
}
