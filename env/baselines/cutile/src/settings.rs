//! What the kernels are compiled with: all settings of a topic, of which the fastest takes part, and their cubins without a GPU.

use crate::kernels::tiles;
use cutile::compile_api::KernelCompiler;
use cutile::cutile_compiler::cuda_tile_runtime_utils::{
    TileirasOptions, compile_bytecode_cached, selected_bytecode_version,
};
use cutile::cutile_compiler::hints::CompileOptions;
use cutile::cutile_compiler::specialization::{SpecializationBits, compute_spec};

/// A topic of the recorder: what is computed, from which arrays.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Topic {
    Softmax,
    Matmul,
    Attention { causal: bool },
}

impl Topic {
    pub const ALL: [Topic; 4] =
        [Topic::Softmax, Topic::Matmul, Topic::Attention { causal: false }, Topic::Attention { causal: true }];

    pub fn of(name: &str) -> Option<Topic> {
        Topic::ALL.into_iter().find(|topic| topic.name() == name)
    }

    /// As `examples/record_tiles` calls it.
    pub fn name(self) -> &'static str {
        match self {
            Topic::Softmax => "softmax",
            Topic::Matmul => "matmul_bf16",
            Topic::Attention { causal: false } => "flash_attention",
            Topic::Attention { causal: true } => "flash_attention_causal",
        }
    }

    /// Rows and columns; m, n and k; heads, tokens and head dimension.
    pub fn recorded_size(self) -> [usize; 3] {
        match self {
            Topic::Softmax => [32_768, 8192, 1],
            Topic::Matmul => [4096; 3],
            Topic::Attention { .. } => [64, 4096, 128],
        }
    }

    /// Sizes that no tile divides, though rows begin at multiples of 16 bytes.
    pub fn awkward_sizes(self) -> Vec<[usize; 3]> {
        match self {
            Topic::Softmax => vec![[37, 1000, 1], [130, 4104, 1]],
            Topic::Matmul => vec![[200, 136, 72], [257, 264, 1000]],
            Topic::Attention { .. } => vec![[3, 77, 128], [2, 300, 128]],
        }
    }
}

/// One way to compile and launch a topic.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    pub topic: Topic,
    /// Rows of a block; m, n and k of a tile; queries and keys of a tile.
    pub tile: [usize; 3],
    /// Blocks that walk over the result's tiles; 0 where each tile is one's. Softmax has always one for each.
    pub blocks: usize,
    /// The hints of an entry; 0 leaves the choice to the compiler.
    pub occupancy: i32,
    pub cluster: i32,
    pub warps: i32,
}

impl Setting {
    pub fn name(&self) -> String {
        let Setting { tile: [a, b, c], blocks, occupancy, cluster, warps, .. } = self;
        let tile = match self.topic {
            Topic::Softmax => format!("rows={a}"),
            Topic::Matmul => format!("tile={a}x{b}x{c} blocks={blocks}"),
            Topic::Attention { .. } => format!("queries={a} keys={b}"),
        };
        format!("{tile} occupancy={occupancy} cluster={cluster} warps={warps}")
    }

    pub fn all(topic: Topic) -> Vec<Setting> {
        let mut all = Vec::new();
        let mut add = |tile: [usize; 3], blocks: usize, (occupancy, cluster, warps): (i32, i32, i32)| {
            all.push(Setting { topic, tile, blocks, occupancy, cluster, warps });
        };
        match topic {
            Topic::Softmax => {
                for rows in [1, 2] {
                    for hints in [(0, 0, 0), (2, 0, 0), (4, 0, 0), (0, 0, 8), (2, 0, 8)] {
                        add([rows, 0, 0], 0, hints);
                    }
                }
            }
            Topic::Matmul => {
                for tile in [[128, 256, 64], [256, 128, 64], [128, 128, 64], [128, 128, 128], [256, 256, 64]] {
                    for hints in [(0, 0, 0), (0, 0, 8), (0, 2, 0)] {
                        // A block for each tile, or one for each multiprocessor of an H200.
                        for blocks in [0, 132] {
                            add(tile, blocks, hints);
                        }
                    }
                }
            }
            Topic::Attention { .. } => {
                for tile in [[128, 128, 0], [128, 64, 0], [64, 64, 0], [256, 64, 0]] {
                    for hints in [(0, 0, 0), (2, 0, 0), (0, 0, 8)] {
                        add(tile, 0, hints);
                    }
                }
            }
        }
        all
    }

