//! The shares of this container.

use octavo_guard_abi::message::Kind;
use octavo_guard_abi::{limits, state};

use crate::agent_link;
use crate::paths::{self, Path};
use crate::platform::sync::AppendList;
use crate::platform::sys::Errno;
use crate::platform::sys::file::{File, Mode, entries};

mod share;

pub(crate) use share::Share;

/// Shares that a container can have; with more it is closed.
pub(crate) const MAX_SHARES: usize = 32;

/// The shares, in the order in which the folder lists them.
#[derive(Debug)]
pub(crate) struct Shares {
    list: AppendList<Share, MAX_SHARES>,
}

/// Why nothing is admitted.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ClosedReason {
    /// There is no share, or its folder cannot be read.
    None,
    /// A share has no limits file, or one that is damaged.
    Limits(Path, limits::Damage),
    /// A share's state file was damaged before this process came.
    State(Path, state::Damage),
    /// As many processes as a share can have are there already.
    Full(Path),
    /// A share's limits could be written by whoever they hold.
    Writable(Path),
    /// The kernel refused something.
    System(Path, Errno),
    /// There are more shares than [`MAX_SHARES`].
    TooMany,
}

impl Shares {
    /// The shares that were loaded.
    pub(crate) fn all(&self) -> &[Share] {
        self.list.values()
    }

    /// Whether none was loaded.
    pub(crate) fn is_empty(&self) -> bool {
        self.all().is_empty()
    }

    /// The share at a place.
    pub(crate) fn get(&self, index: usize) -> Option<&Share> {
        self.all().get(index)
    }

    /// Loads all shares and takes a slot in each. Called by one thread, while the process begins. If one
    /// cannot be held, none is: what it was to limit is not known.
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
            // SAFETY: one thread begins a process.
            let _ = unsafe { self.list.push(share) };
        }
        Ok(())
    }
}

/// Opens all shares of a folder, which lies at that path.
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
            *held.get_mut(count).ok_or(ClosedReason::TooMany)? = Some(Share::open(name)?);
            count += 1;
        }
    }
    if count == 0 { Err(ClosedReason::None) } else { Ok(()) }
}

/// Says on the share's socket why nothing is admitted, once, if the agent listens.
pub(crate) fn report_closed(closed: &ClosedReason) {
    match closed {
        // Nobody to tell.
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
