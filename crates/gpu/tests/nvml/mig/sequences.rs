//! Random sequences of creation and destruction, compared with a model of memory slices.

use std::collections::BTreeMap;

use octavo_gpu::mig::MigProfile;
use octavo_gpu::{Driver as _, DriverError};
use proptest::prelude::*;

use super::with_mode_on;

#[derive(Clone, Copy, Debug)]
enum Step {
    /// Profile and placement, each modulo their number.
    Create(usize, usize),
    /// The instance with this index; beyond the existing ones, a missing instance.
    Destroy(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        3 => (0..7_usize, 0..7_usize).prop_map(|(profile, place)| Step::Create(profile, place)),
        2 => (0..8_usize).prop_map(Step::Destroy),
    ];
    prop::collection::vec(step, 1..24)
}

/// Existing instances: profile and first memory slice by GPU instance ID.
type Model = BTreeMap<u32, (usize, u32)>;

/// Whether an instance fits: each memory slice is used once, each profile at most as often as the
/// driver says, and compute slices and optical flow engines at most as many as the GPU has.
fn has_room(model: &Model, profiles: &[MigProfile], wanted: usize, place: usize) -> bool {
    let place = profiles[wanted].placements[place];
    let others = || model.values().map(|&(profile, start)| (profile, start));
    let is_free = others().all(|(profile, start)| {
        let size = profiles[profile].placements[0].size;
        place.start >= start + size || start >= place.start + place.size
    });
    let same = others().filter(|(profile, _)| *profile == wanted).count();
    let all = || others().map(|(profile, _)| profile).chain([wanted]).map(|n| &profiles[n]);
    is_free
        && same < profiles[wanted].instances as usize
        && all().map(|profile| profile.shape.gpu_slices).sum::<u32>() <= 7
        && all().map(|profile| profile.ofa_engines).sum::<u32>() <= 1
}

fn run(machine: &str) {
    let (node, driver, uuid) = with_mode_on(machine);
    let profiles = driver.mig_profiles(&uuid).unwrap();
    proptest!(ProptestConfig::with_cases(48), |(steps in steps())| {
        node.edit(|state| state.gpus.get_mut(&0).unwrap().mig.instances.clear());
        let mut model = Model::new();
        for step in steps {
            match step {
                Step::Create(profile, place) => {
                    let wanted = &profiles[profile];
                    let place = place % wanted.placements.len();
                    let room = has_room(&model, &profiles, profile, place);
                    match driver.create_mig(&uuid, wanted, wanted.placements[place]) {
                        Ok(made) => {
                            prop_assert!(room, "{} had no room in {model:?}", wanted.name);
                            let there = (profile, made.placement.start);
                            prop_assert_eq!(model.insert(made.gpu_instance, there), None);
                        }
                        Err(DriverError::NoRoom { .. }) => {
                            prop_assert!(!room, "{} had room in {model:?}", wanted.name);
                        }
                        Err(error) => prop_assert!(false, "{error}"),
                    }
                }
                Step::Destroy(number) => {
                    let id = model.keys().nth(number).copied();
                    let answer = driver.destroy_mig(&uuid, id.unwrap_or(14));
                    if let Some(id) = id {
                        prop_assert_eq!(answer, Ok(()));
                        model.remove(&id);
                    } else {
                        let is_reported = matches!(answer, Err(DriverError::NotFound { .. }));
                        prop_assert!(is_reported, "{answer:?}");
                    }
                }
            }
            let there: Model = driver
                .mig_instances(&uuid)
                .unwrap()
                .into_iter()
                .map(|found| {
                    let profile = profiles.iter().position(|p| p.id == found.profile_id);
                    (found.gpu_instance, (profile.unwrap(), found.placement.start))
                })
                .collect();
            prop_assert_eq!(&there, &model);
        }
    });
}

#[test]
fn on_an_h100_exactly_what_has_room_is_made() {
    run("dgx-h100");
}

#[test]
fn on_an_a100_exactly_what_has_room_is_made() {
    run("dgx-a100-40");
}
