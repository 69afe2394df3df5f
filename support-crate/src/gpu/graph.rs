//! Many launches as one: CUDA graphs.

use super::Gpu;
use crate::cuda::CudaGraph;
use crate::error::{Error, Result};
use crate::sim::needs_hardware;
use std::fmt;

/// Launches that were captured once, and are launched together: the driver looks at each of them once, and not each
/// time. Kernels, copies between buffers and fills can be part of it, with the arguments that they had. Buffers must
/// outlive it (a launch says so when one does not).
pub struct Graph {
    graph: CudaGraph,
    name: String,
}

impl Gpu {
    /// Captures what `work` launches on the default stream (on this GPU or a clone of it) into a graph. Nothing runs yet.
    ///
    /// # Errors
    /// What `work` returns. Inside it [`Error::Invalid`] for what cannot be captured: allocating, copying from or to the
    /// host, waiting, timing. [`Error::Invalid`] where nothing was launched; [`Error::Unsupported`] on an Apple GPU and
    /// on a simulated one; [`Error::Driver`].
    pub fn capture(&self, mut work: impl FnMut() -> Result<()>) -> Result<Graph> {
        self.capture_boxed(&mut work)
    }

    fn capture_boxed(&self, work: &mut dyn FnMut() -> Result<()>) -> Result<Graph> {
        match self {
            Gpu::Cuda(gpu) => Ok(Graph { graph: gpu.capture(work)?, name: self.to_string() }),
            Gpu::Metal(_) => Err(Error::Unsupported {
                what: "the Metal backend has no graphs".to_string(),
                fix: "launch the kernels one after the other".to_string(),
            }),
            Gpu::Simulated(_) => Err(needs_hardware(
                "there are no graphs, as each launch ends before the next begins",
                "launch the kernels one after the other: the results are the same; or run this on an NVIDIA GPU",
            )),
        }
    }
}

impl Graph {
    /// Queues all of it on the default stream, and returns at once. `gpu.time(&plan, |_| graph.launch())` times it.
    ///
    /// # Errors
    /// [`Error::Invalid`] when a buffer that it uses was dropped; [`Error::Driver`], also for work launched earlier.
    pub fn launch(&mut self) -> Result<()> {
        self.graph.launch()
    }

    /// Kernels, copies and fills in it.
    pub fn nodes(&self) -> usize {
        self.graph.nodes()
    }
}

impl fmt::Debug for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Graph({} nodes on {})", self.nodes(), self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::launch::LaunchConfig;

    const ADD: &str = r#"extern "C" __global__ void add(float *x, int n) {
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i < n) x[i] += 1.0f;
    }"#;

    #[test]
    fn a_simulated_gpu_has_no_graphs_and_says_what_to_do() {
        let text = Gpu::simulated().unwrap().capture(|| Ok(())).unwrap_err().to_string();
        assert!(text.contains("graphs") && text.contains("\nnext: "), "{text}");
    }

    #[test]
    #[ignore = "needs an NVIDIA GPU"]
    fn a_graph_does_its_work_each_time_and_refuses_what_it_cannot_do() {
        let gpu = Gpu::open_index(0).unwrap();
        let add = gpu.compile(ADD).unwrap().kernel("add").unwrap();
        let (mut x, mut copy) = (gpu.zeros::<f32>(1000).unwrap(), gpu.zeros::<f32>(1000).unwrap());
        let mut graph = gpu
            .capture(|| {
                add.launch(LaunchConfig::for_elements(1000, 256), (&mut x, 1000))?;
                add.launch(LaunchConfig::for_elements(1000, 256), (&mut x, 1000))?;
                copy.copy_from_buffer(&x)
            })
            .unwrap();
        assert_eq!((graph.nodes(), x.to_host().unwrap()[999]), (3, 0.0), "a capture runs nothing");
        for _ in 0..3 {
            graph.launch().unwrap();
        }
        assert_eq!((copy.to_host().unwrap()[0], x.to_host().unwrap()[999]), (6.0, 6.0));
        let refused: [(&str, Result<Graph>); 4] = [
            ("an allocation", gpu.capture(|| gpu.zeros::<f32>(8).map(drop))),
            ("the host", gpu.capture(|| x.to_host().map(drop))),
            ("waiting", gpu.capture(|| gpu.synchronize())),
            ("nothing was launched", gpu.capture(|| Ok(()))),
        ];
        for (text, result) in refused {
            let message = result.unwrap_err().to_string();
            assert!(message.contains(text) && message.contains("\nnext: "), "{message}");
        }
        drop(add);
        graph.launch().unwrap();
        assert_eq!(x.to_host().unwrap()[0], 8.0, "the graph keeps its kernels");
        drop(copy);
        assert!(graph.launch().unwrap_err().to_string().contains("was dropped"));
    }
}