    /// The values of the kernel's const generics at this size.
    pub fn generics(&self, [_, columns, head]: [usize; 3]) -> Vec<String> {
        let [a, b, c] = self.tile;
        let values = match self.topic {
            Topic::Softmax => vec![a, columns.next_power_of_two()],
            Topic::Matmul => vec![a, b, c, 8, 1],
            Topic::Attention { causal } => vec![a, b, head, causal.into(), 1, 1, 1],
        };
        values.iter().map(usize::to_string).collect()
    }

    pub fn options(&self) -> CompileOptions {
        let mut options = CompileOptions::default();
        if self.occupancy > 0 {
            options = options.occupancy(self.occupancy);
        }
        if self.cluster > 0 {
            options = options.num_cta_in_cga(self.cluster);
        }
        if self.warps > 0 {
            options = options.num_worker_warps_per_cta(self.warps);
        }
        options
    }

    /// The kernel and its arrays, the result first.
    fn entry(&self, size: [usize; 3]) -> (&'static str, Vec<(&'static str, Vec<usize>)>) {
        let [m, n, k] = size;
        match self.topic {
            Topic::Softmax => ("softmax", ["y", "x"].map(|name| (name, vec![m, n])).to_vec()),
            Topic::Matmul => ("matmul", vec![("c", vec![m, n]), ("a", vec![m, k]), ("b", vec![k, n])]),
            Topic::Attention { .. } => ("attention", ["o", "q", "k", "v"].map(|name| (name, vec![m, n, k])).to_vec()),
        }
    }

    /// Its Tile IR as text, and its cubin for that GPU: by `tileiras`, or from the store of cubins if there is one. No GPU is needed.
    pub fn compile(&self, size: [usize; 3], gpu: &str) -> Result<(String, Vec<u8>), String> {
        let (entry, arrays) = self.entry(size);
        let specs: Vec<(&str, SpecializationBits)> = arrays.iter().map(|(name, shape)| (*name, spec(shape))).collect();
        // As a launch has it: a stride of 1 is known to the compiler, others are not.
        let strides: Vec<(&str, Vec<i32>)> = specs
            .iter()
            .map(|(name, spec)| (*name, spec.stride_one.iter().map(|&one| if one { 1 } else { -1 }).collect()))
            .collect();
        let strides: Vec<(&str, &[i32])> = strides.iter().map(|(name, strides)| (*name, strides.as_slice())).collect();
        let compiled = KernelCompiler::new(tiles::__module_ast_self, "tiles", entry)
            .generics(self.generics(size))
            .strides(&strides)
            .spec_args(&specs)
            .target(gpu)
            .options(self.options())
            .compile()
            .map_err(|error| error.to_string())?;
        let bytecode = compiled.bytecode().map_err(|error| error.to_string())?;
        let version = selected_bytecode_version().map_err(|error| error.to_string())?;
        let options = TileirasOptions::from_compile_options(&self.options());
        let (cubin, _) =
            compile_bytecode_cached(&bytecode, version, gpu, &options).map_err(|error| error.to_string())?;
        Ok((compiled.ir_text(), cubin))
    }
}

/// What the compiler is told of a contiguous array.
fn spec(shape: &[usize]) -> SpecializationBits {
    let shape: Vec<i32> = shape.iter().map(|&x| x as i32).collect();
    let mut strides = vec![1; shape.len()];
    for axis in (1..shape.len()).rev() {
        strides[axis - 1] = strides[axis] * shape[axis];
    }
    compute_spec(0, &shape, &strides, 2)
}
