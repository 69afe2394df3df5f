//! The table of the course's kernels: constants, blocks and tiles of each.

use super::{Leaves, PLAIN, Rung, WHOLE_ROW};
use gpulab::error::{Error, Result};

/// A reduction whose blocks leave partial sums.
const PARTIALS: Rung = Rung { kernel: "reduce", leaves: Leaves::Partials, ..PLAIN };

/// A reduction whose blocks walk over the array; the constants are the best of those tried on an H200.
const WALKING: Rung = Rung {
    defines: &[("THREADS", 512), ("VECTORS", 4), ("BLOCKS", 4)],
    block: (512, 1),
    tile: (4 * 512 * 4, 1),
    blocks_per_sm: 4,
    ..PARTIALS
};

/// What the rungs of the bf16 matmul have in common from the second on: a tile of 128 × 256 a block. A table of Rust has
/// no sums of strings, so each rung lists its constants; they are the best of those tried on an H200.
const BF16: Rung = Rung { kernel: "matmul_bf16", tile: (256, 128), needs: (8, 0), ..PLAIN };

/// Stages of 16 KiB of a and 32 KiB of b in shared memory, without padding.
const fn stages(count: u32) -> u32 {
    count * (128 + 256) * 64 * 2
}

/// Two tiles of c of 64 × 64 for each of the two warpgroups that multiply.
const C_TILES: u32 = 2 * 2 * 64 * 64 * 2;

/// From here on Hopper alone; two warpgroups multiply.
const WGMMA: Rung = Rung {
    defines: &[("TILE_M", 128), ("TILE_N", 256), ("TILE_K", 64), ("STAGES", 4)],
    needs: (9, 0),
    only: true,
    ..BF16
};

/// A third warpgroup fetches; two barriers of 8 bytes a stage.
const SPECIALISED: Rung = Rung { block: (384, 1), shared_bytes: stages(4) + 4 * 2 * 8, ..WGMMA };

/// Of `matmul_bf16/10_cluster`.
const CLUSTER: &[(&str, u32)] =
    &[("TILE_M", 128), ("TILE_N", 256), ("TILE_K", 64), ("STAGES", 4), ("GROUP", 8), ("C_BUFFERS", 2), ("CLUSTER", 2)];

/// A matrix of few bits times a vector: a warp for each row. Tiles count the lanes of that, whoever takes the rows.
const GEMV: Rung =
    Rung { kernel: "quantized_gemv", defines: &[("BITS", 4), ("GROUP", 128)], tile: (8 * 32, 1), ..PLAIN };

/// The same on the tensor cores: a block for 16 · TILES rows. The constants are the best of those tried on an H200.
const GEMV_TENSOR: Rung = Rung {
    defines: &[("BITS", 4), ("GROUP", 128), ("WARPS", 16), ("DEPTH", 1), ("TILES", 4)],
    block: (16 * 32, 1),
    tile: (4 * 16 * 32, 1),
    needs: (8, 0),
    ..GEMV
};

/// The same in whole numbers.
const GEMV_WHOLE: Rung = Rung {
    defines: &[("BITS", 4), ("GROUP", 128), ("WARPS", 16), ("DEPTH", 1), ("TILES", 2), ("BLOCKS", 2)],
    tile: (2 * 16 * 32, 1),
    ..GEMV_TENSOR
};

/// A matrix of few bits times up to 64 vectors; two blocks share 128 rows of it, and each finishes half of them.
const BATCH: Rung = Rung {
    kernel: "quantized_matmul",
    defines: &[("BATCH", 64), ("GROUP", 128), ("WARPS", 8), ("TILES", 1), ("STAGES", 4), ("CLUSTER", 2), ("BLOCKS", 1)],
    tile: (64, 64),
    shared_bytes: 4 * (8 * 1024 + 64 * 256),
    needs: (8, 0),
    ..PLAIN
};

/// Tiles of 128 × 128, a thread computes 8 × 8.
const MATMUL_8_BY_8: Rung = Rung {
    kernel: "matmul",
    defines: &[("TILE_M", 128), ("TILE_N", 128), ("TILE_K", 8), ("ROWS", 8), ("COLUMNS", 8)],
    tile: (128, 128),
    ..PLAIN
};

/// Tiles of 128 × 256, a thread computes 8 × 16.
const MATMUL_8_BY_16: Rung = Rung {
    kernel: "matmul",
    defines: &[("TILE_M", 128), ("TILE_N", 256), ("TILE_K", 16), ("ROWS", 8), ("COLUMNS", 16), ("STAGES", 3)],
    tile: (256, 128),
    shared_bytes: stages_f32(3, 128, 256, 16),
    needs: (8, 0),
    ..PLAIN
};

