use std::collections::BTreeSet;

use super::*;

#[test]
fn no_two_functions_have_one_address() {
    let all: Vec<Export> = LISTS.iter().copied().flatten().copied().collect();
    let names: BTreeSet<_> = all.iter().map(|(name, _)| name).collect();
    let addresses: BTreeSet<_> = all.iter().map(|(_, address)| address).collect();
    assert_eq!((names.len(), addresses.len()), (all.len(), all.len()));
}

#[test]
fn every_listed_version_exists() {
    for (name, _) in SINCE {
        assert!(address_of(name).is_some(), "{name}");
    }
}

#[test]
fn a_program_gets_the_newest_form_that_it_knows() {
    let of = |symbol, version, flags| find(symbol, version, flags).unwrap();
    let address = |name| address_of(name).unwrap();
    assert_eq!(of("cuMemAlloc", 13000, 0), (address("cuMemAlloc_v2"), Found::Yes));
    assert_eq!(of("cuMemAlloc", 3000, 0), (address("cuMemAlloc"), Found::Yes));
    assert_eq!(of("cuCtxCreate", 11040, 0), (address("cuCtxCreate_v3"), Found::Yes));
    assert_eq!(of("cuStreamQuery", 12000, 2), (address("cuStreamQuery_ptsz"), Found::Yes));
    assert_eq!(of("cuInit", 12000, 2), (address("cuInit"), Found::Yes));
    assert_eq!(of("cuMemCreate", 10000, 0), (0, Found::OnlyNewer));
    assert_eq!(of("", 0, 0), (0, Found::No));
    assert_eq!(of("cuMemAlloc_v2", 13000, 0), (0, Found::No));
    assert_eq!(find("cuInit", 12000, 8), Err(Code::INVALID_VALUE));
}
