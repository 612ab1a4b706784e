use super::*;

#[test]
fn templates_are_renewed_after_half_of_the_time_and_collected_after_all_of_it() {
    let now: Timestamp = "2028-02-29T12:00:00Z".parse().unwrap();
    let keep = Duration::from_hours(1);
    for (last_used, expected) in [
        (Some("2028-02-29T12:00:00Z"), Due::Nothing),
        (Some("2028-02-29T11:30:01Z"), Due::Nothing),
        (Some("2028-02-29T11:30:00Z"), Due::Renewal),
        (Some("2028-02-29T11:00:01Z"), Due::Renewal),
        (Some("2028-02-29T11:00:00Z"), Due::Collection),
        (Some("2028-02-29T12:10:00Z"), Due::Nothing),
        (Some("yesterday"), Due::Collection),
        (None, Due::Collection),
    ] {
        assert_eq!(due(last_used, keep, now), expected, "{last_used:?}");
    }
}
