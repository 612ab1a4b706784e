//! What happens next to a GPU, and what a person can do.

use octavo_api::health_policy::TimesSpec;
use octavo_api::node_health::DeviceHealth;
use octavo_health::remedy::Remedy;

use super::{GivenOrder, History};
use crate::age::span;
use crate::health::words;

/// A GPU and what matters for its future.
pub(super) struct Case<'a> {
    pub(super) node: &'a str,
    pub(super) gpu: &'a DeviceHealth,
    /// The times of the policy in force.
    pub(super) times: TimesSpec,
    pub(super) history: Option<&'a History>,
    pub(super) order: Option<&'a GivenOrder>,
    /// Whether the controller evicts its pods.
    pub(super) evicts: bool,
    /// Until when remedies of its policy are stopped.
    pub(super) stopped_until: Option<&'a str>,
    /// Whether a claim has it.
    pub(super) is_held: bool,
}

impl Case<'_> {
    /// What happens next, in sentences.
    pub(super) fn next(&self) -> Vec<String> {
        let mut next = Vec::new();
        if let Some(order) = self.order.filter(|order| !order.is_done) {
            next.push(format!(
                "The agent of the node carries out order {} ({}).",
                order.number,
                words::api_name(order.word)
            ));
        }
        if self.evicts {
            next.push("The controller evicts its pods.".to_owned());
        }
        let times = self.times;
        match self.gpu.state.as_str() {
            "Healthy" if next.is_empty() => next.push("Nothing: it is in service.".to_owned()),
            "Watch" => next.push(format!(
                "It is Healthy again {} after its last warning.",
                span(times.watch_seconds)
            )),
            "Suspect" | "Fenced" => next.extend(self.waiting()),
            "Resetting" => {
                next.push(format!(
                    "{} runs. It counts as failed if it has not ended after {}.",
                    capital(self.gpu.remedy.map_or("a remedy", words::remedy)),
                    span(times.remedy_limit_seconds)
                ));
                next.push("A test follows.".to_owned());
                next.push(AFTER_TEST.to_owned());
            }
            "Verifying" => next.extend(["A test runs.", AFTER_TEST].map(str::to_owned)),
            "Probation" => {
                next.push(format!(
                    "It is Healthy {} after its return if nothing happens.",
                    span(times.probation_seconds)
                ));
                next.push(format!(
                    "A fault of its own within {} after its return is a relapse. The {} retires it.",
                    span(times.relapse_seconds),
                    ordinal(times.relapses)
                ));
            }
            "Retired" if next.is_empty() => {
                next.push("Nothing by itself: only a person returns it.".to_owned());
            }
            _ => {}
        }
        if let Some(reason) = self.history.and_then(|history| history.retires.as_ref()) {
            next.push(format!("It retires once the remedy has ended: {reason}."));
        }
        next
    }

    /// What a GPU that is suspect or fenced waits for.
    fn waiting(&self) -> Vec<String> {
        let mut next = Vec::new();
        let needs = self.gpu.needs;
        if let Some(needs) = needs {
            next.push(format!("It needs {}.", words::remedy(needs)));
        }
        match (&self.gpu.waits, needs) {
            (Some(waits), _) => next.push(words::wait(waits)),
            (None, Some(_)) => next.push("It begins next.".to_owned()),
            (None, None) => {}
        }
        if let Some(until) =
            self.stopped_until.filter(|_| self.gpu.waits.as_deref() == Some("Storm"))
        {
            next.push(format!("They are stopped until {until}."));
        }
        if self.history.is_some_and(|history| history.is_held) {
            next.push("A person fenced it, so that no test returns it.".to_owned());
        } else if needs.is_some_and(|needs| needs != Remedy::Replace) {
            if needs != Some(Remedy::Test) {
                next.push("A test follows.".to_owned());
            }
            next.push(AFTER_TEST.to_owned());
        }
        next
    }

    /// What a person can do, in sentences.
    pub(super) fn options(&self) -> Vec<String> {
        let mut options = Vec::new();
        let Self { node, gpu, .. } = self;
        let command =
            |word: &str| format!("`octavo health {word} {node} {} --reason TEXT`", gpu.name);
        if let Some(order) = self.order.filter(|order| !order.is_done) {
            options.push(format!(
                "Look at the agent of the node if order {} stays: `octavo doctor {node}`, and its log.",
                order.number
            ));
        }
        let retire = format!("{} takes it out of service for good.", command("retire"));
        let fence = format!("{} takes it out of service until it is released.", command("fence"));
        match gpu.state.as_str() {
            "Healthy" | "Probation" => options.push(fence),
            "Watch" => {
                options.push(fence);
                options.push(format!("{} ends the watch.", command("release")));
            }
            "Suspect" | "Fenced" => {
                options.extend(self.for_what_it_needs());
                options.push(format!("{} returns it without a test.", command("release")));
                options.push(retire);
            }
            "Resetting" => options.push(retire),
            "Verifying" => {
                options.push(format!("{} returns it before the test ends.", command("release")));
                options.push(retire);
            }
            "Retired" => options.push(format!(
                "Replace the board, or decide that it is good. Then {} lets it be tested and return.",
                command("release")
            )),
            _ => {}
        }
        options
    }

    /// What helps a GPU that waits.
    fn for_what_it_needs(&self) -> Vec<String> {
        let mut options = Vec::new();
        match self.gpu.waits.as_deref() {
            Some("Clients") if self.is_held => {
                options.push("End the pods that hold it, or wait for their end.".to_owned());
            }
            Some("Clients") => {
                options.push(format!("End the processes that use it, on node {}.", self.node));
            }
            Some("TestNotPossible") => options.push(
                "Mend what hinders the test: it is tried again, at least every 10 minutes. Or test by hand and release it.".to_owned(),
            ),
            Some("ObserveOnly") => {
                options.push("Give the HealthPolicy of the node the mode Fence or Act.".to_owned());
            }
            _ => {}
        }
        if matches!(self.gpu.waits.as_deref(), Some("RemedyByPerson" | "ObserveOnly")) {
            options.extend(self.gpu.needs.and_then(|needs| self.by_hand(needs)));
        }
        options
    }

    /// How a person applies a remedy.
    fn by_hand(&self, remedy: Remedy) -> Option<String> {
        let Self { node, gpu, .. } = self;
        let with_released_driver = |what: &str| {
            format!(
                "Once no pod uses it: `octavo driver release {node}`, then {what} on the node, then `octavo driver resume {node}`."
            )
        };
        match remedy {
            Remedy::Test => None,
            Remedy::ResetFunction => {
                Some(with_released_driver(&format!("`nvidia-smi --gpu-reset -i {}`", gpu.uuid)))
            }
            Remedy::ResetBus => {
                Some(with_released_driver(&format!("`nvidia-smi -r bus -i {}`", gpu.uuid)))
            }
            Remedy::ReloadDriver => {
                Some(with_released_driver("unload and load the modules of the driver"))
            }
            Remedy::Reboot => Some(format!(
                "Drain the node and reboot it: `kubectl drain {node} --ignore-daemonsets`."
            )),
            Remedy::PowerCycle => Some(format!(
                "Drain the node and turn its power off and on: `kubectl drain {node} --ignore-daemonsets`."
            )),
            Remedy::Replace => Some("Replace the board.".to_owned()),
        }
    }
}

const AFTER_TEST: &str = "If the test passes, it returns on probation. If not, the next harsher remedy follows, and after the last one \
                          it is retired.";

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().map(|first| first.to_ascii_uppercase());
    first.into_iter().chain(letters).collect()
}

fn ordinal(number: i64) -> String {
    let ending = match (number % 100, number % 10) {
        (11..=13, _) => "th",
        (_, 1) => "st",
        (_, 2) => "nd",
        (_, 3) => "rd",
        _ => "th",
    };
    format!("{number}{ending}")
}
