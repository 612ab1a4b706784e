//! Which program deletes members of gangs on lost nodes. As in the chart it is the controller, if it runs beside the scheduler.

use anyhow::ensure;
use serde_json::{Value, json};

/// How the controller does so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ControllerRepair {
    /// Seconds after which they are deleted.
    after_seconds: u64,
    /// `spec.schedulerName` of the members.
    scheduler_name: String,
}

impl ControllerRepair {
    /// What the chart makes of keys of the scheduler's config. `None`: the scheduler deletes them, or no program does.
    pub(crate) fn of(config: Option<&Value>) -> Option<Self> {
        let key = |name: &str| config.and_then(|config| config.get(name));
        let by = key("repairBy").and_then(Value::as_str).unwrap_or("Controller");
        let after_seconds = key("repairAfterSeconds").and_then(Value::as_u64).unwrap_or(60);
        let scheduler_name = key("schedulerName").and_then(Value::as_str).unwrap_or("octavo");
        let is_wanted = by == "Controller" && after_seconds > 0;
        is_wanted.then(|| Self { after_seconds, scheduler_name: scheduler_name.to_owned() })
    }

    /// Refuses a config of the scheduler that leaves lost nodes to a controller where none runs: no program would repair gangs.
    pub(crate) fn check(config: Option<&Value>, has_controller: bool) -> anyhow::Result<()> {
        let by = config.and_then(|config| config.get("repairBy"));
        ensure!(
            has_controller || by.and_then(Value::as_str) != Some("Controller"),
            "the scheduler's config has `repairBy: Controller`, and this lab runs no controller: ask for one, or omit the key"
        );
        Ok(())
    }

    /// The section `health.repair` of the controller's config.
    pub(crate) fn section(&self) -> Value {
        json!({"afterSeconds": self.after_seconds, "schedulerName": self.scheduler_name})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_controller_repairs_unless_the_scheduler_is_to_or_no_program() {
        let section =
            |config: Value| ControllerRepair::of(Some(&config)).map(|repair| repair.section());
        let default = json!({"afterSeconds": 60, "schedulerName": "octavo"});
        assert_eq!(ControllerRepair::of(None).unwrap().section(), default);
        assert_eq!(section(json!({"repairBy": "Controller"})), Some(default));
        let wanted = json!({"afterSeconds": 5, "schedulerName": "gpus"});
        let other = json!({"repairAfterSeconds": 5, "schedulerName": "gpus"});
        assert_eq!(section(other), Some(wanted));
        assert_eq!(section(json!({"repairBy": "Scheduler"})), None);
        assert_eq!(section(json!({"repairAfterSeconds": 0})), None);
    }

    #[test]
    fn repair_by_a_controller_needs_one() {
        let config = |by: &str| json!({"repairBy": by});
        let check =
            |config: &Value, has_controller| ControllerRepair::check(Some(config), has_controller);
        let error = check(&config("Controller"), false).unwrap_err().to_string();
        assert!(error.contains("this lab runs no controller"), "{error}");
        check(&config("Controller"), true).unwrap();
        check(&config("Scheduler"), false).unwrap();
        ControllerRepair::check(None, false).unwrap();
    }
}
