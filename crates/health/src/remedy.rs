//! What brings a device back, from the mildest remedy to a replacement.

use serde::{Deserialize, Serialize};

use crate::unit::{DeviceId, Place, Unit};

/// A remedy. Later ones are harsher.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "camelCase")]
pub enum Remedy {
    /// None; a test shows whether the device works.
    #[default]
    Test,
    /// A reset of the device's PCIe function, as `nvidia-smi -r` does by default.
    ResetFunction,
    /// A reset through the bus, as `nvidia-smi -r bus` does.
    ResetBus,
    /// Unloading and loading the driver.
    ReloadDriver,
    /// A reboot of the node.
    Reboot,
    /// Power of the node off and on.
    PowerCycle,
    /// Another device in its place. Only a person does that.
    Replace,
}

/// The automatic remedies of a cluster, mildest first. A remedy that failed is followed by the next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ladder(Vec<Remedy>);

impl Remedy {
    /// The part whose devices must all be without clients for the remedy.
    pub fn reach(self, device: DeviceId, place: &Place) -> Unit {
        match self {
            Self::Test | Self::Replace => Unit::Device(device),
            Self::ResetFunction | Self::ResetBus if place.resets_alone => Unit::Device(device),
            Self::ResetFunction | Self::ResetBus => Unit::Island(place.island),
            Self::ReloadDriver | Self::Reboot | Self::PowerCycle => Unit::Node(place.node),
        }
    }

    /// Whether it works without the node's agent.
    pub fn is_from_outside(self) -> bool {
        matches!(self, Self::Reboot | Self::PowerCycle)
    }

    /// Whether a program may apply it, and there is something to apply.
    pub fn is_automatic(self) -> bool {
        !matches!(self, Self::Test | Self::Replace)
    }

    /// Name in conditions and labels of metrics: `reset-function`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Test => "test",
            Self::ResetFunction => "reset-function",
            Self::ResetBus => "reset-bus",
            Self::ReloadDriver => "reload-driver",
            Self::Reboot => "reboot",
            Self::PowerCycle => "power-cycle",
            Self::Replace => "replace",
        }
    }
}

impl Default for Ladder {
    /// Both resets, a reboot, a power cycle. The driver is not reloaded: it takes all clients of a node, too, and cures less.
    fn default() -> Self {
        Self(vec![Remedy::ResetFunction, Remedy::ResetBus, Remedy::Reboot, Remedy::PowerCycle])
    }
}

impl Ladder {
    /// A ladder; `None` unless its remedies are automatic and each is harsher than the one before.
    pub fn new(remedies: Vec<Remedy>) -> Option<Self> {
        let rises = remedies.is_sorted_by(|one, next| one < next);
        (rises && remedies.iter().all(|remedy| remedy.is_automatic())).then_some(Self(remedies))
    }

    /// The remedies, mildest first.
    pub fn remedies(&self) -> &[Remedy] {
        &self.0
    }

    /// The mildest remedy of the ladder that is as harsh as `needed`: a replacement if there is none.
    pub fn at_least(&self, needed: Remedy) -> Remedy {
        if needed == Remedy::Test {
            return Remedy::Test;
        }
        self.0.iter().copied().find(|remedy| *remedy >= needed).unwrap_or(Remedy::Replace)
    }

    /// The remedy after one that failed: a replacement after the last.
    pub fn after(&self, failed: Remedy) -> Remedy {
        self.0.iter().copied().find(|remedy| *remedy > failed).unwrap_or(Remedy::Replace)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remedies_get_harsher_and_end_with_a_replacement() {
        let ladder = Ladder::default();
        let mut remedies = vec![Remedy::Test];
        while let Some(last) = remedies.last().filter(|last| **last != Remedy::Replace) {
            remedies.push(ladder.after(*last));
        }
        let names: Vec<_> = remedies.iter().map(|remedy| remedy.name()).collect();
        assert_eq!(
            names,
            ["test", "reset-function", "reset-bus", "reboot", "power-cycle", "replace"]
        );
    }

    #[test]
    fn a_missing_step_is_replaced_by_a_harsher_one() {
        let ladder = Ladder::new(vec![Remedy::Reboot]).unwrap();
        assert_eq!(ladder.at_least(Remedy::Test), Remedy::Test);
        assert_eq!(ladder.at_least(Remedy::ResetBus), Remedy::Reboot);
        assert_eq!(ladder.at_least(Remedy::PowerCycle), Remedy::Replace);
    }

    #[test]
    fn ladders_rise_and_are_automatic() {
        assert!(Ladder::new(vec![Remedy::Reboot, Remedy::ResetBus]).is_none());
        assert!(Ladder::new(vec![Remedy::Reboot, Remedy::Reboot]).is_none());
        assert!(Ladder::new(vec![Remedy::Test, Remedy::Reboot]).is_none());
        assert!(Ladder::new(vec![Remedy::Reboot, Remedy::Replace]).is_none());
        assert!(Ladder::new(Vec::new()).is_some());
    }
}
