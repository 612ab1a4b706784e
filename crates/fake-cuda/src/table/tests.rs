use super::*;

#[test]
fn a_handle_of_something_destroyed_stands_for_nothing() {
    static THINGS: Table<u32> = Table::new(HandleKind::Event);
    let first = THINGS.insert(7).unwrap();
    assert_eq!(THINGS.with(first, |n| Ok(*n)), Ok(7));
    assert_eq!(THINGS.remove(first), Ok(7));
    let second = THINGS.insert(8).unwrap();
    assert_ne!(first, second, "the place is the same, the handle is not");
    assert_eq!(THINGS.with(first, |n| Ok(*n)), Err(Code::INVALID_HANDLE));
    assert_eq!(THINGS.remove(first), Err(Code::INVALID_HANDLE));
    assert_eq!(THINGS.handles(), [second]);
}

#[test]
fn a_handle_of_another_kind_stands_for_nothing() {
    static EVENTS: Table<u32> = Table::new(HandleKind::Event);
    static STREAMS: Table<u32> = Table::new(HandleKind::Stream);
    let event = EVENTS.insert(1).unwrap();
    STREAMS.insert(2).unwrap();
    assert_eq!(STREAMS.with(event, |n| Ok(*n)), Err(Code::INVALID_HANDLE));
    for wrong in [0, 1, 2, usize::MAX, event + 16] {
        assert!(EVENTS.with(wrong, |n| Ok(*n)).is_err());
    }
}

#[test]
fn a_loop_of_creating_and_destroying_takes_one_place() {
    static THINGS: Table<u32> = Table::new(HandleKind::Event);
    for n in 0..100_000 {
        let handle = THINGS.insert(n).unwrap();
        assert_eq!(THINGS.remove(handle), Ok(n));
    }
    assert_eq!(THINGS.used.load(Relaxed), 1);
}
