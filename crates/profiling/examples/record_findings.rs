//! Launches, on the GPU, one scenario of `warpsim/tests/findings/scenarios.csv`, for compute-sanitizer to look at:
//! `python3 -m env.baselines.record_findings` calls it.
//!
//! It speaks to the driver itself: the tools follow plain allocations best, and want the line numbers in the machine
//! code, which the driver puts there only when asked.

use gpulab::cudarc::driver::{DriverError, result};
use gpulab_profiling::bare;
use std::ffi::{CString, c_void};

type Result<T> = std::result::Result<T, DriverError>;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [folder, name] = arguments.as_slice() else {
        eprintln!(
            "usage: record_findings FOLDER-OF-SCENARIOS NAME\nnext: python3 -m env.baselines.record_findings calls it so"
        );
        std::process::exit(2);
    };
    let table = std::fs::read_to_string(format!("{folder}/scenarios.csv")).expect("the table is there");
    let rows = table.lines().filter(|line| !line.starts_with('#')).skip(1);
    let row = rows.map(|row| row.split(';').collect::<Vec<_>>()).find(|cells| cells[0] == name);
    let row = row.unwrap_or_else(|| panic!("`{name}` is no scenario"));
    assert_ne!(row[8], "none", "`{name}` would hang");
    let ptx = std::fs::read_to_string(format!("{folder}/{}.ptx", row[1])).expect("the module is there");
    match run(&ptx, &row) {
        Ok(Ok(())) => println!("{name}: launched, and came to its end"),
        // A planted mistake may do that; the tool has said why.
        Ok(Err(error)) => println!("{name}: launched, and ended by {error}"),
        Err(error) => {
            eprintln!("{name}: not launched: {error}\nnext: check the driver, and the version of the PTX");
            std::process::exit(3);
        }
    }
}

/// Launches; gives how the kernel ended. An error is one before the launch.
fn run(ptx: &str, row: &[&str]) -> Result<Result<()>> {
    let [grid, block] = [row[3], row[4]].map(|text| {
        let sides: Vec<u32> = text.split(',').map(|n| n.parse().expect("a number")).collect();
        (sides[0], sides[1], sides[2])
    });
    result::init()?;
    let device = result::device::get(0)?;
    // SAFETY: the device exists; its context is kept to the end of the process.
    unsafe { result::ctx::set_current(result::primary_ctx::retain(device)?)? };
    let module = bare::load(ptx)?;
    let kernel = CString::new(row[2]).expect("a name");
    // SAFETY: the module stays loaded to the end of the process.
    let kernel = unsafe { result::module::get_function(module, kernel)? };
    let mut values = row[6].split_whitespace().map(argument).collect::<Result<Vec<u64>>>()?;
    let mut pointers: Vec<*mut c_void> = values.iter_mut().map(|v| (v as *mut u64).cast()).collect();
    let shared = row[5].parse().expect("a number");
    // SAFETY: one value of 8 bytes for each parameter, which has at most 8; what the kernel then does wrong is the
    // point, and nothing of this process depends on device memory.
    unsafe { result::launch_kernel(kernel, grid, block, shared, std::ptr::null_mut(), &mut pointers)? };
    Ok(result::ctx::synchronize())
}

/// The bits of an argument; buffers are made, and stay to the end of the process.
fn argument(text: &str) -> Result<u64> {
    let parts: Vec<&str> = text.split(':').collect();
    let value = |at: usize| parts[at].parse::<i64>().expect("a number");
    let (words, written): (i64, Vec<u32>) = match parts[0] {
        "null" => return Ok(0),
        "i" => return Ok(u64::from(value(1) as i32 as u32)),
        "d" => return Ok(parts[1].parse::<f64>().expect("a number").to_bits()),
        "f" => (value(1), vec![1f32.to_bits(); value(1) as usize]),
        "z" => (value(1), vec![0; value(1) as usize]),
        "u" => (value(1), vec![1; value(2) as usize]),
        "g" => (value(1), (0..value(1)).map(|i| ((7919 * i + 13) % value(2)) as u32).collect()),
        other => panic!("an argument is f, g, z, u, i, d or null, and not {other}"),
    };
    // SAFETY: the words written are at most those of the buffer.
    unsafe {
        let address = result::malloc_sync(4 * words as usize)?;
        if !written.is_empty() {
            result::memcpy_htod_sync(address, &written)?;
        }
        Ok(address)
    }
}
