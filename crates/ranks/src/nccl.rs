//! Ranks that are NVIDIA GPUs of this machine, one thread a GPU, through NCCL.
//!
//! NCCL is loaded at run time. Its few functions are declared here and not taken from cudarc: with candle's CUDA feature cudarc links
//! to each library that it knows, so that a machine without NCCL could not build.
//!
//! Calls are queued in the GPU's stream, and return before they have ended, as launches do (lesson 02). NCCL compares nothing: ranks
//! whose calls differ wait for ever, or mix up numbers. [`GpuRank::synchronize`] waits with a time limit, and ends with an error that
//! names the rank where another one has failed; call it before reading a result.

use crate::collectives::{Collectives, Communicator, Op};
use crate::exchange::Exchange;
use crate::port::Shared;
use crate::rank::Rank;
use crate::watchdog::{Held, Seat, Watch, Watchdog};
use gpulab::cudarc::driver::{CudaStream, DevicePtr, DevicePtrMut, sys};
use gpulab::gpu::{Buffer, Gpu, Stream};
use gpulab::places;
use gpulab_measure::error::same_length;
use gpulab_measure::{Error, Result};
use libloading::Library;
use std::cell::RefCell;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::mem::ManuallyDrop;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::RecvTimeoutError;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The oldest NCCL that has all functions: 2.18 brought `ncclCommSplit`.
const OLDEST: (i32, i32) = (2, 18);
const SUCCESS: c_int = 0;
const IN_PROGRESS: c_int = 7;
/// How long [`GpuRank::synchronize`] waits for the other ranks.
const LIMIT: Duration = Duration::from_secs(10);
/// How long NCCL has to destroy or abort a communicator.
const END: Duration = Duration::from_secs(3);

const SAME_CALLS: &str =
    "let every rank make the same calls in the same order: try it with CPU ranks, which name the one that does not";

type Comm = *mut c_void;
type Raw = *mut c_void;

/// A number that NCCL knows. A `u16` is the bits of a `bf16` here, as in all kernels of the course; NCCL has no other number of 16
/// bits without a sign.
pub trait NcclElement: gpulab::launch::Element {
    /// Its `ncclDataType_t`.
    const NCCL_TYPE: c_int;
}

macro_rules! nccl_element {
    ($($kind:ty = $number:expr),*) => {$(
        impl NcclElement for $kind {
            const NCCL_TYPE: c_int = $number;
        }
    )*};
}

nccl_element!(i8 = 0, u8 = 1, i32 = 2, u32 = 3, i64 = 4, u64 = 5, f32 = 7, f64 = 8, u16 = 9);

/// `ncclRedOp_t`.
fn red_op(op: Op) -> c_int {
    match op {
        Op::Sum => 0,
        Op::Max => 2,
        Op::Min => 3,
        Op::Avg => 4,
    }
}

/// What the ranks of one communicator have in common: `ncclUniqueId`.
#[repr(C)]
#[derive(Clone, Copy)]
struct UniqueId([u32; 32]);

/// NCCL's functions; nothing is used after the library is closed, as it never is.
#[allow(clippy::type_complexity)] // as in nccl.h
struct Functions {
    get_error_string: unsafe extern "C" fn(c_int) -> *const c_char,
    get_last_error: unsafe extern "C" fn(Comm) -> *const c_char,
    comm_init_all: unsafe extern "C" fn(*mut Comm, c_int, *const c_int) -> c_int,
    get_unique_id: unsafe extern "C" fn(*mut UniqueId) -> c_int,
    comm_init_rank: unsafe extern "C" fn(*mut Comm, c_int, UniqueId, c_int) -> c_int,
    comm_split: unsafe extern "C" fn(Comm, c_int, c_int, *mut Comm, *mut c_void) -> c_int,
    comm_destroy: unsafe extern "C" fn(Comm) -> c_int,
    comm_abort: unsafe extern "C" fn(Comm) -> c_int,
    comm_get_async_error: unsafe extern "C" fn(Comm, *mut c_int) -> c_int,
    comm_count: unsafe extern "C" fn(Comm, *mut c_int) -> c_int,
    comm_user_rank: unsafe extern "C" fn(Comm, *mut c_int) -> c_int,
    group_start: unsafe extern "C" fn() -> c_int,
    group_end: unsafe extern "C" fn() -> c_int,
    all_reduce: unsafe extern "C" fn(*const c_void, Raw, usize, c_int, c_int, Comm, sys::CUstream) -> c_int,
    reduce_scatter: unsafe extern "C" fn(*const c_void, Raw, usize, c_int, c_int, Comm, sys::CUstream) -> c_int,
    all_gather: unsafe extern "C" fn(*const c_void, Raw, usize, c_int, Comm, sys::CUstream) -> c_int,
    broadcast: unsafe extern "C" fn(*const c_void, Raw, usize, c_int, c_int, Comm, sys::CUstream) -> c_int,
    send: unsafe extern "C" fn(*const c_void, usize, c_int, c_int, Comm, sys::CUstream) -> c_int,
    recv: unsafe extern "C" fn(Raw, usize, c_int, c_int, Comm, sys::CUstream) -> c_int,
}

/// NCCL, loaded.
pub struct Nccl {
    functions: Functions,
    version: (i32, i32, i32),
    path: PathBuf,
    /// Never closed: NCCL's own threads may still run.
    _library: ManuallyDrop<Library>,
}

