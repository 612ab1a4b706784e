use jiff::Timestamp;

use super::{RowStyle, TextTable, age};

#[test]
fn columns_line_up_and_lines_end_without_blanks() {
    let mut table = TextTable::new(&["NODE", "GPUS"]);
    table.row(RowStyle::Plain, vec!["a".to_owned(), "8".to_owned()]);
    table.row(RowStyle::Good, vec!["longer".to_owned(), String::new()]);
    assert_eq!(table.draw(true, false), "NODE    GPUS\na       8\nlonger\n");
    assert_eq!(table.draw(false, true), "a       8\n\u{1b}[32mlonger\u{1b}[0m\n");
}

#[test]
fn a_line_break_in_a_cell_stays_in_its_line() {
    let mut table = TextTable::new(&["A", "B"]);
    table.row(RowStyle::Plain, vec!["one\ntwo".to_owned(), "x".to_owned()]);
    assert_eq!(table.draw(false, false), "one two  x\n");
}

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
