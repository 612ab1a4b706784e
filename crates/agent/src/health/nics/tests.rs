use super::*;

/// A port whose counters are at zero.
fn port(is_active: bool) -> NetworkPort {
    let zero = Some(0);
    NetworkPort { is_active, symbol_errors: zero, recoveries: zero, downs: zero }
}

/// Takes a look at a card with one port. Returns what is reported of it.
fn look(card: &mut Card, shown: NetworkPort, now: u64) -> Option<NicPort> {
    let look = CardLook {
        pci: "0000:18:00.0".parse().unwrap(),
        name: "mlx5_0".to_owned(),
        gpus: ["GPU-0".to_owned()].into(),
        ports: [(1, Some(shown))].into(),
    };
    let observed = card.look(&look, now);
    observed.into_iter().next().map(|observation| match observation {
        Observation::Nic(port) => port,
        other => panic!("{other:?}"),
    })
}

/// A card whose port was up once.
fn up() -> Card {
    let mut card = Card::default();
    assert_eq!(look(&mut card, port(true), 0), None);
    card
}

/// The card as a new agent reads it from the record.
fn restarted(card: &Card) -> Card {
    serde_json::from_str(&serde_json::to_string(card).unwrap()).unwrap()
}

#[test]
fn a_port_that_was_never_up_is_unused() {
    let mut card = Card::default();
    for now in [0, 10, 20] {
        assert_eq!((look(&mut card, port(false), now), card.fault(now)), (None, None));
    }
    assert!(!card.is_forgotten(), "it is there");
}

#[test]
fn a_port_that_was_up_and_is_down_at_two_looks_is_a_fault_until_it_is_up() {
    let mut card = up();
    assert_eq!(look(&mut card, port(false), 10), None, "it may be up again at once");
    assert_eq!(card.fault(10).unwrap(), "port 1 of the network card mlx5_0 is down");
    let down = NicPort { is_down: true, ..NicPort::default() };
    for now in [20, 30] {
        assert_eq!(look(&mut card, port(false), now), Some(down), "no state depends on one report");
    }
    assert_eq!((look(&mut card, port(true), 40), card.fault(40)), (None, None));
    assert_eq!(look(&mut card, port(false), 50), None);
    assert_eq!((look(&mut card, port(true), 60), card.fault(60)), (None, None));
}

#[test]
fn many_symbol_errors_within_an_hour_are_a_fault() {
    let errors = |count| NetworkPort { symbol_errors: Some(count), ..port(true) };
    let mut card = Card::default();
    assert_eq!(look(&mut card, errors(9_000), 0), None, "they were before the first look");
    assert_eq!(look(&mut card, errors(9_120), 10), None);
    assert_eq!(card.fault(10), None);
    assert_eq!(look(&mut card, errors(9_121), 20).unwrap().symbol_errors, 121);
    let fault = card.fault(20).unwrap();
    assert!(fault.ends_with("had more than 120 symbol errors within an hour"), "{fault}");
    // A new agent begins to count, and knows that there were many.
    let mut again = restarted(&card);
    assert_eq!(look(&mut again, errors(9_121), 30), None);
    assert_eq!(again.fault(30), Some(fault));
    for card in [&mut card, &mut again] {
        assert_eq!(look(card, errors(9_121), 20 + HOUR), None);
        assert_eq!(card.fault(20 + HOUR), None);
    }
    // The counter was set to zero.
    assert_eq!(look(&mut card, errors(200), 4_000), None);
    assert_eq!(look(&mut card, errors(321), 4_010).unwrap().symbol_errors, 121);
}

#[test]
fn many_recoveries_are_a_warning_once_an_hour() {
    let mut card = up();
    let mut recover = |count, now| {
        let shown = NetworkPort { recoveries: Some(count), ..port(true) };
        let reported = look(&mut card, shown, now).map(|port| port.recoveries);
        (reported, card.fault(now))
    };
    assert_eq!(recover(5, 10), (None, None));
    assert_eq!(recover(6, 20), (Some(6), None));
    assert_eq!(recover(30, 30), (None, None));
    assert_eq!(recover(36, 20 + HOUR), (Some(6), None));
}

