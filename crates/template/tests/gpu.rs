//! The kernel on the GPU. Where there is none, `cargo test` lists this test as ignored, with the reason.

use my_kernels::{Saxpy, reference};

#[test]
#[cfg_attr(no_gpu, ignore = "there is no NVIDIA GPU here; REQUIRE_GPU=1 makes that a failure")]
fn saxpy_equals_the_cpu_at_awkward_sizes() {
    let saxpy = Saxpy::new(0).unwrap();
    for n in [0, 1, 31, 32, 33, 255, 257, 100_003] {
        let x: Vec<f32> = (0..n).map(|i| (i % 97) as f32 - 48.0).collect();
        let mut y: Vec<f32> = (0..n).map(|i| (i % 89) as f32).collect();
        let expected = reference(-3.0, &x, &y);
        saxpy.run(-3.0, &x, &mut y).unwrap();
        assert_eq!(y, expected, "{n} elements");
    }
}

#[test]
#[cfg_attr(no_gpu, ignore = "there is no NVIDIA GPU here; REQUIRE_GPU=1 makes that a failure")]
fn different_lengths_are_refused() {
    let refused = Saxpy::new(0).unwrap().run(1.0, &[1.0], &mut [1.0, 2.0]);
    assert!(refused.unwrap_err().to_string().contains("x has 1 elements, and y has 2"));
}
