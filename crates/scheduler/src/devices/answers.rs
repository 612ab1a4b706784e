//! For which wishes the allocator has devices on which node: kept until something of the node is held
//! otherwise or its hardware is another. Members of a gang mostly ask for the same by claims of their own,
//! and who was refused asks again and again.

use std::collections::BTreeMap;
use std::sync::{Arc, MutexGuard, PoisonError};

use rustc_hash::FxHashMap;

use super::Devices;
use super::ask::Ask;
use super::grant::GrantError;

/// Most wishes that are kept; the one that was not used longest goes.
const MOST: usize = 64;

/// What an ask wants from the allocator. Asks of the same wish have the same answer on each node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wish(u64);

/// What the allocator says of a wish on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// It has devices.
    Devices,
    /// It has none there.
    Nothing,
    /// Something is wrong with the claims or with what they are compared to, and has to be put right.
    Fault,
}

/// Answers by wish and node.
#[derive(Debug, Default)]
pub(super) struct Answers {
    by_text: FxHashMap<String, Wish>,
    kept: BTreeMap<u64, Kept>,
    /// Numbers are not used twice, so a wish that was dropped has no answers of another.
    next: u64,
    uses: u64,
    /// How often the allocator was asked.
    #[cfg(test)]
    asked: u64,
}

#[derive(Debug)]
struct Kept {
    text: String,
    used: u64,
    nodes: FxHashMap<Arc<str>, Found>,
}

impl Answers {
    /// Forgets everything.
    pub(super) fn clear(&mut self) {
        self.by_text.clear();
        self.kept.clear();
    }

    /// Forgets what was said of a node.
    pub(super) fn forget(&mut self, node: &str) {
        for kept in self.kept.values_mut() {
            kept.nodes.remove(node);
        }
    }

    fn wish(&mut self, text: String) -> Wish {
        self.uses += 1;
        if let Some(wish) = self.by_text.get(&text) {
            if let Some(kept) = self.kept.get_mut(&wish.0) {
                kept.used = self.uses;
            }
            return *wish;
        }
        if self.kept.len() >= MOST
            && let Some((&oldest, _)) = self.kept.iter().min_by_key(|(_, kept)| kept.used)
            && let Some(kept) = self.kept.remove(&oldest)
        {
            self.by_text.remove(&kept.text);
        }
        let wish = Wish(self.next);
        self.next += 1;
        self.by_text.insert(text.clone(), wish);
        self.kept.insert(wish.0, Kept { text, used: self.uses, nodes: FxHashMap::default() });
        wish
    }
}

impl Devices {
    /// What an ask wants from the allocator.
    pub fn wish(&self, ask: &Ask) -> Wish {
        self.answers().wish(ask.text())
    }

    /// What the allocator says of an ask, whose wish is this, on a node. That claims which are allocated
    /// already can be reached from the node is not looked at: see [`Devices::is_allowed`].
    pub fn found(&self, ask: &Ask, wish: Wish, node: &str) -> Found {
        let Some((name, _)) = self.nodes.get_key_value(node) else { return self.look(ask, node) };
        let known = |answers: &Answers| answers.kept.get(&wish.0)?.nodes.get(node).copied();
        if let Some(answer) = known(&self.answers()) {
            return answer;
        }
        if !self.is_allowed(ask, node) {
            return Found::Nothing;
        }
        let answer = self.look(ask, node);
        if let Some(kept) = self.answers().kept.get_mut(&wish.0) {
            kept.nodes.insert(Arc::clone(name), answer);
        }
        answer
    }

    fn look(&self, ask: &Ask, node: &str) -> Found {
        #[cfg(test)]
        {
            self.answers().asked += 1;
        }
        match self.allocate(ask, node, None) {
            Ok(_) => Found::Devices,
            Err(GrantError::Refused(refusal)) if !refusal.is_node_specific() => Found::Fault,
            Err(_) => Found::Nothing,
        }
    }

    /// How often the allocator was asked for an answer.
    #[cfg(test)]
    pub(crate) fn times_asked(&self) -> u64 {
        self.answers().asked
    }

    pub(super) fn answers(&self) -> MutexGuard<'_, Answers> {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
