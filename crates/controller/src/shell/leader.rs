//! Writes that only the leader does.

use super::leadership::Leadership;
use crate::metrics::Metrics;

/// What a write needs to know of the lease, and where it is counted.
#[derive(Clone)]
pub(super) struct Leader {
    pub(super) leadership: Leadership,
    pub(super) metrics: Metrics,
}

/// Why a write of the leader was not done.
#[derive(Debug, thiserror::Error)]
pub(super) enum LeaderError {
    /// Another process leads, or the lease is about to end.
    #[error("this process does not lead")]
    NotLeader,
    /// No answer came before the lease ends, or in time.
    #[error("the API server does not answer")]
    Timeout,
    /// The API server refused it, or cannot be reached.
    #[error(transparent)]
    Api(#[from] kube::Error),
}

impl Leader {
    /// Whether this process leads.
    pub(super) fn is_leading(&self) -> bool {
        self.leadership.is_leading()
    }

    /// Does a write of a kind while this process leads. `None` if its object has changed or gone since it was read.
    pub(super) async fn write<T>(
        &self,
        kind: &'static str,
        write: impl Future<Output = kube::Result<T>>,
    ) -> Result<Option<T>, LeaderError> {
        let written = match self.leadership.time_for_write() {
            None => Err(LeaderError::NotLeader),
            Some(time) => match tokio::time::timeout(time, write).await {
                Err(_) => Err(LeaderError::Timeout),
                Ok(Err(kube::Error::Api(status))) if matches!(status.code, 404 | 409) => Ok(None),
                Ok(written) => written.map(Some).map_err(LeaderError::from),
            },
        };
        let result = match &written {
            Ok(Some(_)) => "done",
            Ok(None) => "conflict",
            Err(LeaderError::NotLeader) => "not-leader",
            Err(LeaderError::Timeout | LeaderError::Api(_)) => "failed",
        };
        self.metrics.write(kind, result);
        written
    }
}
