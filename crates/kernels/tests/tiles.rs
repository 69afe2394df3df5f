//! The programs on tiles in Rust: right in the simulator at awkward sizes, whatever block starts first, and without a mistake.

use gpulab::gpu::Module;
use gpulab::prelude::*;
use gpulab::sim::BlockOrder;
use gpulab_kernels::tiles::TileProgram;
use gpulab_kernels::topics::{Launches, Topic};
use gpulab_kernels::*;

fn compiled(gpu: &Gpu, program: &TileProgram) -> Module {
    gpu.compile(program.source().unwrap()).unwrap_or_else(|error| panic!("{}: {error}", program.full_name()))
}

/// What one call does wrong, beyond what its results tell.
fn findings(topic: &dyn Topic, size: Size) -> usize {
    let (inputs, mut outputs) = topic.arrays(size, 1).unwrap();
    let mut launches = Launches::inspect();
    topic.call(&inputs, &mut outputs, size, &mut launches).unwrap();
    launches.inspections.iter().map(|seen| seen.findings.len()).sum()
}

#[test]
fn softmax_is_right_for_rows_that_a_block_holds() {
    let gpu = Gpu::simulated_in(BlockOrder::Reverse).unwrap();
    for vectors in [1, 4] {
        let program = TileProgram::softmax(vectors);
        let softmax = Softmax::on_tiles(&gpu, &program, &compiled(&gpu, &program)).unwrap();
        assert_eq!(findings(&softmax, Size::Two(3, 1000)), 0);
        let long = Size::Two(1, 8192 * vectors as usize + 1);
        let refused = softmax.results(&softmax.inputs(long, 1).unwrap(), long).unwrap_err().to_string();
        assert!(refused.contains("hold") && refused.contains("\nnext: "), "{refused}");
    }
}

#[test]
fn products_are_right_with_two_and_three_warpgroups() {
    let gpu = Gpu::simulated_in(BlockOrder::Random(1)).unwrap();
    for (groups, columns, stages) in [(2, 256, 4), (3, 128, 3)] {
        let program = TileProgram::matmul(groups, columns, stages, 8);
        let matmul = MatmulBf16::on_tiles(&gpu, &program, &compiled(&gpu, &program)).unwrap();
        assert_eq!(findings(&matmul, Size::Three(70, 264, 136)), 0);
        let odd = Size::Three(2, 65, 8);
        let refused = matmul.results(&matmul.inputs(odd, 1).unwrap(), odd).unwrap_err().to_string();
        assert!(refused.contains("rows of 65 elements") && refused.contains("\nnext: "), "{refused}");
    }
}

#[test]
fn attention_is_right_with_a_mask_and_without() {
    let gpu = Gpu::simulated_in(BlockOrder::Reverse).unwrap();
    for (head, keys, settle) in [(128, 128, 1), (64, 64, 0)] {
        let program = TileProgram::attention(2, head, keys, 2, settle);
        let module = compiled(&gpu, &program);
        for causal in [false, true] {
            let attention = FlashAttention::on_tiles(&gpu, &program, &module, causal).unwrap();
            assert_eq!(findings(&attention, Size::Three(1, 150, head as usize)), 0);
        }
    }
}