impl std::fmt::Debug for Nccl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (major, minor, patch) = self.version;
        write!(f, "NCCL {major}.{minor}.{patch} ({})", self.path.display())
    }
}

const INSTALL: &str = "install NVIDIA's package into the course's environment (`.venv/bin/pip install nvidia-nccl-cu13`, or `-cu12` with an older \
                       driver), and restart the kernel (menu Kernel, Restart); without it the lesson's ranks are threads of the CPU";

impl Nccl {
    /// Loads NCCL: from the environment's package `nvidia-nccl-cu13` or `-cu12`, else from where the system has it.
    ///
    /// # Errors
    /// [`Error::Unsupported`] when it is missing, older than 2.18, or cannot be loaded.
    pub fn load() -> Result<Nccl> {
        let mut folders: Vec<PathBuf> =
            places::site_packages().into_iter().map(|packages| packages.join("nvidia/nccl/lib")).collect();
        folders.extend(places::loader_folders());
        Nccl::open(places::library_in(&folders, "libnccl.so").unwrap_or_else(|| PathBuf::from("libnccl.so.2")))
    }

    /// Loads NCCL from that file.
    ///
    /// # Errors
    /// As [`Nccl::load`].
    pub fn from_file(path: &std::path::Path) -> Result<Nccl> {
        Nccl::open(path.to_path_buf())
    }

    fn open(path: PathBuf) -> Result<Nccl> {
        let missing = |error: libloading::Error| {
            // The loader's own words, with the file, are the error's source.
            let why = std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string);
            Error::unsupported(format!("NCCL cannot be loaded: {why}"), INSTALL)
        };
        // SAFETY: loading NCCL runs its initialisers, which ask nothing of their caller.
        let library = unsafe { Library::new(&path) }.map_err(missing)?;
        // SAFETY: the type is that of nccl.h in every version.
        let get_version = unsafe { library.get::<unsafe extern "C" fn(*mut c_int) -> c_int>(b"ncclGetVersion\0") };
        let mut number = 0;
        // SAFETY: the pointer is to a number of that type.
        let code = unsafe { get_version.map_err(missing)?(&raw mut number) };
        let version = decode(number);
        if code != SUCCESS || (version.0, version.1) < OLDEST {
            let (major, minor, patch) = version;
            let what = format!(
                "NCCL {major}.{minor}.{patch} ({}) is too old: {}.{} is needed",
                path.display(),
                OLDEST.0,
                OLDEST.1
            );
            return Err(Error::unsupported(what, INSTALL));
        }
        macro_rules! function {
            ($name:literal) => {
                // SAFETY: the field's type is that of nccl.h, from the oldest version that is let through; the library stays
                // loaded as long as the pointer is used.
                *unsafe { library.get(concat!($name, "\0").as_bytes()) }.map_err(missing)?
            };
        }
        let functions = Functions {
            get_error_string: function!("ncclGetErrorString"),
            get_last_error: function!("ncclGetLastError"),
            comm_init_all: function!("ncclCommInitAll"),
            get_unique_id: function!("ncclGetUniqueId"),
            comm_init_rank: function!("ncclCommInitRank"),
            comm_split: function!("ncclCommSplit"),
            comm_destroy: function!("ncclCommDestroy"),
            comm_abort: function!("ncclCommAbort"),
            comm_get_async_error: function!("ncclCommGetAsyncError"),
            comm_count: function!("ncclCommCount"),
            comm_user_rank: function!("ncclCommUserRank"),
            group_start: function!("ncclGroupStart"),
            group_end: function!("ncclGroupEnd"),
            all_reduce: function!("ncclAllReduce"),
            reduce_scatter: function!("ncclReduceScatter"),
            all_gather: function!("ncclAllGather"),
            broadcast: function!("ncclBroadcast"),
            send: function!("ncclSend"),
            recv: function!("ncclRecv"),
        };
        Ok(Nccl { functions, version, path, _library: ManuallyDrop::new(library) })
    }

    /// Its version, such as 2.28.3.
    pub fn version(&self) -> (i32, i32, i32) {
        self.version
    }

    fn check(&self, comm: Comm, during: &str, code: c_int) -> Result<()> {
        if code == SUCCESS {
            return Ok(());
        }
        // SAFETY: both give a text that NCCL owns, or a null pointer; a null communicator is allowed.
        let [name, last] = unsafe { [(self.functions.get_error_string)(code), (self.functions.get_last_error)(comm)] };
        let text = |text: *const c_char| match text.is_null() {
            true => String::new(),
            // SAFETY: it is no null pointer, and C's texts end with a zero.
            false => unsafe { CStr::from_ptr(text) }.to_string_lossy().trim().to_string(),
        };
        Err(Error::Driver {
            during: during.to_string(),
            code: format!("ncclResult {code}, {}", text(name)),
            text: text(last),
            fix: "run it again with NCCL_DEBUG=INFO in the environment: NCCL then says what it found, and what failed"
                .to_string(),
        })
    }

    /// Runs `code` on every one of these GPUs at once, a thread and a rank for each, and gives what each of them returned.
    ///
    /// # Errors
    /// The error of the rank that failed first, with its number, and those of NCCL. A rank that panics is such an error.
    pub fn run<T: Send>(self: &Arc<Nccl>, gpus: &[Gpu], code: impl Fn(&GpuRank) -> Result<T> + Sync) -> Result<Vec<T>> {
        let ordinals = gpus.iter().map(|gpu| gpu.index() as c_int).collect::<Vec<c_int>>();
        let streams = gpus.iter().map(Gpu::cuda_stream).collect::<Result<Vec<_>>>()?;
        if let Some(at) = (1..ordinals.len()).find(|at| ordinals[..*at].contains(&ordinals[*at])) {
            let what = format!("rank {at} asks for GPU {}, which another rank has", ordinals[at]);
            return Err(Error::invalid(what, "give each rank a GPU of its own: NCCL has no two ranks on one"));
        }
        if gpus.is_empty() {
            return Err(Error::invalid("a world without a GPU", "give at least one"));
        }
        let mut comms: Vec<Comm> = vec![std::ptr::null_mut(); gpus.len()];
        // SAFETY: both arrays have as many elements as it is told.
        let made =
            unsafe { (self.functions.comm_init_all)(comms.as_mut_ptr(), ordinals.len() as c_int, ordinals.as_ptr()) };
        self.check(std::ptr::null_mut(), "making the communicators", made)?;
        let (failed, ended) = (Failed::default(), Ended::default());
        let exchange = Arc::new(Exchange::new(gpus.len()));
        let watchdog = Arc::new(Watchdog::default());
        let _watch = self.watch(&watchdog, &failed, None);
        let ranks = comms.into_iter().zip(streams).zip(gpus).enumerate().map(|(rank, ((comm, stream), gpu))| {
            let (nccl, failed, gpu) = (Arc::clone(self), Arc::clone(&failed), gpu.clone());
            let (exchange, apart) = (Some(Arc::clone(&exchange)), RefCell::default());
            let (ended, splits, number) = (Arc::clone(&ended), Arc::default(), 0);
            let (seat, watchdog) = (watchdog.seat(comm, rank), Arc::clone(&watchdog));
            GpuRank {
                nccl,
                seat,
                watchdog,
                rank,
                size: gpus.len(),
                gpu,
                stream,
                failed,
                apart,
                exchange,
                watched: None,
                ended,
                splits,
                number,
            }
        });
        let one = |rank: GpuRank| {
            let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                rank.bind()?;
                let result = code(&rank)?;
                rank.synchronize()?;
                Ok(result)
            }));
            let outcome = outcome.unwrap_or_else(|_| Err(Error::invalid("it panicked", "read the panic's text above")));
            outcome.map_err(|error: Error| rank.fail(&error)).ok()
        };
        let results: Vec<Option<T>> = std::thread::scope(|scope| {
            let threads: Vec<_> = ranks.map(|rank| scope.spawn(|| one(rank))).collect();
            threads.into_iter().map(|thread| thread.join().expect("panics are caught")).collect()
        });
        let failed = failed.lock().unwrap_or_else(PoisonError::into_inner).take();
        self.end(&ended, failed.is_none());
        match failed {
            Some(error) => Err(error),
            None => Ok(results.into_iter().flatten().collect()),
        }
    }
}

