//! How hard the generated digits are: `cargo run --release --example digits [TRAIN TEST EPOCHS]`.

use gpulab_nn::data::{Images, SEED, linear_accuracy, nearest_mean_accuracy};

fn main() {
    let numbers: Vec<usize> = std::env::args().skip(1).filter_map(|text| text.parse().ok()).collect();
    let [train, test, epochs] = *numbers else { return run(60_000, 10_000, 30) };
    run(train, test, epochs);
}

fn run(train: usize, test: usize, epochs: usize) {
    let start = std::time::Instant::now();
    let images = Images::generated(SEED, train, test);
    println!("{}: {train} + {test} images in {:.2} s", images.name, start.elapsed().as_secs_f64());
    println!("nearest mean: {:.2} %", 100.0 * nearest_mean_accuracy(&images));
    let start = std::time::Instant::now();
    let linear = 100.0 * linear_accuracy(&images, epochs);
    println!("linear, {epochs} epochs: {linear:.2} % ({:.1} s)", start.elapsed().as_secs_f64());
}
