//! Names of slices: allocators try the slices of a pool in order of name.

use std::collections::{BTreeMap, BTreeSet};

use super::{Observed, ObservedSlice, Wanted};

/// Limit for object names.
const MAX_NAME_LENGTH: usize = 253;

/// The names of a pool's parts, in order: existing names first, then new ones. An unfinished pool
/// gets the same names again.
pub(super) fn for_parts(
    wanted: &Wanted<'_>,
    parts: usize,
    ours: &BTreeMap<&String, &ObservedSlice>,
    seen: &Observed<'_>,
) -> BTreeSet<String> {
    let mut names: BTreeSet<String> = ours.keys().take(parts).map(|name| (*name).clone()).collect();
    let is_taken = |name: &str| {
        seen.taken.contains(name)
            || seen.found.get(name).is_some_and(|slice| !slice.is_of_pool(wanted))
    };
    let mut number = 0;
    while names.len() < parts {
        names.insert(free(wanted, number, is_taken));
        number += 1;
    }
    names
}

/// A name that no foreign slice has.
fn free(wanted: &Wanted<'_>, index: usize, is_taken: impl Fn(&str) -> bool) -> String {
    let mut number = index;
    loop {
        let name = name(wanted.driver, wanted.node, &format!("{number:03}"));
        if !is_taken(&name) {
            return name;
        }
        number += 1000;
    }
}

/// `<node>-<driver>-<last>`, shortened with a hash of the node if it is too long.
pub(crate) fn name(driver: &str, node: &str, last: &str) -> String {
    let tail = format!("-{driver}-{last}");
    let mut name = node.to_owned();
    if name.len() + tail.len() > MAX_NAME_LENGTH {
        let suffix = format!("-{:016x}", fingerprint(node));
        name.truncate(MAX_NAME_LENGTH - tail.len() - suffix.len());
        // A label may not begin with a dash.
        name.truncate(name.trim_end_matches(['.', '-']).len());
        name.push_str(&suffix);
    }
    name + &tail
}

/// FNV-1a: the same hash in every version of the program.
fn fingerprint(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}
