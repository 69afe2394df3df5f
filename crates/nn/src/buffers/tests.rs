use super::*;
use candle_core::{Module, Var};

const SQUARE: &str = r#"extern "C" __global__ void square(const float *x, float *y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) { y[i] = x[i] * x[i]; }
}
extern "C" __global__ void square_backward(const float *x, const float *dy, float *dx, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) { dx[i] = 2.0f * x[i] * dy[i]; }
}"#;

fn squares(gpu: &Gpu) -> KernelOp {
    KernelOp::new(gpu, SQUARE, "square").unwrap().with_backward(SQUARE, "square_backward").unwrap()
}

fn matrix(device: &Device) -> Tensor {
    Tensor::new(&[[1.0_f32, -2.0, 3.0], [4.0, 5.0, -6.0]], device).unwrap()
}

/// The refusals that need no GPU: what is wrong with the tensor is said before where it is.
#[test]
fn what_cannot_be_lent_is_refused_by_its_reason() {
    let (gpu, x) = (Gpu::simulated().unwrap(), matrix(&Device::Cpu));
    let refused = as_buffer::<f64>(&gpu, &x).unwrap_err();
    assert_eq!(refused, Error::TensorType { expected: "f64".to_string(), given: "f32".to_string() });
    assert_eq!(
        refused.to_string(),
        "the tensor holds f32, and f64 is expected\n\
         next: convert it (`tensor.to_dtype(DType::…)?`), or name the type that it holds"
    );
    let refused = as_buffer::<f32>(&gpu, &x.t().unwrap()).unwrap_err();
    assert_eq!(refused, Error::NotContiguous { shape: vec![3, 2], strides: vec![1, 3] });
    assert_eq!(
        refused.to_string(),
        "a tensor of the shape [3, 2] and the strides [1, 3] is not contiguous: its numbers do not lie one after the other, \
         as a kernel expects them\nnext: copy it into order (`tensor.contiguous()?`)"
    );
    let refused = as_buffer::<f32>(&gpu, &x).unwrap_err();
    assert!(
        matches!(&refused, Error::DeviceMismatch { found, .. } if found == "the CPU, as candle's tensor"),
        "{refused}"
    );
    assert!(refused.to_string().contains("\nnext: copy the data"), "{refused}");
    assert!(matches!(gpu_of(&Device::Cpu), Err(Error::Unsupported { .. })));
}

#[test]
fn a_buffer_becomes_a_tensor_only_on_its_own_device_and_of_its_own_size() {
    let gpu = Gpu::simulated().unwrap();
    let refused = into_tensor::<f32>(gpu.zeros(6).unwrap(), (2, 4), &Device::Cpu).unwrap_err();
    assert!(matches!(refused, Error::LengthMismatch { expected: 8, given: 6, .. }), "{refused}");
    let refused = into_tensor::<f32>(gpu.zeros(6).unwrap(), (2, 3), &Device::Cpu).unwrap_err();
    assert!(matches!(refused, Error::DeviceMismatch { .. }), "{refused}");
}

#[cfg(not(target_os = "macos"))] // its kernels are compiled, and there is no NVRTC for macOS
mod simulated {
    use super::*;

    #[test]
    fn a_kernel_is_a_layer_of_a_model_that_can_be_trained() {
        let square = squares(&Gpu::simulated().unwrap());
        let weight = Var::from_tensor(&matrix(&Device::Cpu)).unwrap();
        let linear = candle_nn::Linear::new(weight.as_tensor().clone(), None);
        let model = candle_nn::seq().add(linear).add(square).add_fn(|y| y.sum_all());
        let x = Tensor::new(&[[1.0_f32, 0.5, 2.0], [0.0, 1.0, -1.0]], &Device::Cpu).unwrap();
        let loss = model.forward(&x).unwrap();

        // The same with candle's own operators.
        let own = x.matmul(&weight.t().unwrap()).unwrap().sqr().unwrap().sum_all().unwrap();
        assert_eq!(loss.to_scalar::<f32>().unwrap(), own.to_scalar::<f32>().unwrap());
        let gradient = |loss: &Tensor| loss.backward().unwrap().get(&weight).unwrap().to_vec2::<f32>().unwrap();
        assert_eq!(gradient(&loss), gradient(&own));
    }