/// Tiles of 64 × 128, a thread computes 8 × 8, and three blocks share a multiprocessor.
const MATMUL_AHEAD: Rung = Rung {
    kernel: "matmul",
    defines: &[
        ("TILE_M", 64),
        ("TILE_N", 128),
        ("TILE_K", 16),
        ("ROWS", 8),
        ("COLUMNS", 8),
        ("STAGES", 3),
        ("BLOCKS", 3),
        ("MAX_BLOCKS", 1024),
    ],
    block: (128, 1),
    tile: (128, 64),
    shared_bytes: stages_f32(3, 64, 128, 16),
    needs: (8, 0),
    ..PLAIN
};

/// Tiles of 128 × 256 again, with read-ahead: a block fills a multiprocessor.
const MATMUL_LARGE: Rung = Rung {
    kernel: "matmul",
    defines: &[
        ("TILE_M", 128),
        ("TILE_N", 256),
        ("TILE_K", 8),
        ("ROWS", 8),
        ("COLUMNS", 16),
        ("STAGES", 4),
        ("BLOCKS", 1),
        ("MAX_BLOCKS", 1024),
    ],
    tile: (256, 128),
    shared_bytes: stages_f32(4, 128, 256, 8),
    needs: (8, 0),
    blocks_per_sm: 1,
    splits_tiles: true,
    ..PLAIN
};

/// Bytes of so many stages, each a transposed tile of a, whose rows are 4 longer, and a tile of b.
const fn stages_f32(count: u32, tile_m: u32, tile_n: u32, tile_k: u32) -> u32 {
    count * tile_k * (tile_m + 4 + tile_n) * 4
}

/// A lookup of which a block takes ROWS rows, whatever their width; its tile counts 32 elements of each. The constants are
/// the best of those tried on an H200.
const LOOKUP: Rung =
    Rung { kernel: "embedding", defines: &[("ROWS", 4)], block: (4 * 32, 1), tile: (4 * 32, 1), ..PLAIN };

/// A row of a matrix a block.
const ROW: Rung = Rung { tile: (WHOLE_ROW, 1), ..PLAIN };

/// The sum with the residual, normed.
const RESIDUAL: Rung = Rung { kernel: "residual_rms_norm", defines: &[("THREADS", 512)], block: (512, 1), ..ROW };

/// A row of a bf16 table a block; the constants are the best of those tried on an H200.
const BF16_ROW: Rung = Rung { defines: &[("THREADS", 256)], needs: (8, 0), ..ROW };

/// The block holds its row in registers: 8192 numbers.
const HELD_ROW: Rung = Rung { defines: &[("THREADS", 256), ("VECTORS", 4)], ..BF16_ROW };

/// The block is as long as its row: four eights a thread.
const LONG_ROW: Rung = Rung { defines: &[("VECTORS", 4)], block: (1024, 1), each_thread: 4 * 8, ..BF16_ROW };

/// A thread block for each row of blocks of 32 × 32, and for 64 columns.
const BLOCK_SPARSE: Rung = Rung {
    kernel: "block_sparse",
    defines: &[("SIDE", 32), ("TILE_N", 64)],
    block: (128, 1),
    tile: (64, 32),
    needs: (8, 0),
    ..PLAIN
};

/// 64 × 64 of the result a thread block.
const TWO_FOUR: Rung = Rung { kernel: "two_four", block: (128, 1), tile: (64, 64), needs: (8, 0), ..PLAIN };

