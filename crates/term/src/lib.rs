//! Text for terminals: plain tables and coloured lines.

#![forbid(unsafe_code)]

pub use table::{RowStyle, TextTable, paint};

mod table;
