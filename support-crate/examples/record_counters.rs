//! Launches, on the GPU, what tables in `warpsim/tests/hardware` list, in order, for Nsight Compute to count:
//! `python3 env/record_counters.py` calls it. Arguments: the folder `warpsim/tests`, and tables' names (`scenarios`).

use gpulab::prelude::*;
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
                let path = match cells[1].strip_prefix("course/") {
                    Some(rung) => format!("{folder}/../../support-crate/kernels/{rung}.ptx"),
                    None => format!("{folder}/ptx/{}.ptx", cells[1]),
                };
                let ptx = std::fs::read_to_string(path).expect("the module is there");
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

/// Buffers of four bytes an element, then numbers: the shapes of argument lists that the tables have.
fn launch(gpu: &Gpu, kernel: &Kernel, config: LaunchConfig, arguments: &str) -> Result<()> {
    let mut buffers: Vec<Buffer<i32>> = Vec::new();
    let (mut integers, mut floats) = (Vec::<i32>::new(), Vec::<f32>::new());
    for argument in arguments.split_whitespace() {
        let (letter, rest) = argument.split_once(':').expect("a letter, a colon and numbers");
        let parts: Vec<&str> = rest.split(':').collect();
        let value = |at: usize| parts[at].parse::<i64>().expect("a number");
        match letter {
            "f" => buffers.push(gpu.to_device(&vec![1.0_f32.to_bits() as i32; value(0) as usize])?),
            "g" => {
                let host: Vec<i32> = (0..value(0)).map(|i| ((7919 * i + 13) % value(1)) as i32).collect();
                buffers.push(gpu.to_device(&host)?);
            }
            "t" => buffers.push(gpu.to_device(&numbers(rest))?),
            "i" => integers.push(value(0) as i32),
            "x" => floats.push(rest.parse().expect("a number")),
            other => panic!("an argument is f, g, t, i or x, and not {other}"),
        }
    }
    if let ([a, b, c], [n], [x]) = (buffers.as_mut_slice(), integers.as_slice(), floats.as_slice()) {
        return kernel.launch(config, (a, b, c, *n, *x));
    }
    if let ([a, b, c], [m, n], [x]) = (buffers.as_mut_slice(), integers.as_slice(), floats.as_slice()) {
        return kernel.launch(config, (a, b, c, *m, *n, *x));
    }
    if let ([a, b, c, d], [m, n], [x]) = (buffers.as_mut_slice(), integers.as_slice(), floats.as_slice()) {
        return kernel.launch(config, (a, b, c, d, *m, *n, *x));
    }
    if let ([a, b, c, d, e], [m, n], [x]) = (buffers.as_mut_slice(), integers.as_slice(), floats.as_slice()) {
        return kernel.launch(config, (a, b, c, d, e, *m, *n, *x));
    }
    match (buffers.as_mut_slice(), integers.as_slice()) {
        ([a, b, c, d, e, f], [m, n, k]) => kernel.launch(config, (a, b, c, d, e, f, *m, *n, *k)),
        ([a], []) => kernel.launch(config, (a,)),
        ([a, b], []) => kernel.launch(config, (a, b)),
        ([a, b, c], []) => kernel.launch(config, (a, b, c)),
        ([a, b, c, d], []) => kernel.launch(config, (a, b, c, d)),
        ([a], [n]) => kernel.launch(config, (a, *n)),
        ([a], [m, n]) => kernel.launch(config, (a, *m, *n)),
        ([a, b], [n]) => kernel.launch(config, (a, b, *n)),
        ([a, b, c], [n]) => kernel.launch(config, (a, b, c, *n)),
        ([a, b], [m, n]) => kernel.launch(config, (a, b, *m, *n)),
        ([a, b, c], [m, n, k]) => kernel.launch(config, (a, b, c, *m, *n, *k)),
        _ => panic!("teach this match the shape of `{arguments}`"),
    }
}