/// The first error of any rank of this process.
pub(crate) type Failed = Arc<Mutex<Option<Error>>>;

/// Communicators whose ranks are done with them, with the number of the split that made them. To destroy one frees memory, and waits
/// for kernels of this process' other GPUs as well: it has to wait until nobody's kernels wait for this rank.
type Ended = Arc<Mutex<Vec<(usize, Handle)>>>;

struct Handle(Comm);

// SAFETY: a communicator may be used from any thread, by one at a time; a handle is used by whoever takes it from the list.
unsafe impl Send for Handle {}

impl Nccl {
    /// Runs `code` on the GPU of this process, as the rank that the process is: `rank` comes from [`Processes`](crate::Processes), and
    /// all processes of its group call this. A process that dies, or whose code fails, ends the others by the connections between
    /// them: in [`GpuRank::synchronize`], with an error that names it.
    ///
    /// # Errors
    /// What `code` returns; those of the other ranks, and of NCCL.
    pub fn join<T>(self: &Arc<Nccl>, rank: &Rank, gpu: &Gpu, code: impl FnOnce(&GpuRank) -> Result<T>) -> Result<T> {
        let stream = gpu.cuda_stream()?;
        let bound = stream.context().bind_to_thread();
        bound.map_err(|error| gpulab::cuda::driver_error("choosing the GPU of a rank", error))?;
        let mut id = UniqueId([0; 32]);
        if Communicator::rank(rank) == 0 {
            // SAFETY: the pointer is to a value of that size.
            let code = unsafe { (self.functions.get_unique_id)(&raw mut id) };
            self.check(std::ptr::null_mut(), "making the name of a communicator", code)?;
        }
        rank.broadcast(&mut id.0[..], 0)?;
        // NCCL waits for all ranks and does not see one fail: each has to be here, with its GPU.
        rank.barrier()?;
        let (me, size, shared) = (Communicator::rank(rank), Communicator::size(rank), rank.shared());
        let comm = self.joined(id, me, size, &stream, &|| {
            shared.failed().map_or(Ok(()), |(_, _, what, fix)| Err(Error::invalid(what, fix)))
        })?;
        let (ended, failed, watchdog) = (Ended::default(), Failed::default(), Arc::new(Watchdog::default()));
        let _watch = self.watch(&watchdog, &failed, Some(Arc::clone(&shared)));
        let on_gpu = GpuRank {
            nccl: Arc::clone(self),
            seat: watchdog.seat(comm, me),
            watchdog,
            rank: me,
            size,
            gpu: gpu.clone(),
            stream,
            failed,
            apart: RefCell::default(),
            exchange: None,
            watched: Some(shared),
            ended: Arc::clone(&ended),
            splits: Arc::default(),
            number: 0,
        };
        let outcome = code(&on_gpu).and_then(|result| {
            on_gpu.synchronize()?;
            // Nobody frees what another one still reads.
            rank.barrier().map(|()| result)
        });
        if outcome.is_err() {
            on_gpu.abort();
        }
        drop(on_gpu);
        self.end(&ended, outcome.is_ok());
        outcome
    }

