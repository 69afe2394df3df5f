// Solutions of lesson 12b: each section replaces the exercise cell of that name.

// exercise: product_loop
const LOOP: &str = r#"template <class Tiles> __device__ void product_loop(Tiles &tiles, int steps) {
    tiles.fetch(0, 0);
    for (int step = 0; step < steps; ++step) {
        tiles.wait_all();  // my copies of this step
        __syncthreads();   // everybody's; and everybody has left the stage of the step before
        if (step + 1 < steps) tiles.fetch(step + 1, (step + 1) % 2);
        tiles.multiply(step % 2);
    }
}"#;

// exercise: wave_share
// 40 × 12 tiles are 3.6 waves of 132.
let my_share: Option<f64> = Some(100.0 * 480.0 / (4.0 * 132.0));

// exercise: share_suspect
let my_fault = check::Fault::LongShares;
let my_tiles: Option<usize> = Some(check::ShareSuspect.wrong_tiles(64, 64, 64, 3)?);
