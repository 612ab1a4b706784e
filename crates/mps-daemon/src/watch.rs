//! Tells when a file of the agent may have changed.

use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::Path;

use octavo_node::mps::MpsFolder;
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Watches the folder of all daemons, and the folder of each.
pub(crate) struct Watch(AsyncFd<OwnedFd>);

impl Watch {
    pub(crate) fn new(folder: &Path) -> std::io::Result<Self> {
        let fd = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
        inotify::add_watch(&fd, folder, flags())?;
        #[expect(
            deprecated,
            reason = "the successor is unsafe because a type might close its descriptor early; OwnedFd never does"
        )]
        let fd = AsyncFd::with_interest(fd, Interest::READABLE)?;
        Ok(Self(fd))
    }

    /// Watches the folders of all daemons that there are. A folder that is watched already stays so.
    pub(crate) fn extend(&self, folder: &MpsFolder, names: &[String]) {
        for name in names {
            // It may be gone again.
            let _ = inotify::add_watch(self.0.get_ref(), folder.daemon(name).path(), flags());
        }
    }

    /// Waits for a change. Cancel safe.
    pub(crate) async fn changed(&self) -> std::io::Result<()> {
        let mut guard = self.0.readable().await?;
        let mut buffer = [MaybeUninit::<u8>::uninit(); 4096];
        let mut reader = inotify::Reader::new(self.0.get_ref(), &mut buffer);
        while reader.next().is_ok() {}
        guard.clear_ready();
        Ok(())
    }
}

/// Files are replaced by others.
fn flags() -> WatchFlags {
    WatchFlags::CREATE | WatchFlags::DELETE | WatchFlags::MOVED_TO | WatchFlags::ONLYDIR
}
