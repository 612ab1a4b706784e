use super::*;

#[test]
fn what_is_given_back_joins_its_neighbours() {
    let mut spans = FreeList::new(100, 10);
    let parts: Vec<_> = (0..5).map(|_| spans.allocate(2).unwrap()).collect();
    assert_eq!(parts, [100, 102, 104, 106, 108]);
    assert_eq!(spans.allocate(1), None);
    for index in [0, 2, 4, 3, 1] {
        assert!(!spans.is_unused());
        spans.release(parts[index], 2);
    }
    assert!(spans.is_unused());
    assert_eq!(spans.allocate(10), Some(100));
}

#[test]
fn a_hole_that_is_too_small_is_passed_over() {
    let mut spans = FreeList::new(0, 10);
    let (first, _second) = (spans.allocate(2).unwrap(), spans.allocate(2).unwrap());
    spans.release(first, 2);
    assert_eq!((spans.allocate(3), spans.allocate(2)), (Some(4), Some(0)));
}