/// Every kernel of the course, in reading order. A test compares it with the folder.
pub const RUNGS: &[Rung] = &[
    Rung { path: "block_sparse/01_tensor_cores", ..BLOCK_SPARSE },
    Rung {
        path: "block_sparse/02_async_copies",
        defines: &[("SIDE", 32), ("TILE_N", 64), ("STAGES", 3)],
        ..BLOCK_SPARSE
    },
    Rung { path: "embedding/01_one_thread_each", kernel: "embedding", ..PLAIN },
    Rung { path: "embedding/02_one_warp_a_row", ..LOOKUP },
    Rung { path: "embedding/03_four_at_once", ..LOOKUP },
    Rung {
        path: "embedding/04_rows_in_flight",
        defines: &[("WARPS", 4), ("EACH", 4), ("ROWS", 4 * 4)],
        tile: (4 * 4 * 32, 1),
        ..LOOKUP
    },
    Rung {
        path: "embedding/05_tiles_of_the_result",
        defines: &[("THREADS", 256), ("EACH", 4)],
        block: (256, 1),
        tile: (4 * 4 * 256, 1),
        ..LOOKUP
    },
    FLASH_128[0],
    FLASH_128[1],
    FLASH_128[2],
    FLASH_128[3],
    FLASH_128[4],
    FLASH_128[5],
    FLASH_128[6],
    FLASH_128[7],
    FLASH_128[8],
    FLASH_128[9],
    BACKWARD_128[0],
    BACKWARD_128[1],
    BACKWARD_128[2],
    BACKWARD_128[3],
    BACKWARD_128[4],
    BACKWARD_128[5],
    Rung { path: "layer_norm/01_two_passes", kernel: "layer_norm", ..BF16_ROW },
    Rung { path: "layer_norm/02_welford", kernel: "layer_norm", ..BF16_ROW },
    Rung { path: "layer_norm/03_eight_at_once", kernel: "layer_norm", ..BF16_ROW },
    Rung { path: "layer_norm/04_registers", kernel: "layer_norm", ..HELD_ROW },
    Rung { path: "layer_norm/05_block_as_long_as_row", kernel: "layer_norm", ..LONG_ROW },
    Rung { path: "matmul/01_naive", kernel: "matmul", block: (32, 8), tile: (32, 8), ..PLAIN },
    Rung {
        path: "matmul/02_tiled",
        kernel: "matmul",
        defines: &[("TILE", 32)],
        block: (32, 32),
        tile: (32, 32),
        ..PLAIN
    },
    Rung {
        path: "matmul/03_register_column",
        kernel: "matmul",
        defines: &[("TILE_M", 64), ("TILE_N", 64), ("TILE_K", 8), ("ROWS", 8)],
        block: (512, 1),
        tile: (64, 64),
        ..PLAIN
    },
    Rung { path: "matmul/04_register_tile", ..MATMUL_8_BY_8 },
    Rung { path: "matmul/05_transposed", ..MATMUL_8_BY_8 },
    Rung { path: "matmul/06_warp_tile", ..MATMUL_8_BY_8 },
    Rung {
        path: "matmul/07_async_copies",
        defines: &[("TILE_M", 128), ("TILE_N", 128), ("TILE_K", 8), ("ROWS", 8), ("COLUMNS", 8), ("STAGES", 4)],
        needs: (8, 0),
        ..MATMUL_8_BY_8
    },
    Rung { path: "matmul/08_wide_tile", ..MATMUL_8_BY_16 },
    Rung { path: "matmul/09_operand_reuse", ..MATMUL_8_BY_16 },
    Rung { path: "matmul/10_read_ahead", ..MATMUL_AHEAD },
    Rung { path: "matmul/11_persistent", blocks_per_sm: 3, ..MATMUL_AHEAD },
    Rung { path: "matmul/12_stream_k", blocks_per_sm: 3, splits_tiles: true, ..MATMUL_AHEAD },
    Rung { path: "matmul/13_large_tile", ..MATMUL_LARGE },
    Rung { path: "matmul_bf16/01_wmma", block: (32, 1), tile: (16, 16), ..BF16 },
    Rung {
        path: "matmul_bf16/02_block_tile",
        defines: &[("TILE_M", 128), ("TILE_N", 256), ("TILE_K", 32), ("WARP_M", 64), ("WARP_N", 64)],
        ..BF16
    },
    Rung {
        path: "matmul_bf16/03_async_copies",
        defines: &[("TILE_M", 128), ("TILE_N", 256), ("TILE_K", 32), ("WARP_M", 64), ("WARP_N", 64), ("STAGES", 4)],
        // Rows are 8 numbers longer than the tile; and 8 warps stage 16 × 16 sums each.
        shared_bytes: 4 * (128 * (32 + 8) + 32 * (256 + 8)) * 2 + 8 * 16 * 16 * 4,
        ..BF16
    },
    Rung {
        path: "matmul_bf16/04_swizzle",
        defines: &[("TILE_M", 128), ("TILE_N", 256), ("TILE_K", 64), ("WARP_M", 64), ("WARP_N", 64), ("STAGES", 4)],
        shared_bytes: stages(4),
        ..BF16
    },
    Rung { path: "matmul_bf16/05_wgmma", shared_bytes: stages(4), ..WGMMA },
    Rung { path: "matmul_bf16/06_tma", shared_bytes: stages(4) + 4 * 8, ..WGMMA },
    Rung { path: "matmul_bf16/07_warp_specialised", ..SPECIALISED },
    Rung {
        path: "matmul_bf16/08_persistent",
        defines: &[("TILE_M", 128), ("TILE_N", 256), ("TILE_K", 64), ("STAGES", 4), ("GROUP", 16)],
        blocks_per_sm: 1,
        ..SPECIALISED
    },
    Rung {
        path: "matmul_bf16/09_tma_store",
        defines: &[("TILE_M", 128), ("TILE_N", 256), ("TILE_K", 64), ("STAGES", 4), ("GROUP", 16), ("C_BUFFERS", 2)],
        blocks_per_sm: 1,
        shared_bytes: SPECIALISED.shared_bytes + C_TILES,
        ..SPECIALISED
    },
    Rung {
        path: "matmul_bf16/10_cluster",
        defines: CLUSTER,
        blocks_per_sm: 1,
        shared_bytes: SPECIALISED.shared_bytes + C_TILES,
        cluster: 2,
        ..SPECIALISED
    },
    Rung { path: "quantized_gemv/01_thread_a_row", block: (64, 1), tile: (64 * 32, 1), ..GEMV },
    Rung { path: "quantized_gemv/02_warp_a_row", ..GEMV },
    Rung {
        path: "quantized_gemv/03_several_rows",
        defines: &[("BITS", 4), ("GROUP", 128), ("ROWS", 4)],
        tile: (8 * 4 * 32, 1),
        ..GEMV
    },
    Rung { path: "quantized_gemv/04_tensor_cores", ..GEMV_TENSOR },
    Rung { path: "quantized_gemv/05_whole_numbers", ..GEMV_WHOLE },
    Rung { path: "quantized_gemv/06_early_start", needs: (9, 0), starts_early: true, ..GEMV_WHOLE },
    Rung {
        path: "quantized_matmul/01_fragments",
        defines: &[("BATCH", 64), ("GROUP", 128), ("WARPS", 4)],
        block: (128, 1),
        tile: (64, 64),
        shared_bytes: 0,
        ..BATCH
    },
    Rung {
        path: "quantized_matmul/02_ring",
        defines: &[("BATCH", 64), ("GROUP", 128), ("WARPS", 4), ("TILES", 1), ("STAGES", 4), ("BLOCKS", 1)],
        block: (128, 1),
        shared_bytes: 4 * (4 * 1024 + 64 * 256),
        ..BATCH
    },
    Rung { path: "quantized_matmul/03_split_k", needs: (9, 0), ..BATCH },
    Rung { path: "quantized_matmul/04_wgmma", needs: (9, 0), only: true, ..BATCH },
    Rung { path: "quantized_matmul/05_early_start", needs: (9, 0), only: true, starts_early: true, ..BATCH },
    Rung {
        path: "quantized_matmul/06_registers",
        defines: &[
            ("BATCH", 64),
            ("GROUP", 128),
            ("WARPS", 16),
            ("TILES", 2),
            ("DEPTH", 2),
            ("SPLIT", 4),
            ("SLICE", 8),
            ("CHUNKS", 1),
            ("CLUSTER", 2),
            ("BLOCKS", 1),
        ],
        block: (512, 1),
        shared_bytes: 8 * 64 * 264,
        needs: (9, 0),
        starts_early: true,
        ..BATCH
    },
    Rung {
        path: "quantized_matmul/07_warp_specialised",
        defines: &[
            ("BATCH", 64),
            ("GROUP", 128),
            ("WARPS", 8),
            ("TILES", 1),
            ("STEPS", 2),
            ("STAGES", 4),
            ("TURN", 4),
            ("SPLIT", 1),
            ("CLUSTER", 2),
            ("BLOCKS", 1),
        ],
        block: (384, 1),
        shared_bytes: 4 * (2 * 64 * 256 + 8 * 2 * 1024) + 16 * 256 * 4 + 64,
        needs: (9, 0),
        only: true,
        starts_early: true,
        ..BATCH
    },
    Rung { path: "reduction/01_one_atomic_each", kernel: "reduce", leaves: Leaves::Added, ..PLAIN },
    Rung { path: "reduction/02_tree", defines: &[("THREADS", 256)], ..PARTIALS },
    Rung { path: "reduction/03_whole_warps", defines: &[("THREADS", 256)], ..PARTIALS },
    Rung { path: "reduction/04_no_conflicts", defines: &[("THREADS", 256)], ..PARTIALS },
    Rung { path: "reduction/05_add_while_loading", defines: &[("THREADS", 256)], tile: (512, 1), ..PARTIALS },
    Rung { path: "reduction/06_warp_shuffles", defines: &[("THREADS", 256)], tile: (512, 1), ..PARTIALS },
    Rung { path: "reduction/07_grid_stride", ..WALKING },
    Rung { path: "reduction/08_last_block", leaves: Leaves::Result, ..WALKING },
    Rung {
        path: "reduction/09_flags",
        defines: &[("THREADS", 512), ("VECTORS", 4), ("BLOCKS", 4), ("MOST_BLOCKS", 4096)],
        leaves: Leaves::Result,
        ..WALKING
    },
    Rung { path: "residual_rms_norm/01_row_a_block", ..RESIDUAL },
    Rung { path: "residual_rms_norm/02_sixteen_bytes", ..RESIDUAL },
    Rung { path: "residual_rms_norm/03_in_registers", defines: &[("THREADS", 512), ("EACH", 2)], ..RESIDUAL },
    Rung { path: "rms_norm/01_block_a_row", kernel: "rms_norm", ..BF16_ROW },
    Rung { path: "rms_norm/02_eight_at_once", kernel: "rms_norm", ..BF16_ROW },
    Rung { path: "rms_norm/03_registers", kernel: "rms_norm", ..HELD_ROW },
    Rung { path: "rms_norm/04_block_as_long_as_row", kernel: "rms_norm", ..LONG_ROW },
    Rung { path: "rope/01_pair_a_thread", kernel: "rope", ..ROW },
    Rung {
        path: "rope/02_eight_pairs",
        kernel: "rope",
        defines: &[("THREADS", 512), ("BLOCKS", 2)],
        block: (512, 1),
        ..ROW
    },
    Rung {
        path: "softmax/01_thread_a_row",
        kernel: "softmax",
        block: (64, 1),
        tile: (WHOLE_ROW, 64),
        defines: &[],
        ..BF16_ROW
    },
    Rung { path: "softmax/02_block_a_row", kernel: "softmax", ..BF16_ROW },
    Rung { path: "softmax/03_online", kernel: "softmax", ..BF16_ROW },
    Rung { path: "softmax/04_eight_at_once", kernel: "softmax", ..BF16_ROW },
    Rung { path: "softmax/05_registers", kernel: "softmax", ..HELD_ROW },
    Rung { path: "softmax/06_block_as_long_as_row", kernel: "softmax", ..LONG_ROW },
    Rung { path: "spmm/01_warp_a_row", kernel: "spmm", ..PLAIN },
    Rung { path: "spmm/02_columns_in_registers", kernel: "spmm", defines: &[("COLUMNS", 4)], ..PLAIN },
    Rung { path: "spmm/03_vector_loads", kernel: "spmm", ..PLAIN },
    Rung { path: "spmv/01_thread_a_row", kernel: "spmv", ..PLAIN },
    Rung { path: "spmv/02_warp_a_row", kernel: "spmv", ..PLAIN },
    Rung {
        path: "spmv/03_merge_path",
        kernel: "spmv",
        defines: &[("THREADS", 128), ("ITEMS", 7)],
        block: (128, 1),
        tile: (128 * 7, 1),
        leaves: Leaves::Added,
        ..PLAIN
    },
    Rung { path: "spmv/04_split_rows", kernel: "spmv", defines: &[("LIMIT", 512)], leaves: Leaves::Added, ..PLAIN },
    Rung { path: "two_four/01_expanded", ..TWO_FOUR },
    Rung { path: "two_four/02_sparse_tensor_cores", ..TWO_FOUR },
    Rung {
        path: "two_four/03_warpgroups",
        defines: &[
            ("TILE_M", 128),
            ("TILE_N", 256),
            ("TILE_K", 128),
            ("STAGES", 2),
            ("GROUP", 8),
            ("C_BUFFERS", 2),
            ("CLUSTER", 2),
        ],
        needs: (9, 0),
        only: true,
        block: (384, 1),
        tile: (256, 128),
        // Stages of 16 KiB of a and 64 KiB of b, two barriers each.
        shared_bytes: 2 * ((128 / 2 + 256) * 128 * 2 + 2 * 8) + C_TILES,
        blocks_per_sm: 1,
        cluster: 2,
        ..TWO_FOUR
    },
    Rung { path: "vector_add/01_one_thread_each", kernel: "vector_add", ..PLAIN },
    Rung {
        path: "vector_add/02_loads_in_flight",
        kernel: "vector_add",
        defines: &[("THREADS", 256), ("EACH", 4)],
        tile: (4 * 256, 1),
        ..PLAIN
    },
    Rung { path: "vector_add/03_four_at_once", kernel: "vector_add", tile: (4 * 256, 1), ..PLAIN },
    Rung { path: "vector_add/04_blocks_of_768", kernel: "vector_add", block: (768, 1), tile: (4 * 768, 1), ..PLAIN },
    Rung { path: "vector_multiply/01_one_thread_each", kernel: "vector_multiply", ..PLAIN },
];

