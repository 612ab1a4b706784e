//! The functions of selectors: CEL's own and the libraries that Kubernetes 1.36 adds.
//!
//! Each is a row with name, price, implementation and signatures. A signature with a leading dot is
//! a member function, and its first type is the target.

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

/// Number of signatures in the tables.
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