    /// Takes a rank's place, in a thread of its own: where another rank fails meanwhile, that thread is left alone.
    fn joined(
        self: &Arc<Nccl>,
        id: UniqueId,
        rank: usize,
        size: usize,
        stream: &CudaStream,
        alive: &dyn Fn() -> Result<()>,
    ) -> Result<Comm> {
        let (nccl, context) = (Arc::clone(self), Arc::clone(stream.context()));
        let (tell, told) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let mut comm = std::ptr::null_mut();
            let bound = context.bind_to_thread().map_err(|error| gpulab::cuda::driver_error("choosing a GPU", error));
            let joined = bound.and_then(|()| {
                // SAFETY: the pointer is to a communicator's place.
                let code = unsafe { (nccl.functions.comm_init_rank)(&raw mut comm, size as c_int, id, rank as c_int) };
                nccl.check(std::ptr::null_mut(), "joining a communicator", code)
            });
            // Whoever waited may have gone.
            let _ = tell.send(joined.map(|()| Handle(comm)));
        });
        loop {
            alive()?;
            match told.recv_timeout(Duration::from_millis(20)) {
                Ok(joined) => return joined.map(|handle| handle.0),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(Error::invalid("NCCL's thread ended without a word", "see the panic's text above"));
                }
            }
        }
    }

    /// Destroys communicators, those of the last split first and all of one at the same time, as they wait for each other; where
    /// a rank has failed, each ends without the others.
    fn end(self: &Arc<Nccl>, ended: &Ended, healthy: bool) {
        let mut comms = std::mem::take(&mut *ended.lock().unwrap_or_else(PoisonError::into_inner));
        comms.sort_by_key(|(number, _)| std::cmp::Reverse(*number));
        for of_split in comms.chunk_by_mut(|a, b| a.0 == b.0) {
            let handles =
                of_split.iter_mut().map(|(_, handle)| Handle(std::mem::replace(&mut handle.0, std::ptr::null_mut())));
            self.ended_within(handles.collect(), healthy);
        }
    }

    /// Releases ranks of this process that NCCL holds on the host for longer than [`Watchdog`] lets it; `shared` tells of ranks in
    /// other processes that have failed.
    fn watch(self: &Arc<Nccl>, watchdog: &Arc<Watchdog>, failed: &Failed, shared: Option<Arc<Shared>>) -> Watch {
        let (nccl, noted, known) = (Arc::clone(self), Arc::clone(failed), Arc::clone(failed));
        let someone_failed = move || {
            let here = known.lock().unwrap_or_else(PoisonError::into_inner).is_some();
            here || shared.as_ref().is_some_and(|shared| shared.failed().is_some())
        };
        watchdog.watch(someone_failed, move |Held { seat, call, seconds, elsewhere }| {
            let missing = match elsewhere.as_slice() {
                [] => "the other ranks".to_string(),
                [one] => format!("rank {one}, which makes no call"),
                many => format!(
                    "ranks {}, which make no call",
                    many.iter().map(usize::to_string).collect::<Vec<_>>().join(", ")
                ),
            };
            let error = Error::invalid(
                format!("rank {} has waited {seconds:.0} s inside of {call} for {missing}", seat.rank),
                SAME_CALLS,
            );
            noted.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
            let comm = seat.take();
            if !comm.is_null() {
                nccl.ended_within(vec![Handle(comm)], false);
            }
        })
    }

    /// Ends these communicators in threads of their own. What NCCL has not ended after a while is left alone: nobody waits for ever.
    fn ended_within(self: &Arc<Nccl>, handles: Vec<Handle>, healthy: bool) {
        let (tell, told) = std::sync::mpsc::channel();
        let count = handles.len();
        for handle in handles {
            let (nccl, tell) = (Arc::clone(self), tell.clone());
            std::thread::spawn(move || {
                let handle = handle;
                let end = if healthy { nccl.functions.comm_destroy } else { nccl.functions.comm_abort };
                // SAFETY: nobody else has the communicator any more; an error here changes nothing.
                unsafe { end(handle.0) };
                // Whoever waited may have gone.
                let _ = tell.send(());
            });
        }
        let until = Instant::now() + END;
        for _ in 0..count {
            if told.recv_timeout(until.saturating_duration_since(Instant::now())).is_err() {
                return;
            }
        }
    }
}

/// NCCL's version number: 2.9 and later count major · 10000 + minor · 100 + patch.
fn decode(number: i32) -> (i32, i32, i32) {
    let thousand = if number < 10_000 { 1000 } else { 10_000 };
    (number / thousand, number % thousand / 100, number % 100)
}