/// Attention in one pass: a row of its result is a head, and a tile counts the numbers of the
/// queries that a block answers.
const FLASH: Rung = Rung { kernel: "flash_attention", needs: (8, 0), block: (128, 1), ..PLAIN };

/// From here on Hopper alone: warpgroups multiply, each of 64 queries, and one fetches.
const FLASH_HOPPER: Rung = Rung {
    defines: &[("HEAD", 128), ("KEYS", 128), ("GROUPS", 2), ("STAGES", 2), ("REGISTERS", 240), ("SPARE", 24)],
    needs: (9, 0),
    only: true,
    block: (384, 1),
    tile: (128 * 128, 1),
    shared_bytes: flash_tiles(128, 128, 128, 2) + flash_barriers(2),
    ..FLASH
};

const FLASH_HOPPER_NARROW: Rung = Rung {
    defines: &[("HEAD", 64), ("KEYS", 128), ("GROUPS", 3), ("STAGES", 2), ("REGISTERS", 160), ("SPARE", 32)],
    block: (512, 1),
    tile: (192 * 64, 1),
    shared_bytes: flash_tiles(64, 192, 128, 2) + flash_barriers(2),
    ..FLASH_HOPPER
};

/// Bytes of so many queries, and of so many stages of as many keys of k and of v.
const fn flash_tiles(head: u32, queries: u32, keys: u32, stages: u32) -> u32 {
    (queries + 2 * stages * keys) * head * 2
}

