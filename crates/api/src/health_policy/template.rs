//! Remedies that an object of another program applies, such as one of medik8s.

use std::collections::BTreeSet;

use kube::KubeSchema;
use octavo_health::remedy::Remedy;
use schemars::{Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use super::PolicyError;

/// End of the kinds of templates. The kind of the object is that of the template without it.
const SUFFIX: &str = "Template";

/// Names of the remedies that an object may apply: those that work from outside the node.
pub const TEMPLATE_REMEDIES: [&str; 2] = ["reboot", "powerCycle"];

/// A template of objects by which another program reboots nodes. When a remedy is due, an object is made of it: with the kind of the
/// template without `Template`, the name of the node, the template's namespace, and its `spec.template.spec` as spec. It is deleted
/// when the remedy has ended. This is the contract of medik8s. A program that looks for a
/// Machine as owner of the object, as those of Cluster API do, finds none.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[x_kube(
    validation = Rule::new("self.kind.endsWith('Template') && size(self.kind) > 8")
        .message("kind must be that of a template, which ends in Template")
)]
pub struct TemplateSpec {
    /// The remedies that such an object applies.
    #[schemars(schema_with = "remedies")]
    pub remedies: Vec<Remedy>,
    /// API group and version of the template.
    #[schemars(length(min = 1, max = 253))]
    pub api_version: String,
    /// Its kind.
    #[schemars(length(min = 1, max = 63))]
    pub kind: String,
    /// Its namespace.
    #[schemars(length(min = 1, max = 63))]
    pub namespace: String,
    /// Its name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
}

impl TemplateSpec {
    /// The kind of the objects.
    pub fn object_kind(&self) -> &str {
        self.kind.strip_suffix(SUFFIX).unwrap_or(&self.kind)
    }

    /// Whether objects of both templates are of one kind in one namespace.
    pub fn makes_objects_of(&self, other: &Self) -> bool {
        let of = |it: &Self| (it.api_version.clone(), it.kind.clone(), it.namespace.clone());
        of(self) == of(other)
    }

    /// The remedies, if all values are valid.
    pub(super) fn check(&self) -> Result<BTreeSet<Remedy>, PolicyError> {
        let wrong = |field, problem: &str| {
            Err(PolicyError::Template { field, problem: problem.to_owned() })
        };
        if self.remedies.is_empty() {
            return wrong("remedies", "it is empty; name reboot, powerCycle or both");
        }
        if self.remedies.iter().any(|remedy| !remedy.is_from_outside()) {
            return wrong("remedies", "an object can apply reboot and powerCycle alone");
        }
        if !matches!(self.kind.strip_suffix(SUFFIX), Some(rest) if !rest.is_empty()) {
            return wrong("kind", "it must be that of a template, which ends in Template");
        }
        for (field, value) in [
            ("apiVersion", &self.api_version),
            ("namespace", &self.namespace),
            ("name", &self.name),
        ] {
            if value.is_empty() {
                return wrong(field, "it is empty");
            }
        }
        Ok(self.remedies.iter().copied().collect())
    }
}

fn remedies(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "minItems": 1,
        "maxItems": TEMPLATE_REMEDIES.len(),
        "items": {"type": "string", "enum": TEMPLATE_REMEDIES},
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn template() -> TemplateSpec {
        TemplateSpec {
            remedies: vec![Remedy::Reboot],
            api_version: "self-node-remediation.medik8s.io/v1alpha1".to_owned(),
            kind: "SelfNodeRemediationTemplate".to_owned(),
            namespace: "medik8s".to_owned(),
            name: "reboot".to_owned(),
        }
    }

    #[test]
    fn the_kind_of_objects_is_that_of_the_template_without_its_end() {
        assert_eq!(template().object_kind(), "SelfNodeRemediation");
        assert_eq!(template().check(), Ok(BTreeSet::from([Remedy::Reboot])));
    }

    #[test]
    fn errors_name_the_field_and_the_reason() {
        let error = |change: fn(&mut TemplateSpec)| {
            let mut template = template();
            change(&mut template);
            template.check().unwrap_err().to_string()
        };
        assert_eq!(
            error(|it| it.remedies.clear()),
            "template.remedies: it is empty; name reboot, powerCycle or both"
        );
        assert_eq!(
            error(|it| it.remedies.push(Remedy::ResetBus)),
            "template.remedies: an object can apply reboot and powerCycle alone"
        );
        for kind in ["SelfNodeRemediation", "Template"] {
            let template = TemplateSpec { kind: kind.to_owned(), ..template() };
            let error = template.check().unwrap_err().to_string();
            assert!(error.starts_with("template.kind: it must be that of a template"), "{error}");
        }
        assert_eq!(error(|it| it.namespace.clear()), "template.namespace: it is empty");
    }

    #[test]
    fn names_are_those_of_the_remedies_from_outside() {
        for name in TEMPLATE_REMEDIES {
            let remedy: Remedy = serde_json::from_value(name.into()).unwrap();
            assert!(remedy.is_from_outside(), "{name}");
        }
    }
}
