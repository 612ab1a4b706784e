//! Conditions of a domain.

use std::collections::BTreeSet;

use octavo_api::Condition;

use super::Reason;

/// Names in a message; more are counted.
const MAX_NAMES: usize = 5;

/// Status, reason and message of a condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Verdict {
    pub(super) is_true: bool,
    reason: Reason,
    message: String,
}

impl Verdict {
    pub(super) fn yes(reason: Reason, message: String) -> Self {
        Self { is_true: true, reason, message }
    }

    pub(super) fn no(reason: Reason, message: String) -> Self {
        Self { is_true: false, reason, message }
    }
}

/// The conditions after an update. A condition whose status changes has no time; those of other programs stay.
pub(super) fn updated<const N: usize>(
    old: &[Condition],
    verdicts: &[(&str, Option<Verdict>); N],
    generation: Option<i64>,
) -> Vec<Condition> {
    let is_ours =
        |condition: &&Condition| verdicts.iter().any(|(type_, _)| *type_ == condition.type_);
    let others: Vec<Condition> =
        old.iter().filter(|condition| !is_ours(condition)).cloned().collect();
    let ours = verdicts.iter().filter_map(|(type_, verdict)| {
        let Verdict { is_true, reason, message } = verdict.as_ref()?;
        let status = if *is_true { "True" } else { "False" };
        let before = old.iter().find(|before| before.type_ == *type_ && before.status == status);
        Some(Condition {
            type_: (*type_).to_owned(),
            status: status.to_owned(),
            reason: reason.as_str().to_owned(),
            message: message.clone(),
            last_transition_time: before
                .map(|before| before.last_transition_time.clone())
                .unwrap_or_default(),
            observed_generation: generation,
        })
    });
    ours.chain(others).collect()
}

/// Domains by `<namespace>/<name>`. Those of other namespaces are counted: a tenant learns no names of them.
pub(super) fn listed_for<'a>(
    namespace: &str,
    domains: impl IntoIterator<Item = &'a str>,
) -> String {
    let own = format!("{namespace}/");
    let (named, others): (BTreeSet<&str>, BTreeSet<&str>) =
        domains.into_iter().partition(|name| name.starts_with(&own));
    let others = match others.len() {
        0 => None,
        count => Some(format!("{count} of other namespaces")),
    };
    let named = (!named.is_empty()).then(|| listed(named));
    named.into_iter().chain(others).collect::<Vec<_>>().join(", and ")
}

/// At most five names, and how many there are besides.
pub(super) fn listed<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let names: Vec<&str> = names.into_iter().collect();
    let shown = names.iter().take(MAX_NAMES).copied().collect::<Vec<_>>().join(", ");
    match names.len().checked_sub(MAX_NAMES) {
        None | Some(0) => shown,
        Some(more) => format!("{shown} and {more} more"),
    }
}