/// Bytes of the barriers: one for q, and four a stage.
const fn flash_barriers(stages: u32) -> u32 {
    8 + 4 * 8 * stages
}

/// The rungs for heads of HEAD numbers; from the seventh on all constants are those of `hopper`.
const fn flash<const HEAD: u32>(hopper: Rung) -> [Rung; 10] {
    [
        Rung {
            path: "flash_attention/01_one_pass",
            defines: &[("HEAD", HEAD)],
            block: (256, 1),
            tile: (8 * HEAD, 1),
            ..FLASH
        },
        Rung {
            path: "flash_attention/02_shared_tiles",
            defines: &[("HEAD", HEAD), ("WARPS", 16)],
            block: (512, 1),
            tile: (16 * HEAD, 1),
            ..FLASH
        },
        Rung {
            path: "flash_attention/03_tensor_cores",
            defines: &[("HEAD", HEAD), ("WARPS", 4), ("KEYS", 64)],
            tile: (64 * HEAD, 1),
            ..FLASH
        },
        Rung {
            path: "flash_attention/04_async_copies",
            defines: &[("HEAD", HEAD), ("WARPS", 4), ("KEYS", 64), ("STAGES", 2)],
            tile: (64 * HEAD, 1),
            shared_bytes: 2 * 2 * 64 * (HEAD + 8) * 2,
            ..FLASH
        },
        Rung {
            path: "flash_attention/05_swizzle",
            defines: &[("HEAD", HEAD), ("WARPS", 4), ("KEYS", 64), ("STAGES", 2)],
            tile: (64 * HEAD, 1),
            shared_bytes: flash_tiles(HEAD, 0, 64, 2),
            ..FLASH
        },
        Rung {
            path: "flash_attention/06_wgmma",
            defines: &[("HEAD", HEAD), ("KEYS", 128), ("GROUPS", 2), ("STAGES", 2)],
            block: (256, 1),
            tile: (128 * HEAD, 1),
            shared_bytes: flash_tiles(HEAD, 128, 128, 2),
            ..hopper
        },
        Rung { path: "flash_attention/07_warp_specialised", ..hopper },
        Rung { path: "flash_attention/08_overlap", ..hopper },
        Rung { path: "flash_attention/09_ping_pong", ..hopper },
        Rung { path: "flash_attention/10_short_softmax", ..hopper },
    ]
}

