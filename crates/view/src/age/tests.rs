use jiff::Timestamp;

use super::age;

#[test]
fn ages_are_written_in_the_largest_units() {
    let start = Timestamp::UNIX_EPOCH;
    let after = |seconds: i64| age(start, Timestamp::from_second(seconds).unwrap());
    assert_eq!(after(0), "0s");
    assert_eq!(after(59), "59s");
    assert_eq!(after(192), "3m12s");
    assert_eq!(after(120), "2m");
    assert_eq!(after(3000), "50m");
    assert_eq!(after(7260), "2h1m");
    assert_eq!(after(2 * 86_400 + 4 * 3600), "2d4h");
    assert_eq!(after(30 * 86_400), "30d");
    assert_eq!(age(Timestamp::from_second(9).unwrap(), start), "0s");
}
