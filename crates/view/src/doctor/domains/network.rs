//! What `NetworkPolicies` say about the ports of the daemons. It is a hint: other kinds of policies are not read.

use k8s_openapi::api::networking::v1::{NetworkPolicy, NetworkPolicyPort};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::ResourceExt;
use octavo_api::names::LABEL_COMPUTE_DOMAIN;

use super::{CLUSTER, DomainFacts, Finding, listed};

/// The ports of `nvidia-imex`: for its peers, and for `nvidia-imex-ctl`.
const PORTS: [i32; 2] = [50000, 50005];

/// A finding, if policies select the daemons' pods and none opens their ports.
pub(super) fn check(domains: &DomainFacts) -> Option<Finding> {
    let applying: Vec<&NetworkPolicy> =
        domains.policies.iter().filter(|policy| applies(policy)).collect();
    let is_open = |port: i32| applying.iter().any(|policy| opens(policy, port));
    let closed: Vec<String> =
        PORTS.into_iter().filter(|port| !is_open(*port)).map(|port| port.to_string()).collect();
    if applying.is_empty() || closed.is_empty() {
        return None;
    }
    let names: Vec<String> = applying.iter().map(|policy| policy.name_any()).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    Some(Finding::warning(
        CLUSTER,
        format!(
            "NetworkPolicies select the pods of IMEX daemons, and none opens TCP port {}: {}",
            closed.join(" and "),
            listed(&names)
        ),
        "install the chart with networkPolicy.enabled=true, or open TCP ports 50000 and 50005 between pods with the \
         label resource.nvidia.com/computeDomain",
    ))
}

/// Whether the policy limits what reaches the daemons' pods.
fn applies(policy: &NetworkPolicy) -> bool {
    let Some(spec) = &policy.spec else { return false };
    let types = spec.policy_types.as_deref().unwrap_or_default();
    let is_ingress = types.is_empty() || types.iter().any(|kind| kind == "Ingress");
    is_ingress && spec.pod_selector.as_ref().is_none_or(selects)
}

/// Whether pods are selected whose only label is that of a domain.
fn selects(selector: &LabelSelector) -> bool {
    let has_labels = selector.match_labels.as_ref().is_some_and(|labels| !labels.is_empty());
    let mut expressions = selector.match_expressions.iter().flatten();
    !has_labels
        && expressions.all(|it| match (&*it.operator, it.key == LABEL_COMPUTE_DOMAIN) {
            ("Exists", is_label) => is_label,
            ("DoesNotExist" | "NotIn", is_label) => !is_label,
            _ => false,
        })
}

fn opens(policy: &NetworkPolicy, port: i32) -> bool {
    let mut rules = policy.spec.iter().flat_map(|spec| spec.ingress.iter().flatten());
    rules.any(|rule| {
        let ports = rule.ports.as_deref().unwrap_or_default();
        ports.is_empty() || ports.iter().any(|it| covers(it, port))
    })
}

fn covers(range: &NetworkPolicyPort, port: i32) -> bool {
    let is_tcp = range.protocol.as_deref().is_none_or(|protocol| protocol == "TCP");
    let is_inside = match &range.port {
        None => true,
        Some(IntOrString::Int(first)) => {
            (*first..=range.end_port.unwrap_or(*first)).contains(&port)
        }
        Some(IntOrString::String(_)) => false,
    };
    is_tcp && is_inside
}
