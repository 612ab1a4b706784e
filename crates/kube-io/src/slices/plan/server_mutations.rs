//! Writes whose content a server changed.

use k8s_openapi::api::resource::v1 as api;

use super::content_digest::{ContentDigest, is_changed};

/// Limit of remembered writes, above the number of slices in a pool.
const MAX_REMEMBERED: usize = 64;

/// Content that the server changed: fields that it does not know are dropped without an error.
/// Without this memory such a slice would be written for ever.
#[derive(Clone, Debug, Default)]
pub(crate) struct ServerMutations(Vec<(ContentDigest, ContentDigest)>);

impl ServerMutations {
    /// Records the result of a write; returns whether the server changed it.
    pub(crate) fn remember(
        &mut self,
        sent: &api::ResourceSlice,
        kept: &api::ResourceSlice,
    ) -> bool {
        let is_changed = is_changed(sent, kept);
        if !is_changed && self.0.is_empty() {
            return false;
        }
        let (sent, kept) = (ContentDigest::by(sent), ContentDigest::by(kept));
        self.0.retain(|(known, _)| *known != sent);
        if is_changed {
            if self.0.len() == MAX_REMEMBERED {
                self.0.remove(0);
            }
            self.0.push((sent, kept));
        }
        is_changed
    }

    /// Whether the found content is the wanted content, or the server's version of it.
    pub(super) fn is_same(&self, wanted: ContentDigest, found: ContentDigest) -> bool {
        wanted == found || self.0.contains(&(wanted, found))
    }
}