/// The rungs for heads of 128 numbers, which stand in the course's table.
pub(super) const FLASH_128: [Rung; 10] = flash::<128>(FLASH_HOPPER);

/// The same for heads of 64 numbers.
pub(super) const FLASH_64: [Rung; 10] = flash::<64>(FLASH_HOPPER_NARROW);

/// The backward pass: a row of its result is a head, and a tile counts the numbers of the queries, or keys, that a block
/// owns.
const BACKWARD: Rung = Rung { kernel: "flash_backward", needs: (8, 0), block: (128, 1), ..PLAIN };

/// From here on blocks own keys alone, and add to sums of dq.
const BACKWARD_ADDS: Rung = Rung { block: (256, 1), leaves: Leaves::Added, ..BACKWARD };

/// On Hopper two warpgroups multiply, each of 64 keys.
const BACKWARD_HOPPER: Rung = Rung { needs: (9, 0), only: true, ..BACKWARD_ADDS };

/// Bytes of so many rows of two arrays, own ones and in each stage others; of ds, in so many copies; and of the pairs of
/// log-sum-exp and delta.
const fn backward_tiles(head: u32, own: u32, others: u32, stages: u32, ds: u32) -> u32 {
    2 * (own + stages * others) * head * 2 + ds * own * others * 2 + stages * others * 8
}

