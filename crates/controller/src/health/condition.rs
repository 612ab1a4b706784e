//! Conditions of the objects of health, as they are written.

use octavo_api::Condition;

use super::facts::date;

/// A condition without its time: type, status, reason and message.
pub(super) type Untimed<'a> = (&'a str, bool, &'static str, String);

/// A condition of an object with some `metadata.generation`. Its time is that of the old one, if the status is the same.
pub(super) fn with_time(
    old: &[Condition],
    generation: Option<i64>,
    (type_, is_true, reason, message): Untimed<'_>,
    now: u64,
) -> Condition {
    let status = if is_true { "True" } else { "False" };
    let old = old.iter().find(|old| old.type_ == type_);
    let since = old.filter(|old| old.status == status).map(|old| old.last_transition_time.clone());
    Condition {
        type_: type_.to_owned(),
        status: status.to_owned(),
        reason: reason.to_owned(),
        message,
        last_transition_time: since.unwrap_or_else(|| date(now)),
        observed_generation: generation,
    }
}
