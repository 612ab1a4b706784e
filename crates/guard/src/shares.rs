//! The shares of this container.

use octavo_guard_abi::message::Kind;
use octavo_guard_abi::{limits, state};

use crate::liaison;
use crate::paths::{self, Path};
use crate::sync::List;
use crate::sys::Errno;
use crate::sys::file::{File, Mode, entries};

mod share;

pub(crate) use share::Share;

/// Shares that a container can have; with more it is closed.
pub(crate) const MOST: usize = 32;

/// The shares, in the order in which the folder lists them.
#[derive(Debug)]
pub(crate) struct Shares {
    list: List<Share, MOST>,
}

/// Why nothing is admitted.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Closed {
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
    /// There are more shares than [`MOST`].
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
    pub(crate) fn at(&self, place: usize) -> Option<&Share> {
        self.all().get(place)
    }

    /// Loads all shares and takes a slot in each. Called by one thread, while the process begins. If one
    /// cannot be held, none is: what it was to limit is not known.
    pub(super) fn load(&self) -> Result<(), Closed> {
        let path = paths::shares().ok_or(Closed::None)?;
        let folder = File::open(path.text(), Mode::Folder).map_err(|_| Closed::None)?;
        let mut held = [const { None }; MOST];
        if let Err(closed) = open_all(&path, &folder, &mut held) {
            held.into_iter().flatten().for_each(Share::leave);
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
fn open_all(path: &Path, folder: &File, held: &mut [Option<Share>]) -> Result<(), Closed> {
    let mut count = 0;
    let mut bytes = [0; 4096];
    loop {
        let length = folder.list(&mut bytes).map_err(|error| Closed::System(*path, error))?;
        if length == 0 {
            break;
        }
        for name in entries(bytes.get(..length).unwrap_or(&[])) {
            if name.first() == Some(&b'.') {
                continue;
            }
            *held.get_mut(count).ok_or(Closed::TooMany)? = Some(Share::open(name)?);
            count += 1;
        }
    }
    if count == 0 { Err(Closed::None) } else { Ok(()) }
}

/// Says on the share's socket why nothing is admitted, once, if the agent listens.
pub(crate) fn tell_why_closed(closed: &Closed) {
    match closed {
        // Nobody to tell.
        Closed::None | Closed::TooMany => {}
        Closed::State(path, damage) => {
            liaison::tell_once(path, Kind::Tampered, share::code(*damage), b"closed: state file");
        }
        Closed::Limits(path, damage) => {
            let text: &[u8] = match damage {
                limits::Damage::Size => b"closed: limits file is missing or of another size",
                limits::Damage::Magic => b"closed: limits file is not one",
                limits::Damage::Version(_) => b"closed: limits file is of another version",
                limits::Damage::Unfinished => b"closed: limits file was never finished",
            };
            liaison::tell_once(path, Kind::Refused, 1, text);
        }
        Closed::Full(path) => {
            liaison::tell_once(
                path,
                Kind::Refused,
                1,
                b"closed: no slot is free for another process",
            );
        }
        Closed::Writable(path) => {
            let text = b"closed: the share's folder is not mounted read-only";
            liaison::tell_once(path, Kind::Refused, 1, text);
        }
        Closed::System(path, error) => {
            let _ = error;
            liaison::tell_once(
                path,
                Kind::Refused,
                1,
                b"closed: a file of the share cannot be opened",
            );
        }
    }
}