/// One rank: a GPU, and the thread that drives it.
pub struct GpuRank {
    nccl: Arc<Nccl>,
    seat: Arc<Seat>,
    watchdog: Arc<Watchdog>,
    rank: usize,
    size: usize,
    gpu: Gpu,
    stream: Arc<CudaStream>,
    failed: Failed,
    /// Where calls are queued, if not in the default stream.
    apart: RefCell<Option<Arc<CudaStream>>>,
    /// Where the ranks are threads of one process.
    exchange: Option<Arc<Exchange>>,
    /// Where they are processes: what tells whether one of them has failed.
    watched: Option<Arc<Shared>>,
    ended: Ended,
    /// How many splits this rank has made, groups of groups among them, and which one made this.
    splits: Arc<AtomicUsize>,
    number: usize,
}

// SAFETY: a communicator may be used from any thread, by one at a time, and a `GpuRank` is not `Sync`.
unsafe impl Send for GpuRank {}

impl std::fmt::Debug for GpuRank {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "rank {} of {} ({})", self.rank, self.size, self.gpu)
    }
}

impl Drop for GpuRank {
    fn drop(&mut self) {
        if self.alive().is_err() || std::thread::panicking() {
            return self.abort();
        }
        let handle = Handle(self.seat.take());
        self.ended.lock().unwrap_or_else(PoisonError::into_inner).push((self.number, handle));
    }
}

impl GpuRank {
    /// The GPU, to allocate and to launch on.
    pub fn gpu(&self) -> &Gpu {
        &self.gpu
    }

    /// Queues the calls from now on in that stream, beside the launches of the default stream; with `None` again among those. A call
    /// waits for what writes its buffers, and what uses them next waits for it.
    ///
    /// # Errors
    /// [`Error::DeviceMismatch`] for a stream of another GPU.
    pub fn communicate_on(&self, stream: Option<&Stream>) -> Result<()> {
        let stream = stream.map(|stream| Arc::clone(stream.cuda_stream()));
        if let Some(other) = stream.as_ref().filter(|other| !Arc::ptr_eq(other.context(), self.stream.context())) {
            let found = format!("a stream of GPU {}", other.context().ordinal());
            return Err(Error::DeviceMismatch { expected: self.gpu.to_string(), found });
        }
        self.apart.replace(stream);
        Ok(())
    }

    /// Where a call is queued now. Inside `gpu.capture` it becomes part of the graph.
    fn queue_now(&self) -> Result<Arc<CudaStream>> {
        match &*self.apart.borrow() {
            Some(apart) => Ok(Arc::clone(apart)),
            None => self.gpu.queue(),
        }
    }

    /// Waits until this rank's collectives have ended on the GPU. (The *first* call of a communicator already waits on the host, inside
    /// of NCCL, until all ranks make it; after 20 s it ends with an error that names the ranks which do not.)
    ///
    /// # Errors
    /// The error of another rank that has failed; NCCL's own; [`Error::Invalid`] after 10 s in which the others did not come. The
    /// communicator is then aborted, so that the GPU is free again.
    pub fn synchronize(&self) -> Result<()> {
        let begin = Instant::now();
        let streams: Vec<_> = self.apart.borrow().iter().cloned().chain([Arc::clone(&self.stream)]).collect();
        loop {
            self.alive()?;
            // SAFETY: the streams are alive, and their context is this thread's.
            let states = streams.iter().map(|stream| unsafe { sys::cuStreamQuery(stream.cu_stream()) });
            match states.max_by_key(|state| *state as u32).unwrap_or(sys::CUresult::CUDA_SUCCESS) {
                sys::CUresult::CUDA_SUCCESS => return Ok(()),
                sys::CUresult::CUDA_ERROR_NOT_READY => {}
                error => {
                    let error = gpulab::cudarc::driver::DriverError(error);
                    return Err(gpulab::cuda::driver_error("waiting for a collective", error));
                }
            }
            let mut state = SUCCESS;
            // SAFETY: the communicator is alive, and the pointer is to a number of that type.
            let asked = unsafe { (self.nccl.functions.comm_get_async_error)(self.seat.comm(), &raw mut state) };
            let code = if asked == SUCCESS { state } else { asked };
            if code != IN_PROGRESS {
                self.nccl.check(self.seat.comm(), "a collective", code)?;
            }
            if begin.elapsed() > LIMIT {
                let what = format!("rank {} has waited {} s for the other ranks", self.rank, LIMIT.as_secs());
                return Err(Error::invalid(what, SAME_CALLS));
            }
            std::thread::sleep(Duration::from_micros(50));
        }
    }

    /// Adds a range of a buffer up over all ranks, in place, as `ncclAllReduce` does, and does not tell the buffer: launches that use
    /// its other elements neither wait for the call nor does the call wait for them. It waits for what was launched on the default
    /// stream by now. So gradients that are ready are added up while a backward pass writes the next ones of the same buffer.
    ///
    /// # Safety
    /// Until [`GpuRank::join`] nothing that is launched may write the range, or read it.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a range that the buffer does not have; those of NCCL.
    pub unsafe fn all_reduce_part<T: NcclElement>(
        &self,
        data: &mut Buffer<T>,
        range: std::ops::Range<usize>,
        op: Op,
    ) -> Result<()> {
        let len = data.len();
        let (mut view, stream) = (data.as_cuda_mut()?, self.queue_now()?);
        let Some(mut part) = view.try_slice_mut(range.clone()) else {
            return Err(Error::invalid(format!("elements {range:?} of {len}"), "give a range of the buffer"));
        };
        let count = part.len();
        self.after_launches(&stream)?;
        let (at, told) = part.device_ptr_mut(&stream);
        // Dropped, it would make the next launch that uses the buffer wait for this call.
        std::mem::forget(told);
        self.queue("an all-reduce of a part", |nccl, comm, stream| {
            // SAFETY: so many numbers of that type lie at the address, and the caller keeps others away from them.
            unsafe { (nccl.all_reduce)(at as _, at as _, count, T::NCCL_TYPE, red_op(op), comm, stream) }
        })
    }

