use std::collections::BTreeSet;

use super::{MigTable, mig_uuid};

fn tables() -> Vec<MigTable> {
    MigTable::keys().map(|key| MigTable::find(key).unwrap()).collect()
}

#[test]
fn table_profiles_are_distinct() {
    assert_eq!(tables().len(), 9);
    for table in tables() {
        let ids: BTreeSet<u32> = table.profiles.iter().map(|profile| profile.id).collect();
        let numbers: Vec<u32> = table.profiles.iter().map(|profile| profile.number).collect();
        let names: BTreeSet<&str> = table.profiles.iter().map(|profile| profile.name).collect();
        assert_eq!((ids.len(), names.len()), (numbers.len(), numbers.len()), "{}", table.key);
        assert!(numbers.is_sorted(), "{}", table.key);
        for profile in &table.profiles {
            assert_eq!(table.profile(profile.id), Some(profile));
            assert_eq!(table.profile_named(profile.name), Some(profile));
            assert_eq!(table.profile_numbered(profile.number), Some(profile));
        }
    }
    assert_eq!(MigTable::find("voodoo-2"), None);
}

#[test]
fn a_profile_s_places_are_aligned_apart_and_within_the_gpu() {
    for table in tables() {
        for profile in &table.profiles {
            let size = profile.memory_slices;
            assert!(profile.starts.windows(2).all(|pair| pair[0] + size <= pair[1]));
            for &start in profile.starts {
                assert_eq!(start % size, 0, "{} {}", table.key, profile.name);
                assert!(start + size <= table.memory_slices, "{} {}", table.key, profile.name);
            }
            assert!(profile.instances as usize <= profile.starts.len());
        }
    }
}

#[test]
fn more_slices_have_more_memory_and_multiprocessors() {
    for table in tables() {
        for smaller in &table.profiles {
            for larger in &table.profiles {
                let context = format!("{}: {} and {}", table.key, smaller.name, larger.name);
                if smaller.memory_slices < larger.memory_slices {
                    assert!(smaller.memory_mib < larger.memory_mib, "{context}");
                }
                if smaller.compute_slices < larger.compute_slices {
                    assert!(smaller.multiprocessors < larger.multiprocessors, "{context}");
                }
            }
        }
    }
}

#[test]
fn an_instance_s_id_says_its_place() {
    let table = MigTable::find("a100-40").unwrap();
    let id = |name: &str, start| table.instance_id(table.profile_named(name).unwrap(), start);
    // Example of NVIDIA's MIG user guide: 4g at 0, 2g at 4 and 1g at 6.
    assert_eq!([id("4g.20gb", 0), id("2g.10gb", 4), id("1g.5gb", 6)], [1, 5, 13]);
    assert_eq!([id("7g.40gb", 0), id("3g.20gb", 4), id("1g.10gb", 6)], [0, 2, 6]);
    let small = MigTable::find("a30-24").unwrap();
    let single = small.profile_named("1g.6gb").unwrap();
    assert_eq!(small.instance_id(single, 0), 3);
}

#[test]
fn a_gpu_instance_is_cut_as_listings_say() {
    let table = MigTable::find("a100-40").unwrap();
    let cuts = |name: &str| -> Vec<(u32, usize)> {
        let profiles = table.profile_named(name).unwrap().compute_profiles();
        profiles.iter().map(|p| (p.compute_slices, p.starts.len())).collect()
    };
    assert_eq!(cuts("1g.5gb"), [(1, 1)]);
    assert_eq!(cuts("2g.10gb"), [(1, 2), (2, 1)]);
    assert_eq!(cuts("3g.20gb"), [(1, 3), (2, 1), (3, 1)]);
    assert_eq!(cuts("4g.20gb"), [(1, 4), (2, 2), (4, 1)]);
    assert_eq!(cuts("7g.40gb"), [(1, 7), (2, 3), (3, 2), (4, 1), (7, 1)]);
    let whole = table.profile_named("7g.40gb").unwrap();
    let each: Vec<u32> = whole.compute_profiles().iter().map(|p| p.multiprocessors).collect();
    assert_eq!(each, [14, 28, 42, 56, 98]);
}

#[test]
fn mig_devices_have_uuids_of_their_own() {
    let gpus = [crate::derive_uuid("node-1", 0), crate::derive_uuid("node-1", 1)];
    let mut uuids = BTreeSet::new();
    for gpu in &gpus {
        for outer in 0..15 {
            uuids.extend((0..8).map(|inner| mig_uuid(gpu, outer, inner)));
        }
    }
    assert_eq!(uuids.len(), 2 * 15 * 8);
    assert!(uuids.iter().all(|uuid| uuid.starts_with("MIG-") && uuid.len() == 40));
}
