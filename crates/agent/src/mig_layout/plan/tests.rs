use proptest::prelude::*;

use super::*;
use crate::testing::mig;

fn on(devices: &[(&str, u32)]) -> GpuLayout {
    GpuLayout::On(devices.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect())
}

fn gpu(instances: &[(u32, u32)]) -> Gpu {
    let mut gpu = mig::gpu(0, true);
    let instances = instances.iter().zip(1..);
    gpu.mig_instances =
        instances.map(|((profile, start), id)| mig::instance(id, *profile, *start)).collect();
    gpu
}

/// The first slices of what is destroyed, and profiles and first slices of what is created.
fn places(change: &Change) -> (Vec<u32>, Vec<(&str, u32)>) {
    let destroyed = change.destroyed.iter().map(|it| it.placement.start).collect();
    let created =
        change.created.iter().map(|(profile, place)| (profile.name.as_str(), place.start));
    (destroyed, created.collect())
}

const UNUSED: fn(&MigInstance) -> bool = |_| false;

#[test]
fn a_gpu_gets_its_mode_and_its_devices_and_loses_both() {
    let off = mig::gpu(0, false);
    let found = change(&off, &on(&[("1g.10gb", 2), ("3g.40gb", 1)]), &UNUSED).unwrap();
    assert_eq!(found.mode, Some(true));
    assert_eq!(places(&found), (vec![], vec![("3g.40gb", 0), ("1g.10gb", 4), ("1g.10gb", 5)]));
    assert_eq!(change(&off, &GpuLayout::Off, &UNUSED), Ok(Change::default()));
    let full = gpu(&[(9, 0), (19, 4)]);
    let found = change(&full, &GpuLayout::Off, &UNUSED).unwrap();
    assert_eq!((found.mode, places(&found)), (Some(false), (vec![0, 4], vec![])));
    assert!(change(&full, &on(&[("3g.40gb", 1), ("1g.10gb", 1)]), &UNUSED).unwrap().is_empty());
    let found = change(&full, &on(&[]), &UNUSED).unwrap();
    assert_eq!((found.mode, places(&found)), (None, (vec![0, 4], vec![])));
}

#[test]
fn instances_that_fit_stay_where_they_are() {
    // The 3g at 4 stays, though a 3g alone would be placed at 0.
    let found = change(&gpu(&[(9, 4)]), &on(&[("3g.40gb", 1), ("2g.20gb", 1)]), &UNUSED).unwrap();
    assert_eq!(places(&found), (vec![], vec![("2g.20gb", 0)]));
    // A small one in the way of the larger has to go.
    let found =
        change(&gpu(&[(19, 0), (19, 4)]), &on(&[("4g.40gb", 1), ("1g.10gb", 1)]), &UNUSED).unwrap();
    assert_eq!(places(&found), (vec![0], vec![("4g.40gb", 0)]));
    // Of two of which one is too many, the one in use stays.
    let is_used = |instance: &MigInstance| instance.placement.start == 5;
    let found = change(&gpu(&[(19, 2), (19, 5)]), &on(&[("1g.10gb", 1)]), &is_used).unwrap();
    assert_eq!(places(&found), (vec![2], vec![]));
    // One that people divided further is made again.
    let mut divided = gpu(&[(9, 0)]);
    divided.mig_instances[0].compute_instances.clear();
    let found = change(&divided, &on(&[("3g.40gb", 1)]), &UNUSED).unwrap();
    assert_eq!(places(&found), (vec![0], vec![("3g.40gb", 0)]));
}

#[test]
fn what_does_not_fit_is_an_error_with_its_devices() {
    let empty = gpu(&[]);
    for devices in [
        vec![("1g.10gb", 8)],
        vec![("3g.40gb", 3)],
        vec![("4g.40gb", 1), ("3g.40gb", 2)],
        vec![("7g.80gb", 1), ("1g.10gb", 1)],
    ] {
        let error = change(&empty, &on(&devices), &UNUSED).unwrap_err();
        assert!(matches!(error, LayoutError::NoRoom { gpu: 0, .. }), "{devices:?}: {error}");
    }
    let error = change(&empty, &on(&[("9g.90gb", 1)]), &UNUSED).unwrap_err().to_string();
    assert!(error.contains("no MIG profile 9g.90gb"), "{error}");
}

proptest! {
    /// From any instances to any others: what stays and what is created has the wanted counts, and nothing overlaps.
    #[test]
    fn any_change_ends_in_the_layout(
        before in prop::collection::vec((0..7_usize, 0..8_usize), 0..8),
        after in prop::collection::vec((0..7_usize, 0..4_u32), 0..4),
    ) {
        let profiles = mig::profiles();
        let mut gpu = gpu(&[]);
        for (number, (profile, place)) in before.into_iter().enumerate() {
            let profile = &profiles[profile];
            let place = profile.placements[place % profile.placements.len()];
            if gpu.mig_instances.iter().all(|it| !it.placement.overlaps(place)) {
                let id = u32::try_from(number).unwrap();
                gpu.mig_instances.push(mig::instance(id, profile.id, place.start));
            }
        }
        let devices = after.into_iter().filter(|(_, count)| *count > 0);
        let devices: std::collections::BTreeMap<String, u32> =
            devices.map(|(profile, count)| (profiles[profile].name.clone(), count)).collect();
        let layout = GpuLayout::On(devices.clone());
        let Ok(found) = change(&gpu, &layout, &UNUSED) else { return Ok(()) };
        let stays = gpu.mig_instances.iter().filter(|it| !found.destroyed.contains(it));
        let stays = stays.map(|it| (it.profile_id, it.placement));
        let all: Vec<_> =
            stays.chain(found.created.iter().map(|(profile, place)| (profile.id, *place))).collect();
        for (index, (_, place)) in all.iter().enumerate() {
            prop_assert!(all[..index].iter().all(|(_, other)| !other.overlaps(*place)));
        }
        for profile in &profiles {
            let count = all.iter().filter(|(id, _)| *id == profile.id).count();
            let wanted = devices.get(&profile.name).copied().unwrap_or_default();
            prop_assert_eq!(u32::try_from(count).unwrap(), wanted);
        }
        // No placement that is destroyed is created again.
        let again = found.created.iter().any(|(profile, place)| {
            found.destroyed.iter().any(|it| it.profile_id == profile.id && it.placement == *place)
        });
        prop_assert!(!again);
        // The layout itself needs no change.
        let mut done = gpu.clone();
        done.mig_instances = all.iter().zip(1..).map(|((id, place), number)| mig::instance(number, *id, place.start)).collect();
        prop_assert!(change(&done, &layout, &UNUSED).unwrap().is_empty());
    }
}
