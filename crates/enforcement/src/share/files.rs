//! The binary files of a share's folder. The agent writes `limits`, which guards map. Guards write `state`, which the
//! agent reads by copies. The format is that of [`octavo_guard_abi`].
//!
//! A mount refers to a file, not to its name. A file that containers may have is therefore changed in place and never
//! replaced. A missing file is created completely under another name first.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

use octavo_guard_abi::limits::{self, Damage, ShareGate, Terms};
use octavo_guard_abi::{LIMITS_FILE, STATE_FILE, state};

use octavo_node::files::{StorageError, TEMP_SUFFIX};

/// Readable by everyone, writable by the agent.
const LIMITS_MODE: u32 = 0o644;
/// Writable by everyone, since containers run as any user.
const STATE_MODE: u32 = 0o666;
/// Rejects links, and does not block on pipes.
const OPEN_FLAGS: i32 = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_CLOEXEC;

/// Writes missing or different files of a share; returns whether any were written. A new limits file withholds so many bytes of the
/// limit until the watchdog grants them.
///
/// An existing state file stays unchanged, whatever its content: it belongs to the containers.
pub(crate) fn write(folder: &Path, terms: &Terms, withheld: u64) -> Result<bool, StorageError> {
    let path = folder.join(LIMITS_FILE);
    let mut is_written = match open(&path, true) {
        Ok(file) => rewrite(&file, &with_learned(&file, terms), withheld)
            .map_err(StorageError::of("write", &path))?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            make(&path, &whole(terms, withheld), limits::SIZE, LIMITS_MODE)?;
            true
        }
        Err(error) => return Err(StorageError::of("open", &path)(error)),
    };
    let path = folder.join(STATE_FILE);
    if fs::symlink_metadata(&path).is_err() {
        make(&path, &state::header(terms.generation), state::SIZE, STATE_MODE)?;
        is_written = true;
    }
    Ok(is_written)
}

/// The generation in a share's limits file, if the file is valid.
pub fn generation(folder: &Path) -> Option<u64> {
    let file = LimitsFile::open(folder).ok()?;
    file.terms().ok().map(|terms| terms.generation)
}

/// A share's limits file, open for the life of the share.
#[derive(Debug)]
pub(crate) struct LimitsFile {
    file: File,
}

/// The words of a limits file that change at run time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RuntimeWords {
    /// Whether the share's processes may go on.
    pub(crate) gate: ShareGate,
    /// Number of changes of the gate.
    pub(crate) epoch: u32,
    /// Bytes of the share that its ledger does not contain.
    pub(crate) untracked_bytes: u64,
    /// Bytes that the driver counts for the share.
    pub(crate) driver_bytes: u64,
    /// Bytes of the limit that other shares have now.
    pub(crate) withheld_bytes: u64,
}

impl LimitsFile {
    /// Opens the file of a share's folder.
    pub(crate) fn open(folder: &Path) -> io::Result<Self> {
        Ok(Self { file: open(&folder.join(LIMITS_FILE), true)? })
    }

    /// The terms of the share.
    pub(crate) fn terms(&self) -> Result<Terms, Damage> {
        Terms::decode(&self.copy().map_err(|_| Damage::Size)?)
    }

    /// The words that change at run time.
    pub(crate) fn live(&self) -> io::Result<RuntimeWords> {
        let (mut gate, mut epoch) = ([0; 4], [0; 4]);
        let (mut untracked, mut driver, mut withheld) = ([0; 8], [0; 8], [0; 8]);
        let gate_at = limits::GATE_OFFSET as u64;
        self.file.read_exact_at(&mut gate, gate_at)?;
        self.file.read_exact_at(&mut epoch, gate_at + 4)?;
        let untracked_at = limits::UNTRACKED_OFFSET as u64;
        self.file.read_exact_at(&mut untracked, untracked_at)?;
        self.file.read_exact_at(&mut driver, untracked_at + 8)?;
        self.file.read_exact_at(&mut withheld, limits::WITHHELD_OFFSET as u64)?;
        Ok(RuntimeWords {
            gate: ShareGate::of(u32::from_ne_bytes(gate)),
            epoch: u32::from_ne_bytes(epoch),
            untracked_bytes: u64::from_ne_bytes(untracked),
            driver_bytes: u64::from_ne_bytes(driver),
            withheld_bytes: u64::from_ne_bytes(withheld),
        })
    }

    /// Sets the share's gate, unless it already has this state.
    pub(crate) fn set_gate(&self, gate: ShareGate) -> io::Result<()> {
        let live = self.live()?;
        if live.gate == gate {
            return Ok(());
        }
        let mut words = [0; 8];
        words[..4].copy_from_slice(&(gate as u32).to_ne_bytes());
        words[4..].copy_from_slice(&live.epoch.wrapping_add(1).to_ne_bytes());
        self.file.write_all_at(&words, limits::GATE_OFFSET as u64)
    }

    /// Writes the bytes counted by the driver, and those of them missing in the ledger.
    pub(crate) fn set_untracked(&self, untracked: u64, driver: u64) -> io::Result<()> {
        let mut words = [0; 16];
        words[..8].copy_from_slice(&untracked.to_ne_bytes());
        words[8..].copy_from_slice(&driver.to_ne_bytes());
        self.file.write_all_at(&words, limits::UNTRACKED_OFFSET as u64)
    }

    /// Writes how much of the limit other shares have now.
    pub(crate) fn set_withheld(&self, bytes: u64) -> io::Result<()> {
        self.file.write_all_at(&bytes.to_ne_bytes(), limits::WITHHELD_OFFSET as u64)
    }

