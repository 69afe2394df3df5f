//! Times the `cpu` room for `env/baselines/bench_cpu.py`: a line `matmul 1024` or `sum 134217728` in, the median ms out.
//! The number of threads is RAYON_NUM_THREADS; with 1, the functions for one core run.

use gpulab_cpu as cpu;
use gpulab_measure::bench::Bench;
use std::io::{BufRead, Write};

fn main() -> gpulab_measure::Result<()> {
    let one_core = std::env::var("RAYON_NUM_THREADS").is_ok_and(|threads| threads == "1");
    let bench = Bench::default().samples(7).budget_ms(1500.0);
    for line in std::io::stdin().lock().lines().map_while(Result::ok) {
        let Some((what, size)) = line.split_once(' ').and_then(|(what, size)| Some((what, size.parse().ok()?))) else {
            panic!("`{line}` is not `matmul SIZE` or `sum SIZE`");
        };
        let size: usize = size;
        let time = match what {
            "matmul" => {
                let (a, b) = (cpu::random_f32(size * size, 1), cpu::random_f32(size * size, 2));
                let mut c = vec![0.0; size * size];
                let matmul = if one_core { cpu::matmul_one_core } else { cpu::matmul };
                cpu::time(&bench, || matmul(&a, &b, &mut c, size))?
            }
            "sum" => {
                let x = cpu::random_f32(size, 1);
                let sum = if one_core { cpu::sum_one_core } else { cpu::sum };
                cpu::time(&bench, || sum(&x))?
            }
            other => panic!("`{other}` is neither matmul nor sum"),
        };
        println!("{}", time.median);
        std::io::stdout().flush().expect("the script that started this reads its answers");
    }
    Ok(())
}
