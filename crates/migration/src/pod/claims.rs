//! The claims of a pod: which containers have one together, and their names.

use serde_json::{Value, json};

use super::{ContainerRef, Origin};
use crate::Options;
use crate::demand::Demand;
use crate::json::{array, array_at, object_at, text};
use crate::report::{Reason, Report};
use crate::selection::Selection;
use crate::template::{self, ClaimSpec, MAX_LABEL};

/// The claims of a pod under construction.
pub(super) struct Claims<'a> {
    options: &'a Options,
    origin: &'a Origin<'a>,
    selection: &'a Selection,
    /// Names of the claims that the pod has already.
    taken: Vec<String>,
    made: Vec<Claim>,
}

/// A claim and its containers.
struct Claim {
    spec: ClaimSpec,
    users: Vec<User>,
}

/// A container with a claim.
struct User {
    container: ContainerRef,
    field: String,
}

impl<'a> Claims<'a> {
    pub(super) fn new(
        pod: &Value,
        options: &'a Options,
        origin: &'a Origin<'a>,
        selection: &'a Selection,
    ) -> Self {
        let spec = pod.get("spec").unwrap_or(&Value::Null);
        let taken = array(spec, "resourceClaims").iter().filter_map(|claim| text(claim, "name"));
        let taken = taken.map(str::to_owned).collect();
        Self { options, origin, selection, taken, made: Vec::new() }
    }

    /// Adds the demand of a container, or its refusal.
    ///
    /// A claim is held as long as its pod. An init container has ended when the next one starts, so it has one claim with the
    /// first equal demand after it. HAMi counts likewise: the larger of init containers and containers.
    pub(super) fn add(
        &mut self,
        container: &ContainerRef,
        demand: Demand,
        field: String,
        report: &mut Report,
    ) {
        let claim = template::claim(&demand, self.selection, self.options, &field, report);
        let Some(spec) = claim else { return };
        let user = User { container: container.clone(), field };
        let is_free = |claim: &&mut Claim| {
            let mut users = claim.users.iter();
            claim.spec == spec && users.all(|user| user.container.ends_before_others())
        };
        match self.made.iter_mut().find(is_free) {
            Some(claim) => claim.users.push(user),
            None => self.made.push(Claim { spec, users: vec![user] }),
        }
    }

    /// Writes the claims into the pod. Returns their templates, each once.
    pub(super) fn apply(mut self, pod: &mut Value, report: &mut Report) -> Vec<Value> {
        let mut templates: Vec<Value> = Vec::new();
        let is_only = self.made.len() == 1;
        for claim in &self.made {
            let made = template::template(&claim.spec, self.origin.name, self.origin.namespace);
            let template_name = made["metadata"]["name"].as_str().unwrap_or_default().to_owned();
            // Named for the container that runs, not for the one that prepares.
            let user = claim.users.last().map_or("", |user| user.container.name.as_str());
            let wanted = if is_only { "gpu".to_owned() } else { format!("gpu-{user}") };
            let name = template::unique(&template::label(&wanted, MAX_LABEL), &self.taken);
            self.taken.push(name.clone());
            let entry = json!({ "name": name, "resourceClaimTemplateName": template_name });
            let spec = pod.get_mut("spec").and_then(|spec| array_at(spec, "resourceClaims"));
            push(spec, entry, "spec.resourceClaims", report);
            for User { container, field } in &claim.users {
                let resources =
                    container.at_mut(pod).and_then(|value| object_at(value, "resources"));
                let claims = resources.and_then(|resources| array_at(resources, "claims"));
                let place = format!("resources.claims of container {}", container.name);
                push(claims, json!({ "name": name }), &place, report);
                let init = container.ends_before_others() && claim.users.len() == 1;
                let held = if init { ", held as long as the pod" } else { "" };
                let became = format!(
                    "claim {name} of ResourceClaimTemplate {template_name}: {}{held}",
                    claim.spec.summary
                );
                report.change(field, became);
            }
            if !templates.contains(&made) {
                templates.push(made);
            }
        }
        templates
    }
}

fn push(list: Option<&mut Vec<Value>>, value: Value, place: &str, report: &mut Report) {
    if let Some(list) = list {
        list.push(value);
    } else {
        let cause = "it is not a list";
        report.refuse(Reason::Malformed, place, cause, "write it as in the Kubernetes API");
    }
}
