//! Whether, and for how long, this program may write.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// How long this program may still believe to be the leader. Asked before every write.
#[derive(Clone)]
pub struct Leadership(Arc<dyn Fn() -> Option<Duration> + Send + Sync>);

impl Leadership {
    /// Asks `remaining`: the time until which the lease may be believed, `None` without one.
    pub fn new(remaining: impl Fn() -> Option<Duration> + Send + Sync + 'static) -> Self {
        Self(Arc::new(remaining))
    }

    /// For a scheduler that is alone by other means: leader election is off.
    pub fn unquestioned() -> Self {
        Self::new(|| Some(Duration::MAX))
    }

    /// Time that is left; `None`: not the leader.
    pub fn remaining(&self) -> Option<Duration> {
        (self.0)().filter(|left| !left.is_zero())
    }
}

impl fmt::Debug for Leadership {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Leadership").field(&self.remaining()).finish()
    }
}
