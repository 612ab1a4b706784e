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
    /// Octavo's scheduler.
    Octavo,
}

impl Contender {
    /// Its name in the report.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Raw => "raw",
            Self::Kube => "kube-scheduler",
            Self::Octavo => "octavo",
        }
    }

    /// `spec.schedulerName` of its pods.
    pub(super) fn scheduler_name(self) -> &'static str {
        match self {
            Self::Raw => "nobody",
            Self::Kube => "default-scheduler",
            Self::Octavo => "octavo",
        }
    }

    /// Its process in the lab.
    pub(super) fn component(self) -> Option<Component> {
        match self {
            Self::Raw => None,
            Self::Kube => Some(Component::KubeScheduler),
            Self::Octavo => Some(Component::OctavoScheduler),
        }
    }
}
