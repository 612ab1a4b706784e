use super::{RowStyle, TextTable};

#[test]
fn columns_line_up_and_lines_end_without_blanks() {
    let mut table = TextTable::new(&["NODE", "GPUS"]);
    table.row(RowStyle::Plain, ["a", "8"]);
    table.row(RowStyle::Good, ["longer", ""]);
    assert_eq!(table.draw(true, false), "NODE    GPUS\na       8\nlonger\n");
    assert_eq!(table.draw(false, true), "a       8\n\u{1b}[32mlonger\u{1b}[0m\n");
}

#[test]
fn numbers_align_to_the_right() {
    let mut table = TextTable::new(&["POLICY", "IDLE"]).align_right(1..2);
    table.plain(["a", "8"]);
    table.plain(["b", "12345"]);
    assert_eq!(table.plain_text(), "POLICY   IDLE\na           8\nb       12345\n");
}

#[test]
fn a_line_break_in_a_cell_stays_in_its_line() {
    let mut table = TextTable::new(&["A", "B"]);
    table.row(RowStyle::Plain, ["one\ntwo", "x"]);
    assert_eq!(table.draw(false, false), "one two  x\n");
}
