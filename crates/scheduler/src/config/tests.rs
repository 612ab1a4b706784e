use super::*;

#[test]
fn the_scheduler_leaves_lost_nodes_to_the_controller_if_its_config_says_so() {
    let after =
        |text: &str| serde_saphyr::from_str::<Config>(text).unwrap().core().repair_after_seconds;
    assert_eq!(after("repairAfterSeconds: 90"), 90);
    assert_eq!(after("{repairAfterSeconds: 90, repairBy: Scheduler}"), 90);
    assert_eq!(after("{repairAfterSeconds: 90, repairBy: Controller}"), 0, "never");
    assert!(serde_saphyr::from_str::<Config>("repairBy: Person").is_err());
}
