//! The functions that selectors have: CEL's own and the libraries that Kubernetes 1.36 adds to its
//! environment. Each is a row: name, price, implementation and the signatures that the checker knows.
//! A signature with a dot before it is a member's, its first type the one it is called on.

mod convert;
mod duration;
mod format;
mod formats;
mod lists;
mod net;
mod operators;
mod optionals;
mod quantity;
mod regex;
mod semver;
mod strings;

use std::collections::BTreeMap;
use std::sync::LazyLock;

pub(crate) use self::format::{clauses, takes};
use crate::function::{Function, Row, overload};

/// All rows.
const TABLES: [&[Row]; 12] = [
    operators::TABLE,
    convert::TABLE,
    duration::TABLE,
    strings::TABLE,
    format::TABLE,
    formats::TABLE,
    lists::TABLE,
    net::TABLE,
    optionals::TABLE,
    quantity::TABLE,
    regex::TABLE,
    semver::TABLE,
];

/// How many signatures are written down.
#[cfg(test)]
pub(crate) fn signatures() -> usize {
    TABLES.into_iter().flatten().map(|(_, _, _, signatures)| signatures.len()).sum()
}

/// All functions by name.
pub(crate) static FUNCTIONS: LazyLock<BTreeMap<&'static str, Function>> = LazyLock::new(|| {
    let mut functions: BTreeMap<&'static str, Function> = BTreeMap::new();
    for (name, price, run, signatures) in TABLES.into_iter().flatten().copied() {
        let overloads = signatures.iter().filter_map(|signature| overload(signature)).collect();
        functions.insert(name, Function { name, price, run, overloads });
    }
    functions
});