    fn after_launches(&self, stream: &CudaStream) -> Result<()> {
        stream.join(&self.stream).map_err(|error| gpulab::cuda::driver_error("waiting for the launches before", error))
    }

    /// What is launched next on the default stream waits for the calls that were queued in a stream of their own.
    ///
    /// # Errors
    /// [`Error::Driver`].
    pub fn join(&self) -> Result<()> {
        let apart = self.apart.borrow();
        let joined = apart.as_ref().map_or(Ok(()), |apart| self.stream.join(apart));
        joined.map_err(|error| gpulab::cuda::driver_error("waiting for collectives", error))
    }

    fn bind(&self) -> Result<()> {
        let bound = self.stream.context().bind_to_thread();
        bound.map_err(|error| gpulab::cuda::driver_error("choosing the GPU of a rank", error))
    }

    pub(crate) fn alive(&self) -> Result<()> {
        if let Some((_, _, what, fix)) = self.watched.as_ref().and_then(|shared| shared.failed()) {
            return Err(Error::invalid(what, fix));
        }
        match &*self.failed.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(error) => Err(error.clone()),
            None if self.seat.comm().is_null() => Err(Error::invalid("this rank was ended", "run the cell again")),
            None => Ok(()),
        }
    }

    /// Notes the first error for all ranks, and frees the GPU of what waits on it.
    fn fail(&self, error: &Error) {
        let text = error.to_string();
        let (what, fix) = text.rsplit_once("\nnext: ").unwrap_or((&text, "see the error of that rank"));
        let mut failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        failed.get_or_insert_with(|| Error::invalid(format!("rank {} ({}): {what}", self.rank, self.gpu), fix));
        drop(failed);
        self.abort();
    }

    fn abort(&self) {
        let comm = self.seat.take();
        if !comm.is_null() {
            self.nccl.ended_within(vec![Handle(comm)], false);
        }
    }

    /// Queues one call.
    fn queue(&self, name: &'static str, call: impl FnOnce(&Functions, Comm, sys::CUstream) -> c_int) -> Result<()> {
        self.alive()?;
        let (comm, stream) = (self.seat.comm(), self.queue_now()?);
        self.held(name, || call(&self.nccl.functions, comm, stream.cu_stream()))
    }

    /// Makes a call that NCCL may hold on the host until the other ranks make it.
    fn held(&self, name: &'static str, call: impl FnOnce() -> c_int) -> Result<()> {
        let code = self.seat.during(name, call);
        if code != SUCCESS {
            // The watchdog has ended it, and the communicator is gone.
            self.alive()?;
        }
        self.nccl.check(self.seat.comm(), name, code)
    }

    /// Gives what each rank gave, in their order. For ranks that are threads of one process; the host waits for all of them.
    pub(crate) fn exchanged<T: Clone + Send + Sync + 'static>(&self, what: T) -> Result<Vec<T>> {
        let exchange = self.exchange.as_ref().ok_or_else(|| {
            Error::unsupported(
                "the ranks are processes, and this needs the addresses of all GPUs in one",
                "run them as threads, with `nccl.run`; NCCL's collectives do without",
            )
        })?;
        exchange.gather(self.rank, what, &|| self.alive())
    }

    fn peer(&self, rank: usize) -> Result<c_int> {
        match rank < self.size {
            true => Ok(rank as c_int),
            false => Err(Error::invalid(
                format!("there is no rank {rank}: there are {}", self.size),
                format!("name a rank from 0 to {}", self.size - 1),
            )),
        }
    }
}

impl Communicator for GpuRank {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.size
    }

    fn barrier(&self) -> Result<()> {
        let mut one = self.gpu.zeros::<u32>(1)?;
        self.all_reduce(&mut one, Op::Max)?;
        self.synchronize()
    }

    fn split(&self, color: usize) -> Result<GpuRank> {
        let (mut comm, mut size, mut rank) = (std::ptr::null_mut(), 0, 0);
        self.queue("splitting a communicator", |nccl, old, _| {
            // SAFETY: the pointers are to values of their types; no settings are given.
            unsafe { (nccl.comm_split)(old, color as c_int, self.rank as c_int, &raw mut comm, std::ptr::null_mut()) }
        })?;
        // SAFETY: the communicator was made just now, and the pointers are to numbers.
        let code = unsafe {
            (self.nccl.functions.comm_count)(comm, &raw mut size)
                .max((self.nccl.functions.comm_user_rank)(comm, &raw mut rank))
        };
        self.nccl.check(comm, "reading a communicator", code)?;
        let (nccl, failed) = (Arc::clone(&self.nccl), Arc::clone(&self.failed));
        let (gpu, stream, watched) = (self.gpu.clone(), Arc::clone(&self.stream), self.watched.clone());
        let (rank, size, apart) = (rank as usize, size as usize, self.apart.clone());
        let (ended, splits) = (Arc::clone(&self.ended), Arc::clone(&self.splits));
        let number = 1 + splits.fetch_add(1, Ordering::Relaxed);
        let exchange = match &self.exchange {
            None => None,
            // That of the first rank of this colour.
            Some(_) => {
                let all = self.exchanged((color, Arc::new(Exchange::new(size))))?;
                all.into_iter().find(|(theirs, _)| *theirs == color).map(|(_, exchange)| exchange)
            }
        };
        let watchdog = Arc::clone(&self.watchdog);
        Ok(GpuRank {
            nccl,
            // The number by which its process knows it.
            seat: watchdog.seat(comm, self.rank),
            watchdog,
            rank,
            size,
            gpu,
            stream,
            failed,
            apart,
            exchange,
            watched,
            ended,
            splits,
            number,
        })
    }
}

