use super::*;

fn peer(index: Option<i64>, address: &str) -> ComputeDomainDaemon {
    let ip_address = address.to_owned();
    ComputeDomainDaemon { ip_address, index, ..ComputeDomainDaemon::default() }
}

fn addresses(slots: &Slots) -> Vec<String> {
    slots.iter().map(|(_, address)| address.to_string()).collect()
}

#[test]
fn names_are_those_of_nvidias_driver() {
    let names: Vec<_> = Slots::new(1024).iter().map(|(name, _)| name).collect();
    assert_eq!(names[0], "compute-domain-daemon-0000");
    assert_eq!(names[1023], "compute-domain-daemon-1023");
}

#[test]
fn a_slot_keeps_its_address_until_it_is_taken_again() {
    let mut slots = Slots::new(3);
    let own = Some((0, "10.0.0.1".parse().unwrap()));
    assert!(slots.enter([&peer(Some(2), "10.0.0.3")], own));
    assert!(!slots.enter([&peer(Some(2), "10.0.0.3")], own), "nothing changed");
    assert!(!slots.enter([], own), "a peer that left changes nothing");
    assert_eq!(addresses(&slots), ["10.0.0.1", "127.0.0.2", "10.0.0.3"]);
    assert!(slots.enter([&peer(Some(2), "10.0.0.4")], own));
    assert_eq!(addresses(&slots), ["10.0.0.1", "127.0.0.2", "10.0.0.4"]);
}

#[test]
fn no_address_is_at_two_slots() {
    let mut slots = Slots::new(3);
    slots.enter([&peer(Some(1), "10.0.0.9")], None);
    assert!(slots.enter([&peer(Some(2), "10.0.0.9")], None), "its address is used again");
    assert_eq!(addresses(&slots), ["127.0.0.2", "127.0.0.2", "10.0.0.9"]);
    slots.enter([], Some((0, "10.0.0.9".parse().unwrap())));
    assert_eq!(addresses(&slots), ["10.0.0.9", "127.0.0.2", "127.0.0.2"]);
}

#[test]
fn entries_without_a_slot_or_an_address_are_left_out() {
    let mut slots = Slots::new(2);
    let peers = [
        peer(None, "10.0.0.1"),
        peer(Some(-1), "10.0.0.2"),
        peer(Some(2), "10.0.0.3"),
        peer(Some(i64::MAX), "10.0.0.4"),
        peer(Some(1), "no address"),
        peer(Some(0), "fd00::5"),
    ];
    assert!(slots.enter(&peers, None));
    assert_eq!(addresses(&slots), ["fd00::5", "127.0.0.2"]);
}