    #[test]
    fn a_part_of_a_tensor_is_read_where_it_begins() {
        let square = squares(&Gpu::simulated().unwrap());
        let second = matrix(&Device::Cpu).narrow(0, 1, 1).unwrap();
        assert_eq!(second.apply_op1(square.clone()).unwrap().to_vec2::<f32>().unwrap(), [[16.0, 25.0, 36.0]]);
        // As a layer it copies what is not contiguous; as an operator it says so.
        let turned = matrix(&Device::Cpu).t().unwrap();
        assert_eq!(turned.apply(&square).unwrap().to_vec2::<f32>().unwrap(), [[1.0, 16.0], [4.0, 25.0], [9.0, 36.0]]);
        let refused = Error::from(turned.apply_op1(square.clone()).unwrap_err());
        assert_eq!(refused, Error::NotContiguous { shape: vec![3, 2], strides: vec![1, 3] });
        let doubles = turned.contiguous().unwrap().to_dtype(DType::F64).unwrap();
        let refused = Error::from(doubles.apply_op1(square).unwrap_err());
        assert_eq!(refused, Error::TensorType { expected: "f32".to_string(), given: "f64".to_string() });
    }

    #[test]
    fn errors_of_the_kernel_come_through_candle_as_they_are() {
        let gpu = Gpu::simulated().unwrap();
        let once = KernelOp::new(&gpu, SQUARE, "square").unwrap();
        let x = Var::from_tensor(&matrix(&Device::Cpu)).unwrap();
        let y = x.apply_op1(once).unwrap().sum_all().unwrap();
        assert!(matches!(Error::from(y.backward().unwrap_err()), Error::Unsupported { .. }));
        let unguarded = SQUARE.replace("if (i < n)", "");
        let wrong = KernelOp::new(&gpu, &unguarded, "square").unwrap();
        let error = Error::from(x.as_tensor().apply(&wrong).unwrap_err());
        assert!(matches!(&error, Error::Mistakes { kernel, .. } if kernel == "square"), "{error}");
        assert!(matches!(KernelOp::new(&gpu, SQUARE, "cube"), Err(Error::NoSuchKernel { .. })));
    }
}

/// Where candle is built with CUDA: `make test-gpu ARGS="-p gpulab-nn"`.
#[cfg(gpulab_cuda)]
mod on_a_gpu {
    use super::*;
    use gpulab::cudarc::driver::DevicePtr;

