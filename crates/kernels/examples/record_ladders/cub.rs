//! CUB's sum: its library shares this process's context and default stream.

use gpulab_kernels::run::{Peer, PeerWork, Workload};
use gpulab_kernels::topics::{HostArray, relative_error};
use libloading::Library;

type Open = unsafe extern "C" fn(*const *const f32, i32, i32) -> i32;
type Run = unsafe extern "C" fn(i32) -> i32;
type Take = unsafe extern "C" fn(*mut f32) -> i32;

/// The sum of the job's arrays, which it copies to the GPU.
pub fn open<'a>(cub: &'a Library, job: &Workload<'_>) -> Peer<'a> {
    let arrays: Vec<&[f32]> = job
        .sets
        .iter()
        .map(|set| match &set[0] {
            HostArray::F32(numbers) => numbers.as_slice(),
            other => panic!("a sum of {}", other.dtype()),
        })
        .collect();
    let pointers: Vec<*const f32> = arrays.iter().map(|array| array.as_ptr()).collect();
    // SAFETY: the three functions have these types in `env/baselines/cub.cu`; every array holds so many floats, and
    // `peer_open` keeps none of the pointers.
    let (run, take) = unsafe {
        let open = cub.get::<Open>(b"peer_open").expect("env/baselines/cub.cu has it");
        assert_eq!(open(pointers.as_ptr(), pointers.len() as i32, arrays[0].len() as i32), 0, "CUB has no room");
        let run = cub.get::<Run>(b"peer_run").expect("env/baselines/cub.cu has it");
        (run, cub.get::<Take>(b"peer_result").expect("env/baselines/cub.cu has it"))
    };
    let sum = |set: usize| {
        let mut given = 0.0;
        // SAFETY: as above; `peer_open` has copied the arrays, and the result is one float.
        let done = unsafe { (run(set as i32), take(&mut given)) };
        assert_eq!(done, (0, 0), "CUB does not run");
        Ok(vec![HostArray::F32(vec![given])])
    };
    let error = relative_error(job.exact, sum);
    let queue = move |call: usize| {
        // SAFETY: as above; the arrays were copied by `peer_open`.
        assert_eq!(unsafe { run((call % 1024) as i32) }, 0, "CUB does not run");
        Ok(())
    };
    Peer { name: "CUB".to_string(), error: error.ok(), work: PeerWork::Calls(Box::new(queue)) }
}