    /// Writes how much of the time the GPU works for the share, in thousandths; `None` if unknown.
    pub(crate) fn set_utilisation(&self, permille: Option<u32>) -> io::Result<()> {
        let word = permille.map_or(0, |permille| permille.saturating_add(1));
        self.file.write_all_at(&word.to_ne_bytes(), limits::UTILISATION_OFFSET as u64)
    }

    /// Writes the bytes charged for a context before it is created.
    pub(crate) fn set_context_bytes(&self, context_bytes: u64) -> io::Result<()> {
        let failed = |damage| io::Error::other(format!("{LIMITS_FILE} is damaged ({damage:?})"));
        let terms = self.terms().map_err(failed)?;
        let withheld = self.live()?.withheld_bytes;
        rewrite(&self.file, &Terms { context_bytes, ..terms }, withheld).map(|_| ())
    }

    fn copy(&self) -> io::Result<Vec<u8>> {
        copy(&self.file)
    }
}

/// The terms, with the context size learned since the file was created.
fn with_learned(file: &File, terms: &Terms) -> Terms {
    let found = copy(file).ok().and_then(|bytes| Terms::decode(&bytes).ok());
    let found = found.filter(|found| found.generation == terms.generation);
    let learned = found.map_or(0, |found| found.context_bytes);
    Terms { context_bytes: terms.context_bytes.max(learned), ..*terms }
}

/// Opens a plain file.
fn open(path: &Path, is_written: bool) -> io::Result<File> {
    let mut options = OpenOptions::new();
    let file = options.read(true).write(is_written).custom_flags(OPEN_FLAGS).open(path)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(io::Error::other("is no plain file")) }
}

/// A copy of a limits file, one byte longer than allowed to detect oversized files.
fn copy(file: &File) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; limits::SIZE + 1];
    let mut length = 0;
    loop {
        match file.read_at(&mut bytes[length..], length as u64) {
            Ok(0) => break,
            Ok(read) => length += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    bytes.truncate(length);
    Ok(bytes)
}

/// A whole limits file.
fn whole(terms: &Terms, withheld: u64) -> [u8; limits::SIZE] {
    let mut file = terms.file();
    file[limits::WITHHELD_OFFSET..][..8].copy_from_slice(&withheld.to_ne_bytes());
    file
}

/// Updates a limits file in place; returns whether it changed. Concurrent readers retry. A damaged one withholds so many bytes.
fn rewrite(file: &File, terms: &Terms, withheld: u64) -> io::Result<bool> {
    let found = copy(file)?;
    let damage = match Terms::decode(&found) {
        Ok(found) if found == *terms => return Ok(false),
        Ok(_) | Err(Damage::Unfinished) => None,
        Err(damage) => Some(damage),
    };
    // What may be had now is the limit less what others have. It stays when the limit changes, so the withheld part is larger first.
    let before = Terms::decode(&found).ok().map(|before| before.memory_bytes);
    let old = before.and_then(|limit| Some((limit, u64_at(&found, limits::WITHHELD_OFFSET)?)));
    let kept = old.filter(|(limit, held)| *held > 0 && *limit != terms.memory_bytes);
    let kept = kept.map(|(limit, held)| {
        terms.memory_bytes.saturating_sub(limit.saturating_sub(held)).to_ne_bytes()
    });
    let grows = before.is_some_and(|limit| limit < terms.memory_bytes);
    let sequence = found.get(limits::SEQUENCE_OFFSET..limits::SEQUENCE_OFFSET + 4);
    let sequence = sequence.and_then(|bytes| bytes.try_into().ok()).map_or(0, u32::from_ne_bytes);
    let at = |offset: usize, bytes: &[u8]| file.write_all_at(bytes, offset as u64);
    if damage.is_some() {
        file.set_len(limits::SIZE as u64)?;
    }
    if let Some(withheld) = kept.filter(|_| grows) {
        at(limits::WITHHELD_OFFSET, &withheld)?;
    }
    let odd = sequence | 1;
    at(limits::SEQUENCE_OFFSET, &odd.to_ne_bytes())?;
    at(limits::TERMS_OFFSET, &terms.encode())?;
    if let Some(withheld) = kept.filter(|_| !grows) {
        at(limits::WITHHELD_OFFSET, &withheld)?;
    }
    if damage.is_some() {
        // No word of it can be trusted, including the gate. The sequence stays odd until the end.
        let whole = whole(terms, withheld);
        let behind = limits::TERMS_OFFSET + limits::TERMS_SIZE;
        at(behind, &whole[behind..])?;
        at(0, &whole[..limits::SEQUENCE_OFFSET])?;
    }
    at(limits::SEQUENCE_OFFSET, &odd.wrapping_add(1).to_ne_bytes())?;
    Ok(true)
}

/// A number of a limits file.
fn u64_at(file: &[u8], offset: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(file.get(offset..offset + 8)?.try_into().ok()?))
}

/// Creates a file of `size` bytes that begins with `start` and is zero behind it.
fn make(path: &Path, start: &[u8], size: usize, mode: u32) -> Result<(), StorageError> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let folder = path.parent().unwrap_or(Path::new("/"));
    fs::create_dir_all(folder).map_err(StorageError::of("create", folder))?;
    let temp = folder.join(format!(".{name}{TEMP_SUFFIX}"));
    let made = (|| {
        let mut file = File::create(&temp)?;
        file.write_all(start)?;
        file.set_len(size as u64)?;
        // Whatever the process masks.
        file.set_permissions(Permissions::from_mode(mode))?;
        octavo_node::failpoint::hit("share.file-written");
        fs::rename(&temp, path)
    })();
    if made.is_err() {
        // The first error is returned below.
        let _ = fs::remove_file(&temp);
    }
    made.map_err(StorageError::of("create", path))
}

#[cfg(test)]
mod tests;
