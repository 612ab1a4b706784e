//! What states, remedies and waits mean, for people.

use jiff::Timestamp;
use octavo_health::remedy::Remedy;
use serde::Serialize;

use crate::age::age;

/// The name of a value as the API writes it, such as `resetFunction`.
pub(super) fn api_name(value: impl Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(name)) => name,
        _ => String::new(),
    }
}

/// What a state means for pods.
pub(super) fn state(state: &str) -> &'static str {
    match state {
        "Healthy" => "It is in service.",
        "Watch" => "It is in service. It had warnings.",
        "Suspect" => "It takes no new pods. Pods on it may run to their end.",
        "Fenced" => "It is out of service.",
        "Resetting" => "It is out of service while a remedy runs.",
        "Verifying" => "It is out of service while it is tested.",
        "Probation" => "It is in service again, and observed.",
        "Retired" => "It is out of service until a person releases it.",
        _ => "This version of octavo does not know the state.",
    }
}

/// A remedy, with its article.
pub(super) fn remedy(remedy: Remedy) -> &'static str {
    match remedy {
        Remedy::Test => "a test",
        Remedy::ResetFunction => "a reset of its PCIe function (resetFunction)",
        Remedy::ResetBus => "a reset through the bus (resetBus)",
        Remedy::ReloadDriver => "a reload of the driver (reloadDriver)",
        Remedy::Reboot => "a reboot of the node (reboot)",
        Remedy::PowerCycle => "a power cycle of the node (powerCycle)",
        Remedy::Replace => "another board (replace)",
    }
}

/// Why something does not begin, by the constant of [`octavo_health::decide::Wait`].
pub(super) fn wait(wait: &str) -> String {
    match wait {
        "ObserveOnly" => "The policy of the node observes only: nothing is done.",
        "Operator" => {
            "A person fenced it, or a GPU that the remedy reaches: it waits for a release."
        }
        "Storm" => "Many nodes failed at about the same time, so remedies and tests are stopped.",
        "HarsherRemedy" => {
            "A GPU that the remedy reaches, or whose remedy reaches it, needs a harsher one first."
        }
        "NodeNotReady" => "Its node is not ready.",
        "IslandBusy" => "A remedy or a test runs in its NVLink island.",
        "Budget" => "As many remedies run as the budget of its policy allows.",
        "Clients" => {
            "Processes use it, or a GPU that the remedy reaches: it begins once they have ended."
        }
        "TestNotPossible" => "Its test cannot be tried now, so nothing is known of it.",
        "RemedyByPerson" => "The mode of its node leaves remedies to a person.",
        "Permit" => "It waits for the permit of the controller.",
        other => return format!("It waits: {other}."),
    }
    .to_owned()
}

/// How long ago a time was, such as `2h3m`; the text itself if it is no time.
pub(super) fn since(text: &str, now: Timestamp) -> String {
    text.parse().map_or_else(|_| text.to_owned(), |at| age(at, now))
}