#[test]
fn a_link_that_goes_down_three_times_in_twelve_hours_is_a_fault() {
    let mut card = up();
    let downs = |count| NetworkPort { downs: Some(count), ..port(true) };
    assert_eq!(look(&mut card, downs(2), 10), None);
    assert_eq!(look(&mut card, downs(3), 20).unwrap().flaps, 3);
    let fault = "port 1 of the network card mlx5_0 went down 3 times within 12 hours";
    assert_eq!(card.fault(20).as_deref(), Some(fault));
    let mut again = restarted(&card);
    assert_eq!(look(&mut again, downs(3), 30).unwrap().flaps, 3);
    assert_eq!(look(&mut again, downs(3), 10 + FLAP_WINDOW), None);
    assert_eq!(again.fault(10 + FLAP_WINDOW), None);
    // A clock that was set back holds nothing up for longer.
    assert!(look(&mut card, downs(3), 5).is_some());
    assert_eq!(look(&mut card, downs(3), 5 + FLAP_WINDOW), None);
}

#[test]
fn without_a_counter_links_that_go_down_are_counted() {
    let without = |is_active| NetworkPort { is_active, ..NetworkPort::default() };
    let mut card = Card::default();
    for now in 0..6 {
        assert_eq!(look(&mut card, without(now % 2 == 0), now).map(|port| port.flaps), {
            (now == 5).then_some(3)
        });
    }
}

#[test]
fn a_record_changes_with_links_and_not_with_counters() {
    let mut card = up();
    let text = serde_json::to_string(&card).unwrap();
    let shown = NetworkPort { symbol_errors: Some(7), recoveries: Some(1), ..port(true) };
    look(&mut card, shown, 10);
    assert_eq!(serde_json::to_string(&card).unwrap(), text);
    look(&mut card, port(false), 20);
    assert_ne!(serde_json::to_string(&card).unwrap(), text);
    let mut again = restarted(&card);
    assert!(again.fault(30).is_some(), "before its first look, too");
    assert!(look(&mut again, port(false), 30).unwrap().is_down);
}

#[test]
fn after_a_boot_a_link_that_was_down_is_still_to_be_mended() {
    let mut well = up();
    well.booted();
    look(&mut well, port(false), 10);
    assert_eq!(well.fault(10), None, "it has not been up since");
    let mut broken = up();
    look(&mut broken, port(false), 10);
    broken.booted();
    assert!(look(&mut broken, port(false), 20).unwrap().is_down);
    look(&mut broken, port(true), 30);
    assert_eq!(broken.fault(30), None);
}

#[test]
fn a_card_that_is_gone_is_at_fault_if_it_was_in_use() {
    let mut unused = Card::default();
    look(&mut unused, port(false), 0);
    assert_eq!((unused.gone(10), unused.is_forgotten()), (Vec::new(), true));
    let mut card = up();
    assert_eq!(card.gone(10), []);
    assert!(!card.is_forgotten());
    assert_eq!(card.fault(10).unwrap(), "the network card mlx5_0 is not there any more");
    assert_eq!(card.gone(20).len(), 1);
    card.accept();
    assert!(card.is_forgotten() && card.fault(20).is_none());
}

#[test]
fn a_person_accepts_a_card_as_it_is() {
    let mut card = up();
    let downs = |count, is_active| NetworkPort { downs: Some(count), ..port(is_active) };
    look(&mut card, downs(4, true), 10);
    look(&mut card, downs(5, false), 20);
    card.accept();
    for now in [30, 40] {
        assert_eq!((look(&mut card, downs(5, false), now), card.fault(now)), (None, None));
    }
    look(&mut card, downs(5, true), 50);
    look(&mut card, downs(6, false), 60);
    assert!(look(&mut card, downs(6, false), 70).unwrap().is_down, "it counts once it was up");
}

#[test]
fn a_port_that_cannot_be_read_stays_as_it_was() {
    let mut card = up();
    look(&mut card, port(false), 10);
    let unreadable = CardLook {
        pci: "0000:18:00.0".parse().unwrap(),
        name: "mlx5_0".to_owned(),
        gpus: ["GPU-0".to_owned()].into(),
        ports: [(1, None)].into(),
    };
    assert_eq!(card.look(&unreadable, 20), []);
    assert!(card.fault(20).is_some() && card.serves("GPU-0"));
}