/// The rungs for heads of HEAD numbers. OTHERS: rows of a tile that is walked over where warps multiply, QUERIES: where
/// warpgroups do; STAGES: tiles in shared memory at a time. They are the best of those tried on an H200.
const fn backward<const HEAD: u32, const OTHERS: u32, const QUERIES: u32, const STAGES: u32>(
    specialised: Rung,
) -> [Rung; 6] {
    [
        Rung {
            path: "flash_backward/01_row_a_warp",
            defines: &[("HEAD", HEAD)],
            block: (256, 1),
            tile: (8 * HEAD, 1),
            ..BACKWARD
        },
        Rung {
            path: "flash_backward/02_tensor_cores",
            defines: &[("HEAD", HEAD), ("WARPS", 4), ("OTHERS", OTHERS)],
            tile: (64 * HEAD, 1),
            shared_bytes: 2 * (64 + OTHERS) * HEAD * 2,
            ..BACKWARD
        },
        Rung {
            path: "flash_backward/03_one_pass",
            defines: &[("HEAD", HEAD), ("WARPS", 8), ("QUERIES", OTHERS)],
            tile: (128 * HEAD, 1),
            // Rows of ds are 8 numbers longer.
            shared_bytes: 2 * (128 + OTHERS) * HEAD * 2 + 128 * (OTHERS + 8) * 2,
            ..BACKWARD_ADDS
        },
        Rung {
            path: "flash_backward/04_async_copies",
            defines: &[("HEAD", HEAD), ("WARPS", 4), ("QUERIES", OTHERS), ("STAGES", STAGES)],
            block: (128, 1),
            tile: (64 * HEAD, 1),
            shared_bytes: backward_tiles(HEAD, 64, OTHERS, STAGES, 0) + 64 * (OTHERS + 8) * 2,
            ..BACKWARD_ADDS
        },
        Rung {
            path: "flash_backward/05_wgmma",
            defines: &[("HEAD", HEAD), ("KEYS", 128), ("QUERIES", QUERIES), ("STAGES", STAGES)],
            tile: (128 * HEAD, 1),
            shared_bytes: backward_tiles(HEAD, 128, QUERIES, STAGES, 1),
            ..BACKWARD_HOPPER
        },
        Rung { path: "flash_backward/06_warp_specialised", ..specialised },
    ]
}

/// A third warpgroup fetches.
const BACKWARD_SPECIALISED: Rung = Rung {
    defines: &[("HEAD", 128), ("KEYS", 128), ("QUERIES", 64), ("STAGES", 2), ("REGISTERS", 240), ("SPARE", 24)],
    block: (384, 1),
    tile: (128 * 128, 1),
    shared_bytes: backward_tiles(128, 128, 64, 2, 2) + backward_barriers(2),
    ..BACKWARD_HOPPER
};

const BACKWARD_SPECIALISED_NARROW: Rung = Rung {
    defines: &[("HEAD", 64), ("KEYS", 128), ("QUERIES", 128), ("STAGES", 2), ("REGISTERS", 240), ("SPARE", 24)],
    tile: (128 * 64, 1),
    shared_bytes: backward_tiles(64, 128, 128, 2, 2) + backward_barriers(2),
    ..BACKWARD_SPECIALISED
};

/// Bytes of the barriers: one for k and v, and three a stage.
const fn backward_barriers(stages: u32) -> u32 {
    8 + 3 * 8 * stages
}

