//! Kernels in Rust, from text to results in the simulator.

use gpulab::prelude::*;

#[test]
fn vector_add_in_rust() {
    let add = r#"
use gpulab_device::*;

#[unsafe(no_mangle)]
pub unsafe extern "ptx-kernel" fn add(a: *const f32, b: *const f32, c: *mut f32, n: u32) {
    let n = n as usize;
    // SAFETY: a launch in one dimension with buffers of n elements.
    let (a, b, mut c) = unsafe { (Slice::new(a, n), Slice::new(b, n), DisjointSlice::new(c, n)) };
    let i = index_1d();
    if let Some(c) = c.own(i) {
        *c = a[i.get()] + b[i.get()];
    }
}"#;
    let gpu = Gpu::simulated().unwrap();
    let module = gpu.compile(Source::rust(add)).unwrap_or_else(|e| panic!("{e}"));
    println!("{}", module.ptx().unwrap());
    let kernel = module.kernel("add").unwrap();
    let n = 1001;
    let a = gpu.to_device(&(0..n).map(|i| i as f32).collect::<Vec<_>>()).unwrap();
    let mut c = gpu.poison::<f32>(n).unwrap();
    let config = LaunchConfig::for_elements(n, 256);
    kernel.launch(config, (&a, &a, &mut c, n as u32)).unwrap();
    assert!(c.to_host().unwrap().iter().enumerate().all(|(i, &x)| x == 2.0 * i as f32));
}
