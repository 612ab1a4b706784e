use proptest::prelude::*;

use super::{VersionError, normalize};

#[test]
fn driver_versions_become_semantic() {
    for (text, version) in [
        ("580.95.05", "580.95.5"),
        ("13.0", "13.0.0"),
        ("9.0", "9.0.0"),
        ("12", "12.0.0"),
        ("v1.2.3", "1.2.3"),
        ("570.00.00", "570.0.0"),
        ("1.2-rc.1+build.007", "1.2.0-rc.1+build.007"),
        ("1.2.3+a-b", "1.2.3+a-b"),
    ] {
        assert_eq!(normalize(text), Ok(version.to_owned()), "{text}");
    }
}

#[test]
fn what_is_no_version_is_refused() {
    for text in ["", "v", "1.2.3.4", "a.b", "1..2", "1.2.", ".1", "N/A", "1.2 ", "-1"] {
        assert_eq!(normalize(text), Err(VersionError::Shape(text.to_owned())), "{text}");
    }
    for text in ["1.2.3-", "1.2.3-01", "1.2.3-a..b", "1.2.3+", "1.2.3+ä"] {
        let error = normalize(text).expect_err(text);
        assert!(matches!(error, VersionError::Suffix { .. }), "{text}: {error}");
    }
    let text = "99999999999999999999.0.0";
    assert_eq!(normalize(text), Err(VersionError::Range(text.to_owned())));
}

proptest! {
    #[test]
    fn a_semantic_version_stays_as_it_is(a in any::<u64>(), b in any::<u64>(), c in any::<u64>()) {
        let text = format!("{a}.{b}.{c}");
        prop_assert_eq!(normalize(&text), Ok(text.clone()));
    }

    #[test]
    fn normalizing_twice_changes_nothing(text in "v?[0-9]{1,5}(\\.[0-9]{1,5}){0,2}(-[a-z]{1,4})?(\\+[0-9a-z]{1,4})?") {
        let once = normalize(&text).expect("the pattern is a version");
        prop_assert_eq!(normalize(&once), Ok(once.clone()));
    }
}