    /// Takes long enough for a mistake in the order to show.
    const SLOW: &str = r#"extern "C" __global__ void slow(const float *x, float *y, int n) {
    long long end = clock64() + 200000000LL;
    while (clock64() < end) { }
    for (int i = threadIdx.x; i < n; i += blockDim.x) { y[i] = x[i] + 1.0f; }
}"#;

    fn opened() -> (Device, Gpu) {
        let device = Device::new_cuda(0).unwrap();
        let gpu = gpu_of(&device).unwrap();
        (device, gpu)
    }

    fn address<T: Element>(buffer: &Buffer<T>) -> u64 {
        let stream = buffer.gpu().cuda_stream().unwrap();
        buffer.as_cuda().unwrap().device_ptr(&stream).0
    }

    #[test]
    #[ignore = "needs an NVIDIA GPU"]
    fn a_tensor_goes_into_a_launch_and_a_buffer_becomes_a_tensor_without_a_copy() {
        let (device, gpu) = opened();
        let kernel = gpu.compile(SQUARE).unwrap().kernel("square").unwrap();
        let x = matrix(&device);
        let lent = as_buffer::<f32>(&gpu, &x).unwrap();
        assert_eq!(lent.to_host().unwrap(), [1.0, -2.0, 3.0, 4.0, 5.0, -6.0]);
        let mut y = gpu.poison::<f32>(6).unwrap();
        kernel.launch(LaunchConfig::for_elements(6, 256), (&*lent, &mut y, 6_i32)).unwrap();
        let (at_x, at_y) = (address(&lent), address(&y));
        drop(lent);
        let y = into_tensor::<f32>(y, (2, 3), &device).unwrap();
        assert_eq!(address(&as_buffer::<f32>(&gpu, &x).unwrap()), at_x);
        assert_eq!(address(&as_buffer::<f32>(&gpu, &y).unwrap()), at_y);
        // Both are whole, and candle's own to use and to free.
        let sum = (&x + &y).unwrap();
        assert_eq!(sum.to_vec2::<f32>().unwrap(), [[2.0, 2.0, 12.0], [20.0, 30.0, 30.0]]);
        drop((x, y));
        gpu.synchronize().unwrap();
        // A part begins where its first number lies.
        let part = sum.narrow(0, 1, 1).unwrap();
        assert_eq!(as_buffer::<f32>(&gpu, &part).unwrap().to_host().unwrap(), [20.0, 30.0, 30.0]);
        let halves = sum.to_dtype(DType::BF16).unwrap();
        let bits = as_buffer::<bf16>(&gpu, &halves).unwrap().to_host().unwrap();
        assert_eq!(bits[0], bf16::from_f32(2.0).to_bits());
        let back = into_tensor::<bf16>(gpu.to_device(&bits).unwrap(), 6, &device).unwrap();
        assert_eq!(back.dtype(), DType::BF16);
    }

    #[test]
    #[ignore = "needs an NVIDIA GPU"]
    fn each_side_waits_for_the_other_on_any_stream() {
        let (device, gpu) = opened();
        let n = 1 << 20;
        let slow = gpu.compile(SLOW).unwrap().kernel("slow").unwrap();
        let (stream, config) = (gpu.new_stream().unwrap(), LaunchConfig::new(1, 256));
        // candle's kernels, then a slow one of ours on a stream of its own, then candle's again.
        let x = (Tensor::zeros(n, DType::F32, &device).unwrap() + 2.0).unwrap();
        let mut y = gpu.poison::<f32>(n).unwrap();
        let lent = as_buffer::<f32>(&gpu, &x).unwrap();
        slow.launch_on(&stream, config, (&*lent, &mut y, n as i32)).unwrap();
        drop(lent);
        // Freed while the slow kernel may still read it; candle's stream waits.
        drop(x);
        let other = (Tensor::zeros(n, DType::F32, &device).unwrap() - 7.0).unwrap();
        let y = into_tensor::<f32>(y, n, &device).unwrap();
        assert!((&y * 1.0).unwrap().to_vec1::<f32>().unwrap().iter().all(|y| *y == 3.0));
        assert_eq!(other.to_vec1::<f32>().unwrap()[0], -7.0);
    }

    #[test]
    #[ignore = "needs an NVIDIA GPU"]
    fn memory_of_another_context_is_refused_and_stays_whole() {
        let (device, gpu) = opened();
        let (another, x) = (Gpu::open_index(0).unwrap(), matrix(&device));
        assert!(matches!(as_buffer::<f32>(&another, &x), Err(Error::DeviceMismatch { .. })));
        assert!(matches!(as_buffer::<f32>(&gpu, &matrix(&Device::Cpu)), Err(Error::DeviceMismatch { .. })));
        let foreign = another.zeros::<f32>(6).unwrap();
        assert!(matches!(into_tensor::<f32>(foreign, 6, &device), Err(Error::DeviceMismatch { .. })));
        assert_eq!(x.to_vec2::<f32>().unwrap(), matrix(&Device::Cpu).to_vec2::<f32>().unwrap());
    }

    #[test]
    #[ignore = "needs an NVIDIA GPU"]
    fn a_kernel_inside_a_model_computes_as_candles_own_operator() {
        let (device, gpu) = opened();
        let square = squares(&gpu);
        let weight = Var::from_tensor(&matrix(&device)).unwrap();
        let own = weight.sqr().unwrap().sum_all().unwrap();
        let loss = weight.as_tensor().apply(&square).unwrap().sum_all().unwrap();
        assert_eq!(loss.to_scalar::<f32>().unwrap(), own.to_scalar::<f32>().unwrap());
        let gradient = |loss: &Tensor| loss.backward().unwrap().get(&weight).unwrap().to_vec2::<f32>().unwrap();
        assert_eq!(gradient(&loss), gradient(&own));
        let refused = Error::from(matrix(&Device::Cpu).apply(&square).unwrap_err());
        assert!(matches!(refused, Error::DeviceMismatch { .. }), "{refused}");
    }
}
