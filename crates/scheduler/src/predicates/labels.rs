//! Label requirements, prepared for many checks.

use std::collections::BTreeMap;

use octavo_dra::{NodeOperator, NodeRequirement, NodeSelector, NodeSelectorTerm};
use octavo_kube_io::objects::{LabelSelector, Node};

/// Labels of an object.
pub(super) type Labels = BTreeMap<String, String>;

/// A valid requirement on one label.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Requirement {
    key: String,
    test: LabelTest,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum LabelTest {
    In(Vec<String>),
    NotIn(Vec<String>),
    Exists,
    DoesNotExist,
    Above(i64),
    Below(i64),
}

/// A valid term of a node selector.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Term {
    labels: Vec<Requirement>,
    fields: Vec<Field>,
}

/// A requirement that a field equals, or does not equal, a value.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Field {
    is_name: bool,
    value: String,
    is_equal: bool,
}

impl Requirement {
    /// `None` if it is malformed for Kubernetes.
    pub(super) fn new(key: &str, operator: NodeOperator, values: &[String]) -> Option<Self> {
        if !is_label_key(key) || !values.iter().all(|value| is_label_value(value)) {
            return None;
        }
        let number = || match values {
            [value] => value.parse().ok(),
            _ => None,
        };
        let listed = || (!values.is_empty()).then(|| values.to_vec());
        let test = match operator {
            NodeOperator::In => LabelTest::In(listed()?),
            NodeOperator::NotIn => LabelTest::NotIn(listed()?),
            NodeOperator::Exists if values.is_empty() => LabelTest::Exists,
            NodeOperator::DoesNotExist if values.is_empty() => LabelTest::DoesNotExist,
            NodeOperator::Exists | NodeOperator::DoesNotExist => return None,
            NodeOperator::Gt => LabelTest::Above(number()?),
            NodeOperator::Lt => LabelTest::Below(number()?),
        };
        Some(Self { key: key.to_owned(), test })
    }

    /// The label.
    pub(super) fn key(&self) -> &str {
        &self.key
    }

    pub(super) fn holds(&self, labels: &Labels) -> bool {
        let value = labels.get(&self.key);
        let number = || value.and_then(|value| value.parse::<i64>().ok());
        match &self.test {
            LabelTest::In(values) => value.is_some_and(|value| values.contains(value)),
            LabelTest::NotIn(values) => value.is_none_or(|value| !values.contains(value)),
            LabelTest::Exists => value.is_some(),
            LabelTest::DoesNotExist => value.is_none(),
            LabelTest::Above(bound) => number().is_some_and(|value| value > *bound),
            LabelTest::Below(bound) => number().is_some_and(|value| value < *bound),
        }
    }
}

impl Term {
    /// `None` if it matches nothing: it is empty, or malformed for Kubernetes.
    pub(super) fn new(term: &NodeSelectorTerm) -> Option<Self> {
        if term.labels.is_empty() && term.fields.is_empty() {
            return None;
        }
        let label = |requirement: &NodeRequirement| {
            Requirement::new(&requirement.key, requirement.operator, &requirement.values)
        };
        Some(Self {
            labels: term.labels.iter().map(label).collect::<Option<_>>()?,
            fields: term.fields.iter().map(Field::new).collect::<Option<_>>()?,
        })
    }

    /// Whether a node's labels match; fields are ignored.
    pub(super) fn matches_labels(&self, labels: &Labels) -> bool {
        self.labels.iter().all(|requirement| requirement.holds(labels))
    }

    /// Whether a node matches.
    pub(super) fn matches(&self, node: &Node) -> bool {
        self.matches_labels(&node.meta.labels)
            && self.fields.iter().all(|field| field.holds(&node.meta.name.name))
    }
}

impl Field {
    fn new(requirement: &NodeRequirement) -> Option<Self> {
        let [value] = &requirement.values[..] else { return None };
        let is_equal = match requirement.operator {
            NodeOperator::In => true,
            NodeOperator::NotIn => false,
            _ => return None,
        };
        let is_name = requirement.key == "metadata.name";
        Some(Self { is_name, value: value.clone(), is_equal })
    }

    /// Fields other than the name are empty.
    fn holds(&self, name: &str) -> bool {
        let value = if self.is_name { name } else { "" };
        (value == self.value) == self.is_equal
    }
}

/// Terms of a selector that can match at all. Kubernetes ignores malformed terms as long as another
/// one matches, so they count as terms that match no node.
pub(super) fn valid_terms(selector: &NodeSelector) -> Vec<Term> {
    selector.terms.iter().filter_map(Term::new).collect()
}

/// Requirements of a label selector; `None` if it is malformed for Kubernetes.
pub(super) fn requirements(selector: &LabelSelector) -> Option<Vec<Requirement>> {
    let labels = selector.labels.iter();
    let labels = labels
        .map(|(key, value)| Requirement::new(key, NodeOperator::In, std::slice::from_ref(value)));
    let expressions = selector.expressions.iter().map(|requirement| {
        let operator = match &*requirement.operator {
            "In" => NodeOperator::In,
            "NotIn" => NodeOperator::NotIn,
            "Exists" => NodeOperator::Exists,
            "DoesNotExist" => NodeOperator::DoesNotExist,
            _ => return None,
        };
        Requirement::new(&requirement.key, operator, &requirement.values)
    });
    labels.chain(expressions).collect()
}

/// Whether a label selector matches these labels. A malformed one matches none, an empty one all.
pub fn selects(selector: &LabelSelector, labels: &Labels) -> bool {
    requirements(selector).is_some_and(|all| all_hold(&all, labels))
}

/// Whether labels meet all requirements.
pub(super) fn all_hold(all: &[Requirement], labels: &Labels) -> bool {
    all.iter().all(|requirement| requirement.holds(labels))
}

/// Whether a text is a valid label key: a name, optionally after a domain and a slash.
fn is_label_key(key: &str) -> bool {
    let (domain, name) = match key.split_once('/') {
        Some((domain, name)) => (Some(domain), name),
        None => (None, key),
    };
    !name.is_empty() && is_label_value(name) && domain.is_none_or(is_domain)
}

/// Whether a text is a valid label value.
fn is_label_value(value: &str) -> bool {
    let bytes = value.as_bytes();
    let is_end = |byte: Option<&u8>| byte.is_none_or(u8::is_ascii_alphanumeric);
    value.len() <= 63
        && is_end(bytes.first())
        && is_end(bytes.last())
        && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(byte))
}

fn is_domain(text: &str) -> bool {
    let is_inner = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || *byte == b'-';
    text.len() <= 253
        && text.split('.').all(|part| {
            let bytes = part.as_bytes();
            !part.is_empty()
                && bytes.iter().all(is_inner)
                && !part.starts_with('-')
                && !part.ends_with('-')
        })
}
