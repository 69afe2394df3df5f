//! Launches, on the GPU, what tables in `warpsim/tests/hardware` list, in order, for Nsight Compute to count:
//! `python3 -m env.baselines.record_counters` calls it. Arguments: the folder `warpsim/tests`, and tables' names (`scenarios`).

use gpulab::gpu::KernelArg;
use gpulab::prelude::*;
use gpulab::sim::shipped;
use gpulab_kernels::ladder::rung;
use std::collections::BTreeMap;

fn main() -> Result<()> {
    let gpu = Gpu::open_index(0)?;
    let mut arguments = std::env::args().skip(1);
    let folder = arguments.next().unwrap_or_else(|| concat!(env!("CARGO_MANIFEST_DIR"), "/../warpsim/tests").into());
    let mut tables: Vec<String> = arguments.collect();
    if tables.is_empty() {
        tables = vec!["scenarios".into()];
    }
    let mut modules = BTreeMap::new();
    for table in tables {
        let table = std::fs::read_to_string(format!("{folder}/hardware/{table}.csv")).expect("the table is there");
        for row in table.lines().filter(|line| !line.starts_with('#')).skip(1) {
            let cells: Vec<&str> = row.split(';').collect();
            if !modules.contains_key(cells[1]) {
                let ptx = match cells[1].strip_prefix("course/") {
                    // What the simulator counts: the packed PTX, whatever this machine's compiler makes.
                    Some(path) => shipped::ptx(&rung(path)?.source()?)?.expect("`make ptx` has packed it"),
                    None => std::fs::read_to_string(format!("{folder}/ptx/{}.ptx", cells[1])).expect("a module"),
                };
                modules.insert(cells[1].to_string(), gpu.load_ptx(&ptx)?);
            }
            let kernel = modules[cells[1]].kernel(cells[2])?;
            let [grid, block] = [cells[3], cells[4]].map(|text| {
                let side = numbers(text);
                (side[0] as u32, side[1] as u32, side[2] as u32)
            });
            let config = LaunchConfig { grid, block, shared_bytes: cells[5].parse().expect("a number") };
            launch(&gpu, &kernel, config, cells[6])?;
            gpu.synchronize()?;
            println!("{}", cells[0]);
        }
    }
    Ok(())
}

fn numbers(text: &str) -> Vec<i32> {
    text.split(',').map(|number| number.parse().expect("a number")).collect()
}

/// An argument of a launch; buffers have four bytes per element.
enum Given {
    Buffer(Buffer<i32>),
    Integer(i32),
    Float(f32),
}

impl Given {
    fn read(gpu: &Gpu, text: &str) -> Result<Given> {
        let (letter, rest) = text.split_once(':').expect("a letter, a colon and numbers");
        let parts: Vec<&str> = rest.split(':').collect();
        let value = |at: usize| parts[at].parse::<i64>().expect("a number");
        let buffer = |host: Vec<i32>| gpu.to_device(&host).map(Given::Buffer);
        match letter {
            "f" => buffer(vec![1.0_f32.to_bits() as i32; value(0) as usize]),
            "g" => buffer((0..value(0)).map(|i| ((7919 * i + 13) % value(1)) as i32).collect()),
            "t" => buffer(numbers(rest)),
            "i" => Ok(Given::Integer(value(0) as i32)),
            "x" => Ok(Given::Float(rest.parse().expect("a number"))),
            other => panic!("an argument is f, g, t, i or x, and not {other}"),
        }
    }
}

fn launch(gpu: &Gpu, kernel: &Kernel, config: LaunchConfig, arguments: &str) -> Result<()> {
    let mut given = arguments.split_whitespace().map(|text| Given::read(gpu, text)).collect::<Result<Vec<_>>>()?;
    let arguments = given.iter_mut().map(|argument| match argument {
        Given::Buffer(buffer) => buffer.into_raw(),
        Given::Integer(number) => number.into_raw(),
        Given::Float(number) => number.into_raw(),
    });
    kernel.launch(config, arguments.collect::<Vec<_>>())
}
