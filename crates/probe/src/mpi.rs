//! Open MPI as this process finds it: `libmpi.so.40` opened by name, with the symbols of its ABI.

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;

use anyhow::{Context, ensure};
use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};

/// The library of Open MPI 4 and 5.
const LIBRARY: &str = "libmpi.so.40";

type Init = unsafe extern "C" fn(*mut c_int, *mut c_void) -> c_int;
type Finalize = unsafe extern "C" fn() -> c_int;
type Number = unsafe extern "C" fn(*mut c_void, &mut c_int) -> c_int;
type Barrier = unsafe extern "C" fn(*mut c_void) -> c_int;
type Abort = unsafe extern "C" fn(*mut c_void, c_int) -> c_int;
type AllGather = unsafe extern "C" fn(
    *const c_void,
    c_int,
    *mut c_void,
    *mut c_void,
    c_int,
    *mut c_void,
    *mut c_void,
) -> c_int;

/// A rank of a job, from `MPI_Init` to the end of the process.
#[derive(Debug)]
pub(crate) struct Mpi {
    library: Library,
    /// Its number, from 0.
    pub(crate) rank: usize,
    /// How many ranks there are.
    pub(crate) size: usize,
}

impl Mpi {
    /// Joins the job by which this process was started.
    pub(crate) fn init() -> anyhow::Result<Self> {
        // SAFETY: every program of Open MPI runs its initialisers. Its plugins find the library's symbols, which are global.
        let library = unsafe { Library::open(Some(LIBRARY), RTLD_NOW | RTLD_GLOBAL) };
        let library = library.with_context(|| {
            format!("there is no {LIBRARY}: --fabric is for ranks of an MPI job, in an image with Open MPI")
        })?;
        let mut mpi = Self { library, rank: 0, size: 0 };
        // SAFETY: its type in mpi.h; null pointers stand for no arguments.
        let code = unsafe { mpi.find::<Init>("MPI_Init")?(null_mut(), null_mut()) };
        checked("MPI_Init", code)?;
        mpi.rank = mpi.number("MPI_Comm_rank")?;
        mpi.size = mpi.number("MPI_Comm_size")?;
        Ok(mpi)
    }

    /// Gives all ranks these bytes, and returns those of all ranks in their order.
    pub(crate) fn all_gather<const N: usize>(&self, own: &[u8; N]) -> anyhow::Result<Vec<[u8; N]>> {
        let mut all = vec![[0; N]; self.size];
        let (count, bytes) = (c_int::try_from(N)?, self.object("ompi_mpi_byte")?);
        let world = self.world()?;
        // SAFETY: its type in mpi.h; the buffers have `count` bytes, once and once for each rank.
        let code = unsafe {
            self.find::<AllGather>("MPI_Allgather")?(
                own.as_ptr().cast(),
                count,
                bytes,
                all.as_mut_ptr().cast(),
                count,
                bytes,
                world,
            )
        };
        checked("MPI_Allgather", code).map(|()| all)
    }

    /// Waits until all ranks are here.
    pub(crate) fn barrier(&self) -> anyhow::Result<()> {
        // SAFETY: its type in mpi.h.
        let code = unsafe { self.find::<Barrier>("MPI_Barrier")?(self.world()?) };
        checked("MPI_Barrier", code)
    }

    /// Ends the job with success, together with all other ranks.
    pub(crate) fn finalize(self) -> anyhow::Result<()> {
        // SAFETY: its type in mpi.h.
        let code = unsafe { self.find::<Finalize>("MPI_Finalize")?() };
        checked("MPI_Finalize", code)?;
        // Its plugins may have threads that still run.
        std::mem::forget(self.library);
        Ok(())
    }

    /// Ends the job with a failure: else the other ranks would wait.
    pub(crate) fn abort(&self) {
        if let (Ok(world), Ok(abort)) = (self.world(), self.find::<Abort>("MPI_Abort")) {
            // SAFETY: its type in mpi.h.
            unsafe { abort(world, 1) };
        }
    }

    fn number(&self, name: &str) -> anyhow::Result<usize> {
        let mut number = 0;
        // SAFETY: its type in mpi.h.
        let code = unsafe { self.find::<Number>(name)?(self.world()?, &mut number) };
        checked(name, code)?;
        Ok(usize::try_from(number)?)
    }

    fn world(&self) -> anyhow::Result<*mut c_void> {
        self.object("ompi_mpi_comm_world")
    }

    /// Address of an object of the library, which stands for it in calls.
    fn object(&self, name: &str) -> anyhow::Result<*mut c_void> {
        // SAFETY: only the address is taken.
        let found = unsafe { self.library.get::<*mut c_void>(name.as_bytes()) };
        let symbol =
            found.with_context(|| format!("{LIBRARY} has no {name}: it is not Open MPI's"))?;
        Ok(symbol.into_raw())
    }

    /// A function of the library. `T` is its type.
    fn find<T: Copy>(&self, name: &str) -> anyhow::Result<T> {
        // SAFETY: all callers name a function of mpi.h with its type.
        let found = unsafe { self.library.get::<T>(name.as_bytes()) };
        Ok(*found.with_context(|| format!("{LIBRARY} has no {name}"))?)
    }
}

fn checked(call: &str, code: c_int) -> anyhow::Result<()> {
    ensure!(code == 0, "{call} failed with code {code}");
    Ok(())
}