// In each: the guards that cudarc gives beside the addresses order this stream after other uses of the memory, and live until the call
// is queued.
impl<T: NcclElement> Collectives<Buffer<T>> for GpuRank {
    fn all_reduce(&self, data: &mut Buffer<T>, op: Op) -> Result<()> {
        let count = data.len();
        let (mut view, stream) = (data.as_cuda_mut()?, self.queue_now()?);
        let (at, _guard) = view.device_ptr_mut(&stream);
        self.queue("an all-reduce", |nccl, comm, stream| {
            // SAFETY: so many numbers of that type lie at the address, and in place is allowed.
            unsafe { (nccl.all_reduce)(at as _, at as _, count, T::NCCL_TYPE, red_op(op), comm, stream) }
        })
    }

    fn reduce_scatter(&self, data: &Buffer<T>, own: &mut Buffer<T>, op: Op) -> Result<()> {
        let count = own.len();
        same_length("reduce_scatter: the data of all ranks together", count * self.size, data.len())?;
        let (from, mut to, stream) = (data.as_cuda()?, own.as_cuda_mut()?, self.queue_now()?);
        let ((from, _read), (to, _write)) = (from.device_ptr(&stream), to.device_ptr_mut(&stream));
        self.queue("a reduce-scatter", |nccl, comm, stream| {
            // SAFETY: the lengths were compared.
            unsafe { (nccl.reduce_scatter)(from as _, to as _, count, T::NCCL_TYPE, red_op(op), comm, stream) }
        })
    }

    fn all_gather(&self, own: &Buffer<T>, all: &mut Buffer<T>) -> Result<()> {
        let count = own.len();
        same_length("all_gather: room for the data of all ranks", count * self.size, all.len())?;
        let (from, mut to, stream) = (own.as_cuda()?, all.as_cuda_mut()?, self.queue_now()?);
        let ((from, _read), (to, _write)) = (from.device_ptr(&stream), to.device_ptr_mut(&stream));
        self.queue("an all-gather", |nccl, comm, stream| {
            // SAFETY: the lengths were compared.
            unsafe { (nccl.all_gather)(from as _, to as _, count, T::NCCL_TYPE, comm, stream) }
        })
    }

    fn broadcast(&self, data: &mut Buffer<T>, root: usize) -> Result<()> {
        let (count, root) = (data.len(), self.peer(root)?);
        let (mut view, stream) = (data.as_cuda_mut()?, self.queue_now()?);
        let (at, _guard) = view.device_ptr_mut(&stream);
        self.queue("a broadcast", |nccl, comm, stream| {
            // SAFETY: so many numbers of that type lie at the address, and in place is allowed.
            unsafe { (nccl.broadcast)(at as _, at as _, count, T::NCCL_TYPE, root, comm, stream) }
        })
    }

    fn send(&self, data: &Buffer<T>, to: usize) -> Result<()> {
        let (count, to, view) = (data.len(), self.peer(to)?, data.as_cuda()?);
        let stream = self.queue_now()?;
        let (at, _guard) = view.device_ptr(&stream);
        self.queue("a send", |nccl, comm, stream| {
            // SAFETY: so many numbers of that type lie at the address.
            unsafe { (nccl.send)(at as _, count, T::NCCL_TYPE, to, comm, stream) }
        })
    }

    fn recv(&self, data: &mut Buffer<T>, from: usize) -> Result<()> {
        let (count, from, mut view) = (data.len(), self.peer(from)?, data.as_cuda_mut()?);
        let stream = self.queue_now()?;
        let (at, _guard) = view.device_ptr_mut(&stream);
        self.queue("a receive", |nccl, comm, stream| {
            // SAFETY: so many numbers of that type lie at the address.
            unsafe { (nccl.recv)(at as _, count, T::NCCL_TYPE, from, comm, stream) }
        })
    }

