use std::path::Path;

use super::*;

fn machine() -> Machine {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../machines/dgx-h100.yaml");
    let mut machine = Machine::read(&path).unwrap();
    machine.instantiate("node");
    machine
}

#[test]
fn devices_are_visible_in_the_order_in_which_they_are_named() {
    let machine = machine();
    let all: Vec<u32> = (0..8).collect();
    let uuid = machine.gpus[5].uuid.clone().unwrap();
    assert_eq!(visible("3,1", &all, &machine), [3, 1]);
    assert_eq!(visible(&format!("{},0", &uuid[..20]), &all, &machine), [5, 0]);
    assert_eq!(visible(" 2 , 4 ", &all, &machine), [2, 4]);
    // Ordinals count visible GPUs, as in a container with two of eight GPUs.
    assert_eq!(visible("1", &[6, 7], &machine), [7]);
}

#[test]
fn a_name_that_is_nothing_ends_the_list_and_a_repetition_hides_all() {
    let machine = machine();
    let all: Vec<u32> = (0..8).collect();
    assert_eq!(visible("0,9,1", &all, &machine), [0]);
    assert_eq!(visible("-1", &all, &machine), [0; 0]);
    assert_eq!(visible("", &all, &machine), [0; 0]);
    assert_eq!(visible("NoDevFiles", &all, &machine), [0; 0]);
    assert_eq!(visible("1,2,1", &all, &machine), [0; 0]);
    assert_eq!(visible("GPU-", &all, &machine), [0; 0], "all of them begin like this");
}
