//! The contenders: no scheduler, kube-scheduler, Octavo's scheduler.

use clap::ValueEnum;
use octavo_lab::Component;

/// A contender.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(super) enum Contender {
    /// No scheduler: a client issues a scheduler's writes without deciding anything.
    Raw,
    /// Kubernetes' own scheduler.
    #[value(name = "kube-scheduler")]
    Kube,
    /// The same beside a `DeviceClass` whose `extendedResourceName` is that of the pods' GPUs.
    #[value(name = "kube-scheduler-class")]
    KubeWithClass,
    /// Octavo's scheduler.
    Octavo,
    /// The same beside that `DeviceClass`.
    #[value(name = "octavo-class")]
    OctavoWithClass,
}

impl Contender {
    /// Its name in the report.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Raw => "raw",
            Self::Kube => "kube-scheduler",
            Self::KubeWithClass => "kube-scheduler beside the class",
            Self::Octavo => "octavo",
            Self::OctavoWithClass => "octavo beside the class",
        }
    }

    /// Whether Octavo's scheduler decides.
    pub(super) fn is_octavo(self) -> bool {
        matches!(self, Self::Octavo | Self::OctavoWithClass)
    }

    /// Whether kube-scheduler decides.
    pub(super) fn is_kube(self) -> bool {
        matches!(self, Self::Kube | Self::KubeWithClass)
    }

    /// Whether the `DeviceClass` is there, although the node itself offers the GPUs.
    pub(super) fn has_class(self) -> bool {
        matches!(self, Self::KubeWithClass | Self::OctavoWithClass)
    }

    /// `spec.schedulerName` of its pods.
    pub(super) fn scheduler_name(self) -> &'static str {
        match self {
            Self::Raw => "nobody",
            Self::Kube | Self::KubeWithClass => "default-scheduler",
            Self::Octavo | Self::OctavoWithClass => "octavo",
        }
    }

    /// Its process in the lab.
    pub(super) fn component(self) -> Option<Component> {
        match self {
            Self::Raw => None,
            Self::Kube | Self::KubeWithClass => Some(Component::KubeScheduler),
            Self::Octavo | Self::OctavoWithClass => Some(Component::OctavoScheduler),
        }
    }
}

/// The contenders in the order of a turn: each turn begins with the next one.
pub(super) fn in_order_of_turn(contenders: &[Contender], turn: u32) -> Vec<Contender> {
    let first = turn.saturating_sub(1) as usize % contenders.len().max(1);
    contenders.iter().cycle().skip(first).take(contenders.len()).copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_contender_is_first_once_before_one_is_first_again() {
        let all = [Contender::Raw, Contender::Kube, Contender::Octavo];
        let first = |turn| in_order_of_turn(&all, turn)[0];
        assert_eq!([1, 2, 3, 4].map(first), [all[0], all[1], all[2], all[0]]);
        assert_eq!(in_order_of_turn(&all, 2), [all[1], all[2], all[0]]);
        assert!(in_order_of_turn(&[], 1).is_empty());
    }
}