/// The rungs of the backward pass for heads of 128 numbers, which stand in the course's table.
pub(super) const BACKWARD_128: [Rung; 6] = backward::<128, 32, 64, 3>(BACKWARD_SPECIALISED);

/// The same for heads of 64 numbers.
pub(super) const BACKWARD_64: [Rung; 6] = backward::<64, 64, 128, 2>(BACKWARD_SPECIALISED_NARROW);

impl Rung {
    /// The same rung for heads of that many numbers: other constants, tile and block.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a rung or a width that has none.
    pub fn for_heads_of(&self, width: usize) -> Result<Rung> {
        let mut rows = FLASH_128.iter().chain(&FLASH_64).chain(&BACKWARD_128).chain(&BACKWARD_64);
        let head =
            |rung: &Rung| rung.defines.iter().find(|(name, _)| *name == "HEAD").map(|(_, value)| *value as usize);
        let row = rows.find(|rung| rung.path == self.path && head(rung) == Some(width));
        row.map(|row| Rung { language: self.language, ..*row }).ok_or_else(|| Error::Invalid {
            what: format!("`{}` has no constants for heads of {width} numbers", self.path),
            fix: "use a rung of `flash_attention` or `flash_backward`, and heads of 64 or 128 numbers".to_string(),
        })
    }

    /// `flash_attention/09_ping_pong` with so many warpgroups that compute.
    pub(crate) fn with_groups(self, groups: u32) -> Rung {
        let value = |name: &str| self.defines.iter().find(|(known, _)| *known == name).map_or(0, |(_, value)| *value);
        let (head, stages) = (value("HEAD"), value("STAGES"));
        Rung {
            block: (groups * 128 + 128, 1),
            tile: (groups * 64 * head, 1),
            shared_bytes: flash_tiles(head, groups * 64, value("KEYS"), stages) + flash_barriers(stages),
            ..self
        }
    }

    /// The same rung with another block, tile and shared memory, where constants that they follow from are changed.
    pub(crate) fn reshaped(self, constants: &[(&str, u32)]) -> Rung {
        let value = |name: &str| {
            let changed = constants.iter().find(|(known, _)| *known == name);
            changed.or_else(|| self.defines.iter().find(|(known, _)| *known == name)).map_or(0, |(_, value)| *value)
        };
        let (head, queries, stages) = (value("HEAD"), value("QUERIES"), value("STAGES"));
        let own = 16 * value("WARPS");
        let with_warps = Rung { block: (2 * own, 1), tile: (own * head, 1), ..self };
        match self.name() {
            "02_tensor_cores" => Rung { shared_bytes: 2 * (own + value("OTHERS")) * head * 2, ..with_warps },
            "03_one_pass" => {
                Rung { shared_bytes: 2 * (own + queries) * head * 2 + own * (queries + 8) * 2, ..with_warps }
            }
            "04_async_copies" => Rung {
                shared_bytes: backward_tiles(head, own, queries, stages, 0) + own * (queries + 8) * 2,
                ..with_warps
            },
            "05_wgmma" => Rung { shared_bytes: backward_tiles(head, 128, queries, stages, 1), ..self },
            "06_warp_specialised" => {
                Rung { shared_bytes: backward_tiles(head, 128, queries, stages, 2) + backward_barriers(stages), ..self }
            }
            _ => self,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ladder::rung;

    #[test]
    fn both_widths_have_all_rungs_with_the_same_constants_names() {
        for (wide, narrow) in FLASH_128.iter().zip(&FLASH_64).chain(BACKWARD_128.iter().zip(&BACKWARD_64)) {
            let names = |rung: &Rung| rung.defines.iter().map(|(name, _)| *name).collect::<Vec<_>>();
            assert!(RUNGS.contains(wide), "{} is in no table", wide.path);
            assert_eq!((wide.path, names(wide), wide.needs), (narrow.path, names(narrow), narrow.needs));
            assert_eq!(wide.for_heads_of(64).as_ref(), Ok(narrow));
            assert_eq!(narrow.for_heads_of(128).as_ref(), Ok(wide));
            assert!(wide.for_heads_of(96).unwrap_err().to_string().contains("\nnext: "));
        }
        assert!(rung("rope/01_pair_a_thread").unwrap().for_heads_of(64).is_err());
        // Of the backward pass, shared memory, block and tile follow from the constants.
        assert!(BACKWARD_128.iter().chain(&BACKWARD_64).all(|rung| rung.reshaped(rung.defines) == *rung));
    }
}
