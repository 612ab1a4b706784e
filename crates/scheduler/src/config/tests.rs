use super::*;

#[test]
fn a_bound_of_no_repairs_is_refused() {
    let checked = |text: &str| serde_saphyr::from_str::<Config>(text).unwrap().check();
    assert_eq!(checked("maxRepairs: 0"), Err("maxRepairs is 0, but it must be at least 1".into()));
    assert_eq!(checked("{maxRepairs: 1, repairWindowSeconds: 0}"), Ok(()));
}

#[test]
fn the_scheduler_leaves_lost_nodes_to_the_controller_if_its_config_says_so() {
    let after =
        |text: &str| serde_saphyr::from_str::<Config>(text).unwrap().core().repair_after_seconds;
    assert_eq!(after("repairAfterSeconds: 90"), 90);
    assert_eq!(after("{repairAfterSeconds: 90, repairBy: Scheduler}"), 90);
    assert_eq!(after("{repairAfterSeconds: 90, repairBy: Controller}"), 0, "never");
    assert!(serde_saphyr::from_str::<Config>("repairBy: Person").is_err());
}
