//! What is remembered of the network cards that serve GPUs, so that rates of errors and lost links show.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use octavo_gpu::{NetworkPort, PciAddress};
use octavo_health::HOUR;
use octavo_health::signal::{NicPort, Observation};
use octavo_health::verdict::{self, MANY_FLAPS, MANY_SYMBOL_ERRORS, Verdict};
use serde::{Deserialize, Serialize};

/// Time in which recoveries of a link are counted, in seconds.
const RECOVERY_WINDOW: u64 = 60;
/// Time in which it is counted how often a link went down, in seconds.
const FLAP_WINDOW: u64 = 12 * HOUR;

/// A network card, as a look shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CardLook {
    /// PCI address.
    pub(crate) pci: PciAddress,
    /// Name.
    pub(crate) name: String,
    /// UUIDs of the known GPUs that it serves.
    pub(crate) gpus: BTreeSet<String>,
    /// Its ports by number; `None` for one that cannot be read.
    pub(crate) ports: BTreeMap<u32, Option<NetworkPort>>,
}

/// What is remembered of a network card.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Card {
    name: String,
    /// UUIDs of the GPUs that it serves.
    gpus: BTreeSet<String>,
    ports: BTreeMap<u32, Port>,
    /// Whether the kernel does not show it any more.
    #[serde(skip)]
    is_gone: bool,
}

/// What is remembered of a port. A record is written when it changes, so counters are not in it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Port {
    link: Link,
    /// How often the link went down, of late.
    flaps: Rises,
    /// When there last were many symbol errors, to half an hour. A new agent begins to count, and must let no GPU return by that.
    noisy: Option<u64>,
    /// When a warning was last reported, in seconds.
    warned: Option<u64>,
    /// Whether the link was down at the last two looks.
    #[serde(skip)]
    is_down: bool,
    #[serde(skip)]
    symbol_errors: Rises,
    #[serde(skip)]
    recoveries: Rises,
}

/// The link of a port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
enum Link {
    /// It has not been up since the boot, or since a person released a GPU: perhaps no cable is in the port.
    #[default]
    Unused,
    /// It is up.
    Up,
    /// It was up and is down.
    Down,
}

/// How much a counter rose, and when.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
struct Rises {
    rises: Vec<(u64, u64)>,
    /// The counter at the last look.
    #[serde(skip)]
    last: Option<u64>,
}

impl Card {
    /// Whether it serves a GPU.
    pub(super) fn serves(&self, uuid: &str) -> bool {
        self.gpus.contains(uuid)
    }

    /// Whether it serves the same GPUs as at a look.
    pub(super) fn is_placed_as(&self, look: &CardLook) -> bool {
        self.gpus == look.gpus
    }

    /// Takes a look. Returns what is to be reported.
    pub(super) fn look(&mut self, look: &CardLook, now: u64) -> Vec<Observation> {
        self.is_gone = false;
        self.name.clone_from(&look.name);
        self.gpus.clone_from(&look.gpus);
        self.ports.retain(|number, _| look.ports.contains_key(number));
        let shown = look.ports.iter().filter_map(|(number, shown)| Some((*number, (*shown)?)));
        shown
            .filter_map(|(number, shown)| self.ports.entry(number).or_default().look(shown, now))
            .collect()
    }

    /// The kernel does not show it: what was up is down.
    pub(super) fn gone(&mut self, now: u64) -> Vec<Observation> {
        self.is_gone = true;
        let none = NetworkPort::default();
        self.ports.values_mut().filter_map(|port| port.look(none, now)).collect()
    }

    /// Whether nothing has to be remembered: it is gone, and no port of it is at fault.
    pub(super) fn is_forgotten(&self) -> bool {
        self.is_gone && self.ports.values().all(|port| port.link == Link::Unused)
    }

    /// It is not looked at for a while: what its counters rise meanwhile is not known to be of late.
    pub(super) fn pause(&mut self) {
        for port in self.ports.values_mut() {
            for rises in [&mut port.flaps, &mut port.symbol_errors, &mut port.recoveries] {
                rises.last = None;
            }
        }
    }

    /// Whether other cards serve a GPU of it now, as a look shows.
    pub(super) fn is_replaced(&self, look: &CardLook, served: &BTreeSet<&String>) -> bool {
        look.gpus.is_empty() && self.gpus.iter().any(|uuid| served.contains(uuid))
    }

