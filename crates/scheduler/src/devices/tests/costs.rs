//! What selectors may cost, on one node and on all, at once and in rounds.

use octavo_kube_io::objects::Delta;

use super::kit::{PLAIN, cluster, pod, selecting, slices, whole};
use crate::devices::{AskError, Dearness, Devices};

/// A selector of some ten thousand units for each device, for a depth of four.
fn loops(depth: u32) -> String {
    (0..depth).fold("true".to_owned(), |inner, level| {
        format!("[0, 1, 2, 3, 4, 5, 6, 7, 8, 9].all(n{level}, {inner})")
    })
}

fn nodes(count: usize) -> Devices {
    let names: Vec<_> = (0..count).map(|number| format!("n{number:03}")).collect();
    let nodes: Vec<_> = names.iter().map(|name| (name.as_str(), PLAIN)).collect();
    cluster(&nodes)
}

#[test]
fn selectors_that_cost_too_much_on_all_nodes_together_are_refused() {
    let mut devices = nodes(40);
    let (dear, claim) = pod("dear", selecting(&loops(4)));
    devices.see(&claim);
    let refused = devices.ask(&dear).unwrap_err();
    let words = "request gpu: its CEL selectors cost more than 10000000 units on the devices of all nodes \
                 together, which would hold up everybody";
    assert!(refused.to_string().contains(words), "{refused}");
    assert_eq!(devices.ask(&dear).unwrap_err(), refused, "nor is it run again");
    // Who asks for something else has it.
    let (fair, claim) = pod("fair", selecting(&loops(2)));
    devices.see(&claim);
    assert!(devices.ask(&fair).unwrap().is_exact);
    // Half of the nodes go, those by which it was found out as well.
    for number in 10..40 {
        let name = format!("n{number:03}");
        for slice in slices(PLAIN, &name) {
            devices.apply_slices(&Delta::Gone(slice));
        }
    }
    assert!(devices.ask(&dear).unwrap().is_exact, "what is left is few enough");
}

#[test]
fn what_hardware_that_changes_costs_is_not_added_up() {
    let mut devices = nodes(2);
    let (fair, claim) = pod("fair", selecting(&loops(4)));
    devices.see(&claim);
    for round in 0..40 {
        for slice in slices(PLAIN, "n000") {
            devices.apply_slices(&Delta::Gone(slice.clone()));
            devices.apply_slices(&Delta::Set(slice));
        }
        assert!(devices.ask(&fair).unwrap().is_exact, "round {round}");
    }
}

#[test]
fn selectors_are_run_round_by_round_and_hold_up_nobody_else() {
    let mut devices = nodes(10);
    let (dear, claim) = pod("dear", selecting(&loops(4)));
    devices.see(&claim);
    let (plain, claim) = pod("plain", whole(1));
    devices.see(&claim);
    let (other, claim) = pod("other", selecting("device.driver == 'gpu.nvidia.com'"));
    devices.see(&claim);
    let mut rounds = 0;
    let asked = loop {
        devices.begin_round();
        rounds += 1;
        let asked = devices.ask(&dear);
        assert!(devices.ask(&plain).unwrap().is_exact);
        assert!(devices.ask(&other).is_ok(), "little is done whoever else asks");
        match asked {
            Err(error @ AskError::Unread { .. }) => assert!(error.is_passing()),
            asked => break asked,
        }
    };
    assert!((3..=10).contains(&rounds), "{rounds} rounds");
    let mut at_once = nodes(10);
    let (dear, claim) = pod("dear", selecting(&loops(4)));
    at_once.see(&claim);
    let found = asked.unwrap();
    let all = at_once.ask(&dear).unwrap();
    assert_eq!(
        (&found.demand, found.models),
        (&all.demand, all.models),
        "as if it were run at once"
    );
    // What is too much on one node is said to be that.
    let (dearest, claim) = pod("dearest", selecting(&loops(5)));
    devices.see(&claim);
    devices.begin_round();
    let refused = devices.ask(&dearest).unwrap_err();
    assert!(matches!(refused, AskError::TooCostly { dearness: Dearness::OnNode, .. }), "{refused}");
}
