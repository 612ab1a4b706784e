//! The shares of this container.

use octavo_guard_abi::message::Kind;
use octavo_guard_abi::{limits, state};

use crate::agent_link;
use crate::paths::{self, Path};
use crate::platform::sync::AppendList;
use crate::platform::sys::Errno;
use crate::platform::sys::file::{File, Mode, entries};

mod share;

pub(crate) use share::{Mapped, Share};

/// Maximum number of shares of a container; with more it is closed.
pub(crate) const MAX_SHARES: usize = 32;

/// The shares, in the order of the folder.
#[derive(Debug)]
pub(crate) struct Shares {
    list: AppendList<Share, MAX_SHARES>,
}

/// Why nothing is admitted.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ClosedReason {
    /// There is no share, or the folder of shares cannot be read.
    None,
    /// A share has no limits file, or a damaged one.
    Limits(Path, limits::Damage),
    /// A share's state file was damaged before this process started.
    State(Path, state::Damage),
    /// All slots of a share are owned.
    Full(Path),
    /// The tenant could write its own limits.
    Writable(Path),
    /// The kernel refused something.
    System(Path, Errno),
    /// There are more shares than [`MAX_SHARES`].
    TooMany,
}

impl Shares {
    /// The shares that were opened.
    pub(crate) fn all(&self) -> &[Share] {
        self.list.values()
    }

    /// Whether none was opened.
    pub(crate) fn is_empty(&self) -> bool {
        self.all().is_empty()
    }

    /// The share at an index.
    pub(crate) fn get(&self, index: usize) -> Option<&Share> {
        self.all().get(index)
    }

    /// Opens all shares and claims a slot in each. One thread calls it when the process starts. If
    /// one share fails, all are closed: its limit would be unknown.
    pub(super) fn load(&self) -> Result<(), ClosedReason> {
        let path = paths::shares().ok_or(ClosedReason::None)?;
        let folder = File::open(path.text(), Mode::Folder).map_err(|_| ClosedReason::None)?;
        let mut held = [const { None }; MAX_SHARES];
        if let Err(closed) = open_all(&path, &folder, &mut held) {
            held.into_iter().flatten().for_each(Share::close);
            return Err(closed);
        }
        for share in held.into_iter().flatten() {
            // JUSTIFICATION: the list is read without a lock on every launch.
            // SAFETY: only one thread starts a process.
            let _ = unsafe { self.list.push(share) };
        }
        Ok(())
    }
}

/// Opens all shares of a folder at `path`.
fn open_all(path: &Path, folder: &File, held: &mut [Option<Share>]) -> Result<(), ClosedReason> {
    let mut count = 0;
    let mut bytes = [0; 4096];
    loop {
        let length = folder.list(&mut bytes).map_err(|error| ClosedReason::System(*path, error))?;
        if length == 0 {
            break;
        }
        for name in entries(bytes.get(..length).unwrap_or(&[])) {
            if name.first() == Some(&b'.') {
                continue;
            }
            *held.get_mut(count).ok_or(ClosedReason::TooMany)? = Some(Share::open(name, count)?);
            count += 1;
        }
    }
    if count == 0 { Err(ClosedReason::None) } else { Ok(()) }
}

/// Reports once on the share's socket why nothing is admitted, if the agent listens.
pub(crate) fn report_closed(closed: &ClosedReason) {
    match closed {
        // There is no socket to report to.
        ClosedReason::None | ClosedReason::TooMany => {}
        ClosedReason::State(path, damage) => {
            agent_link::send_once(
                path,
                Kind::Tampered,
                share::damage_code(*damage),
                b"closed: state file",
            );
        }
        ClosedReason::Limits(path, damage) => {
            let text: &[u8] = match damage {
                limits::Damage::Size => b"closed: limits file is missing or of another size",
                limits::Damage::Magic => b"closed: limits file is not one",
                limits::Damage::Version(_) => b"closed: limits file is of another version",
                limits::Damage::Unfinished => b"closed: limits file was never finished",
            };
            agent_link::send_once(path, Kind::Refused, 1, text);
        }
        ClosedReason::Full(path) => {
            agent_link::send_once(
                path,
                Kind::Refused,
                1,
                b"closed: no slot is free for another process",
            );
        }
        ClosedReason::Writable(path) => {
            let text = b"closed: the share's folder is not mounted read-only";
            agent_link::send_once(path, Kind::Refused, 1, text);
        }
        ClosedReason::System(path, error) => {
            let _ = error;
            agent_link::send_once(
                path,
                Kind::Refused,
                1,
                b"closed: a file of the share cannot be opened",
            );
        }
    }
}
