//! Kubernetes' own allocator.

use std::path::Path;

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::resource::v1 as api;
use octavo_oracle::Oracle;
use serde::{Deserialize, Serialize};

use crate::case::{AllocationsByNode, Case, Verdict};

/// A `control-plane dra-oracle` process.
pub(crate) struct Allocator(Oracle);

#[derive(Serialize)]
struct Question<'a> {
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    admit: bool,
    given: &'a AllocationsByNode,
    #[serde(flatten)]
    case: &'a Case,
}

#[derive(Serialize)]
struct Selection<'a> {
    select: Select<'a>,
}

#[derive(Serialize)]
struct Select<'a> {
    expression: &'a str,
    driver: &'a str,
    devices: &'a [api::Device],
}

/// The oracle's answer.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Answer {
    pub(crate) nodes: Vec<NodeAnswer>,
    /// For each device "true", "false" or "error: ...".
    pub(crate) selected: Vec<String>,
    pub(crate) compile_error: Option<String>,
    /// Validation errors of an API server.
    pub(crate) refusals: Vec<String>,
}

/// The oracle's answer for one node.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct NodeAnswer {
    pub(crate) node: String,
    pub(crate) verdict: Verdict,
    #[serde(default)]
    pub(crate) message: String,
    #[serde(default)]
    pub(crate) allocations: Vec<api::AllocationResult>,
    #[serde(default)]
    pub(crate) extended_requests: Vec<api::DeviceRequest>,
    #[serde(default)]
    pub(crate) extended_mappings: Vec<core::ContainerExtendedResourceRequest>,
    /// "ok", or the problem of the given allocations; empty if none were given.
    #[serde(default)]
    pub(crate) checked: String,
}

impl Allocator {
    pub(crate) fn start(program: &Path) -> Self {
        Self(Oracle::start(program, "dra-oracle").unwrap())
    }

    /// Kubernetes' decision on a case, with its check of our allocations.
    pub(crate) fn decide(&mut self, seed: u64, case: &Case, given: &AllocationsByNode) -> Answer {
        self.ask(&seed.to_string(), &Question { admit: false, given, case })
    }

    /// Validation errors of an API server for a case.
    pub(crate) fn refusals(&mut self, seed: u64, case: &Case) -> Vec<String> {
        let question = Question { admit: true, given: &AllocationsByNode::new(), case };
        self.ask(&seed.to_string(), &question).refusals
    }

    /// The devices of a driver that an expression selects.
    pub(crate) fn select(
        &mut self,
        expression: &str,
        driver: &str,
        devices: &[api::Device],
    ) -> Answer {
        let select = Select { expression, driver, devices };
        self.ask("select", &Selection { select })
    }

    fn ask(&mut self, id: &str, question: &impl Serialize) -> Answer {
        self.0.ask(id, question).unwrap()
    }
}
