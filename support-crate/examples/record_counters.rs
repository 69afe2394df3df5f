//! Launches, on the GPU, what `warpsim/tests/hardware/scenarios.csv` lists, in order, for Nsight Compute to count:
//! `python3 env/record_counters.py` calls it.

use gpulab::prelude::*;

fn main() -> Result<()> {
    let gpu = Gpu::open()?;
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../warpsim/tests");
    let folder = std::env::args().nth(1).unwrap_or_else(|| folder.to_string());
    let table = std::fs::read_to_string(format!("{folder}/hardware/scenarios.csv")).expect("the table is there");
    for row in table.lines().filter(|line| !line.starts_with('#')).skip(1) {
        let cells: Vec<&str> = row.split(';').collect();
        let ptx = std::fs::read_to_string(format!("{folder}/ptx/{}.ptx", cells[1])).expect("the module is there");
        let kernel = gpu.load_ptx(&ptx)?.kernel(cells[2])?;
        let [grid, block] = [cells[3], cells[4]].map(|text| {
            let side: Vec<u32> = text.split(',').map(|n| n.parse().expect("a number")).collect();
            (side[0], side[1], side[2])
        });
        let config = LaunchConfig { grid, block, shared_bytes: cells[5].parse().expect("a number") };
        launch(&gpu, &kernel, config, cells[6])?;
        gpu.synchronize()?;
        println!("{}", cells[0]);
    }
    Ok(())
}

/// Buffers of four bytes an element, then integers: the shapes of argument lists that the table has.
fn launch(gpu: &Gpu, kernel: &Kernel, config: LaunchConfig, arguments: &str) -> Result<()> {
    let mut buffers: Vec<Buffer<i32>> = Vec::new();
    let mut numbers: Vec<i32> = Vec::new();
    for argument in arguments.split_whitespace() {
        let parts: Vec<&str> = argument.split(':').collect();
        let value = |at: usize| parts[at].parse::<i64>().expect("a number");
        match parts[0] {
            "f" => buffers.push(gpu.to_device(&vec![1.0_f32.to_bits() as i32; value(1) as usize])?),
            "g" => {
                let host: Vec<i32> = (0..value(1)).map(|i| ((7919 * i + 13) % value(2)) as i32).collect();
                buffers.push(gpu.to_device(&host)?);
            }
            "i" => numbers.push(value(1) as i32),
            other => panic!("an argument is f, g or i, and not {other}"),
        }
    }
    match (buffers.as_mut_slice(), numbers.as_slice()) {
        ([a, b], []) => kernel.launch(config, (a, b)),
        ([a], [n]) => kernel.launch(config, (a, *n)),
        ([a], [m, n]) => kernel.launch(config, (a, *m, *n)),
        ([a, b], [n]) => kernel.launch(config, (a, b, *n)),
        ([a, b, c], [n]) => kernel.launch(config, (a, b, c, *n)),
        ([a, b], [m, n]) => kernel.launch(config, (a, b, *m, *n)),
        _ => panic!("teach this match the shape of `{arguments}`"),
    }
}
