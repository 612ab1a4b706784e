use super::pod_condition;
use crate::keys::{exact_signs, is_scheduler, is_sign, schedulers, sign_prefixes};

/// Texts between quotes, in order.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('\'').skip(1).step_by(2)
}

#[test]
fn the_condition_has_every_sign_and_no_other_text() {
    let condition = pod_condition();
    assert_eq!(condition.matches('\'').count() % 2, 0);
    for key in exact_signs() {
        assert!(is_sign(key) && condition.contains(&format!("'{key}'")), "{key}");
    }
    for prefix in sign_prefixes() {
        assert!(is_sign(&format!("{prefix}x")), "{prefix}");
        assert!(condition.contains(&format!("k.startsWith('{prefix}')")), "{prefix}");
    }
    for text in quoted(&condition) {
        let is_known = is_sign(text)
            || is_scheduler(text)
            || crate::keys::HAMI_RESOURCES.contains(&text)
            || sign_prefixes().contains(&text);
        assert!(is_known, "{text}");
    }
    assert_eq!(schedulers().count(), 3);
}
