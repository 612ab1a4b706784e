//! The results of a validation.

#[cfg(test)]
mod tests;
mod text;

use std::fmt;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::offer::Offer;

pub(crate) use text::{findings_text, validation_text};

/// What is checked, in the order of the checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "camelCase")]
pub enum Component {
    /// NVIDIA's driver on the host
    Driver,
    /// The container runtime, which gives containers their GPUs
    Toolkit,
    /// Programs on the GPUs
    Cuda,
    /// GPUs on offer, in slices or by the device plugin
    Plugin,
}

/// The state of a component.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum State {
    /// It works.
    Ready,
    /// It does not.
    Failed,
    /// It is not known whether it works.
    NotTried,
}

/// The result of one check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Finding {
    /// What was checked.
    pub(crate) component: Component,
    /// Its state.
    pub(crate) state: State,
    /// What was found, or why nothing was tried.
    pub(crate) message: String,
    /// What to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) remedy: Option<String>,
}

/// The results of the checks on one node, as `octavo validate node` gives them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Findings {
    /// In the order of the checks.
    pub(crate) components: Vec<Finding>,
}

/// The results of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct NodeReport {
    /// The node.
    pub(crate) node: String,
    /// What it offers; absent: nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) offer: Option<Offer>,
    /// The results.
    #[serde(flatten)]
    pub(crate) findings: Findings,
}

/// The results of some nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Validation {
    /// By name.
    pub(crate) nodes: Vec<NodeReport>,
}

/// How a validation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ValidateStatus {
    /// All components of all nodes are ready.
    Ready,
    /// None failed, and one was not tried.
    NotTried,
    /// One failed.
    Failed,
}

impl Component {
    /// All, in the order of the checks.
    pub(crate) const ALL: [Self; 4] = [Self::Driver, Self::Toolkit, Self::Cuda, Self::Plugin];
    /// Those that need a container with a GPU.
    pub(crate) const OF_GPU: [Self; 3] = [Self::Toolkit, Self::Cuda, Self::Plugin];

    /// Its name on the command line and in the name of its status file.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Driver => "driver",
            Self::Toolkit => "toolkit",
            Self::Cuda => "cuda",
            Self::Plugin => "plugin",
        }
    }
}

impl fmt::Display for Component {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl State {
    /// The word for people.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Failed => "failed",
            Self::NotTried => "not tried",
        }
    }
}

impl Finding {
    /// The component works.
    pub(crate) fn ready(component: Component, message: impl Into<String>) -> Self {
        Self { component, state: State::Ready, message: message.into(), remedy: None }
    }

    /// The component does not work.
    pub(crate) fn failed(component: Component, message: impl Into<String>, remedy: &str) -> Self {
        let remedy = Some(remedy.to_owned());
        Self { component, state: State::Failed, message: message.into(), remedy }
    }

    /// The component was not tried.
    pub(crate) fn not_tried(component: Component, message: impl Into<String>) -> Self {
        Self { component, state: State::NotTried, message: message.into(), remedy: None }
    }
}

impl Findings {
    /// The worst state of a component.
    pub(crate) fn status(&self) -> ValidateStatus {
        let states = self.components.iter().map(|finding| match finding.state {
            State::Ready => ValidateStatus::Ready,
            State::NotTried => ValidateStatus::NotTried,
            State::Failed => ValidateStatus::Failed,
        });
        states.max().unwrap_or(ValidateStatus::Ready)
    }

    /// The first component that failed.
    pub(crate) fn first_failed(&self) -> Option<Component> {
        let mut failed = self.components.iter().filter(|found| found.state == State::Failed);
        failed.next().map(|found| found.component)
    }

    /// The first component that is not known to work.
    pub(crate) fn first_not_ready(&self) -> Option<Component> {
        let mut others = self.components.iter().filter(|found| found.state != State::Ready);
        others.next().map(|found| found.component)
    }

    /// Notes that components are not tried, because an earlier one is not ready.
    pub(crate) fn skip(&mut self, components: &[Component], earlier: Component) {
        let message = format!("{earlier} is not ready");
        let skipped = components.iter().map(|it| Finding::not_tried(*it, message.as_str()));
        self.components.extend(skipped);
    }
}

impl Validation {
    /// The worst state of a node.
    pub(crate) fn status(&self) -> ValidateStatus {
        let states = self.nodes.iter().map(|node| node.findings.status());
        states.max().unwrap_or(ValidateStatus::Ready)
    }
}