    fn send_recv(&self, data: &Buffer<T>, to: usize, received: &mut Buffer<T>, from: usize) -> Result<()> {
        // SAFETY: a group is begun and ended by this thread.
        self.nccl.check(self.seat.comm(), "a group", unsafe { (self.nccl.functions.group_start)() })?;
        let both = self.send(data, to).and_then(|()| self.recv(received, from));
        // SAFETY: as above; it is ended where a call in it has failed as well.
        let ended = self.held("a send and a receive", || unsafe { (self.nccl.functions.group_end)() });
        both.and(ended)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn versions_of_both_forms_are_read() {
        assert_eq!(decode(2804), (2, 8, 4));
        assert_eq!(decode(22803), (2, 28, 3));
    }

    #[test]
    fn a_missing_library_is_an_error_with_the_next_step() {
        let text = Nccl::open(Path::new("/nowhere/libnccl.so.2").to_path_buf()).unwrap_err().to_string();
        assert!(text.contains("NCCL cannot be loaded") && text.contains("nvidia-nccl-cu13"), "{text}");
    }

    #[test]
    fn it_is_loaded_where_it_is_installed_with_all_functions() {
        match Nccl::load() {
            Ok(nccl) => assert!((nccl.version().0, nccl.version().1) >= OLDEST, "{nccl:?}"),
            Err(error) => assert!(error.to_string().contains("\nnext: install NVIDIA's package"), "{error}"),
        }
    }

    /// NCCL and all GPUs; where NCCL is not installed, says so.
    fn world() -> Option<(Arc<Nccl>, Vec<Gpu>)> {
        let gpus = (0..Gpu::count()).map(|at| Gpu::open_index(at).unwrap()).collect();
        Nccl::load().map(|nccl| (Arc::new(nccl), gpus)).inspect_err(|error| println!("SKIPPED: {error}")).ok()
    }

    #[test]
    #[ignore = "needs an NVIDIA GPU"]
    fn all_collectives_are_right_on_as_many_gpus_as_there_are() {
        let Some((nccl, gpus)) = world() else { return };
        let n = gpus.len();
        let run = nccl.run(&gpus, |rank| {
            let me = rank.rank();
            let mut sum = rank.gpu().to_device(&vec![me as f32 + 1.0; 1001])?;
            rank.all_reduce(&mut sum, Op::Sum)?;
            let mut mean = rank.gpu().to_device(&[me as f32])?;
            rank.all_reduce(&mut mean, Op::Avg)?;
            let (mut own, mut all) = (rank.gpu().zeros::<i32>(2)?, rank.gpu().zeros::<i32>(2 * n)?);
            rank.reduce_scatter(&rank.gpu().to_device(&(0..2 * n as i32).collect::<Vec<i32>>())?, &mut own, Op::Sum)?;
            rank.all_gather(&own, &mut all)?;
            let mut from_last = rank.gpu().to_device(&[me as u32; 3])?;
            rank.broadcast(&mut from_last, n - 1)?;
            let mut neighbour = rank.gpu().zeros::<f64>(4)?;
            rank.send_recv(&rank.gpu().to_device(&[me as f64; 4])?, (me + 1) % n, &mut neighbour, (me + n - 1) % n)?;
            rank.barrier()?;
            let pair = rank.split(me / 2)?;
            let mut small = rank.gpu().to_device(&[1.0_f32])?;
            pair.all_reduce(&mut small, Op::Sum)?;
            rank.synchronize()?;
            let sizes = (pair.size(), small.to_host()?[0]);
            Ok((sum.to_host()?, mean.to_host()?, all.to_host()?, from_last.to_host()?, neighbour.to_host()?, sizes))
        });
        for (me, (sum, mean, all, from_last, neighbour, (members, small))) in run.unwrap().into_iter().enumerate() {
            assert!(sum.iter().all(|x| *x == (n * (n + 1) / 2) as f32));
            assert_eq!(mean, [(n - 1) as f32 / 2.0]);
            assert_eq!(all, (0..2 * n as i32).map(|x| x * n as i32).collect::<Vec<i32>>());
            assert_eq!(from_last, [n as u32 - 1; 3]);
            assert_eq!(neighbour, [((me + n - 1) % n) as f64; 4]);
            assert_eq!(members as f32, small);
        }
    }

    /// The first call of a communicator: NCCL waits for the other ranks on the host.
    #[test]
    #[ignore = "needs an NVIDIA GPU"]
    fn a_rank_that_skips_the_first_call_ends_the_wait_and_is_named() {
        let Some((nccl, gpus)) = world() else { return };
        if gpus.len() < 2 {
            return println!("SKIPPED: it takes two GPUs");
        }
        let begin = Instant::now();
        let error = nccl.run(&gpus, |rank| {
            if rank.rank() == 1 {
                // It has something else to do, and comes too late.
                std::thread::sleep(crate::watchdog::LIMIT + Duration::from_secs(4));
            } else {
                let mut x = rank.gpu().zeros::<f32>(1000)?;
                rank.all_reduce(&mut x, Op::Sum)?;
            }
            rank.synchronize()
        });
        let text = error.unwrap_err().to_string();
        println!("after {:.1} s: {text}", begin.elapsed().as_secs_f64());
        assert!(text.contains("rank 0 has waited") && text.contains("for rank 1, which makes no call"), "{text}");
        assert!(begin.elapsed() < crate::watchdog::LIMIT + Duration::from_secs(15), "{:?}", begin.elapsed());
    }

    #[test]
    #[ignore = "needs an NVIDIA GPU"]
    fn a_rank_that_fails_ends_the_others_and_is_named() {
        let Some((nccl, gpus)) = world() else { return };
        let last = gpus.len() - 1;
        let begin = Instant::now();
        let error = nccl.run(&gpus, |rank| {
            if rank.rank() == last {
                return Err(Error::invalid("the loss is NaN", "lower the learning rate"));
            }
            let mut x = rank.gpu().zeros::<f32>(1000)?;
            rank.all_reduce(&mut x, Op::Sum)?;
            rank.synchronize()
        });
        let text = error.unwrap_err().to_string();
        assert!(text.starts_with(&format!("rank {last} (")) && text.contains("the loss is NaN"), "{text}");
        assert!(begin.elapsed() < Duration::from_secs(10), "{:?}", begin.elapsed());
    }
}