    /// The node has started again. A link that was up is to come up before it counts. One that was down is still to be mended.
    pub(super) fn booted(&mut self) {
        for port in self.ports.values_mut().filter(|port| port.link == Link::Up) {
            port.link = Link::Unused;
        }
    }

    /// A person releases a GPU of it: it is good as it is now.
    pub(super) fn accept(&mut self) {
        for port in self.ports.values_mut() {
            let link = if port.link == Link::Up { Link::Up } else { Link::Unused };
            *port = Port { link, ..Port::default() };
        }
    }

    /// What is at fault now, so that no GPU of it may return.
    pub(super) fn fault(&self, now: u64) -> Option<String> {
        let faults = self.ports.iter().find_map(|(number, port)| Some((number, port.fault(now)?)));
        let (number, fault) = faults?;
        Some(if self.is_gone {
            format!("the network card {} is not there any more", self.name)
        } else {
            format!("port {number} of the network card {} {fault}", self.name)
        })
    }
}

impl Port {
    /// Takes a look. Returns what is to be reported: a fault as long as it lasts, a warning once an hour.
    fn look(&mut self, shown: NetworkPort, now: u64) -> Option<Observation> {
        let was_up = self.link == Link::Up;
        // One that is up again by the next look has only flapped.
        self.is_down = !shown.is_active && self.link == Link::Down;
        if shown.is_active {
            self.link = Link::Up;
        } else if was_up {
            self.link = Link::Down;
        }
        if shown.downs.is_none() && was_up && !shown.is_active {
            self.flaps.add(1, now);
        }
        self.flaps.take(shown.downs, now, FLAP_WINDOW);
        self.symbol_errors.take(shown.symbol_errors, now, HOUR);
        self.recoveries.take(shown.recoveries, now, RECOVERY_WINDOW);
        let port = NicPort {
            is_down: self.is_down,
            symbol_errors: self.symbol_errors.within(HOUR, now),
            recoveries: self.recoveries.within(RECOVERY_WINDOW, now),
            flaps: self.flaps.within(FLAP_WINDOW, now),
        };
        self.note_noise(port.symbol_errors > MANY_SYMBOL_ERRORS, now);
        let observation = Observation::Nic(port);
        let is_reported = match verdict::of(&observation, &BTreeMap::new()) {
            Verdict::Nothing => false,
            Verdict::Watch { .. } => self.warns(now),
            _ => true,
        };
        is_reported.then_some(observation)
    }

    fn note_noise(&mut self, has_many: bool, now: u64) {
        // A clock that was set back holds nothing up.
        let last = self.noisy.map(|at| at.min(now)).filter(|at| now - at < HOUR);
        self.noisy =
            if has_many { last.filter(|at| now - at < HOUR / 2).or(Some(now)) } else { last };
    }

    fn warns(&mut self, now: u64) -> bool {
        let is_due = self.warned.is_none_or(|last| now < last || now - last >= HOUR);
        if is_due {
            self.warned = Some(now);
        }
        is_due
    }

    fn fault(&self, now: u64) -> Option<String> {
        let flaps = self.flaps.within(FLAP_WINDOW, now);
        if self.link == Link::Down {
            Some("is down".to_owned())
        } else if flaps >= MANY_FLAPS {
            Some(format!("went down {flaps} times within 12 hours"))
        } else if self.noisy.is_some_and(|at| now.saturating_sub(at) < HOUR) {
            Some(format!("had more than {MANY_SYMBOL_ERRORS} symbol errors within an hour"))
        } else {
            None
        }
    }
}

impl Rises {
    /// Takes a counter, and forgets what was longer ago than a time. One that fell was set to zero.
    fn take(&mut self, counter: Option<u64>, now: u64, window: u64) {
        for (at, _) in &mut self.rises {
            *at = now.min(*at);
        }
        self.rises.retain(|(at, _)| now - at < window);
        let before = std::mem::replace(&mut self.last, counter);
        if let (Some(before), Some(counter)) = (before, counter)
            && counter > before
        {
            self.add(counter - before, now);
        }
    }

    fn add(&mut self, rise: u64, now: u64) {
        self.rises.push((now, rise));
    }

    /// How much it rose within a time.
    fn within(&self, window: u64, now: u64) -> u64 {
        let recent = self.rises.iter().filter(|(at, _)| now.saturating_sub(*at) < window);
        recent.map(|(_, rise)| *rise).fold(0, u64::saturating_add)
    }
}
