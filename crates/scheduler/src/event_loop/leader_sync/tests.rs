use std::time::Duration;

use super::*;

#[test]
fn it_decides_after_the_relist_of_its_term() {
    let mut leader_sync = LeaderSync::default();
    let start = Instant::now();
    let at = |seconds| start + Duration::from_secs(seconds);
    let nothing = Transition::default();
    assert_eq!(leader_sync.observe_term(None, true), nothing);
    leader_sync.record_relist(at(1));
    let asks = Transition { relist_since: Some(at(5)), ..nothing };
    assert_eq!(leader_sync.observe_term(Some(at(5)), true), asks);
    leader_sync.record_relist(at(4));
    assert_eq!(
        leader_sync.observe_term(Some(at(5)), true),
        nothing,
        "the relist was requested already"
    );
    leader_sync.record_relist(at(5));
    // An older report may come later.
    leader_sync.record_relist(at(3));
    let begins = Transition { started_deciding: true, ..nothing };
    assert_eq!(leader_sync.observe_term(Some(at(5)), true), begins);
    assert_eq!(
        (leader_sync.observe_term(Some(at(5)), true), leader_sync.is_deciding()),
        (nothing, true)
    );
}

#[test]
fn a_new_term_after_an_unobserved_gap_relists() {
    let mut leader_sync = LeaderSync::default();
    let start = Instant::now();
    let later = start + Duration::from_mins(1);
    leader_sync.record_relist(start);
    assert!(leader_sync.observe_term(Some(start), true).started_deciding);
    let transition =
        Transition { stopped_deciding: true, started_deciding: false, relist_since: Some(later) };
    assert_eq!(leader_sync.observe_term(Some(later), true), transition);
    assert_eq!(
        (leader_sync.observe_term(None, true), leader_sync.is_deciding()),
        (Transition::default(), false)
    );
}
#[test]
fn it_decides_once_no_operation_is_in_flight() {
    let mut leader_sync = LeaderSync::default();
    let start = Instant::now();
    leader_sync.record_relist(start);
    assert_eq!(leader_sync.observe_term(Some(start), false), Transition::default());
    assert!(leader_sync.observe_term(Some(start), true).started_deciding);
    // The new operation does not matter.
    assert_eq!(leader_sync.observe_term(Some(start), false), Transition::default());
    assert!(leader_sync.is_deciding());
}
