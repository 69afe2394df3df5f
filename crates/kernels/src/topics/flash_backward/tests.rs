//! Rungs in the simulator at awkward lengths, mistakes that the comparison must find, and the pass as a whole against the
//! gradients of the formula.

use super::*;
use crate::Ladder;
use crate::ladder::RUNGS;
use gpulab::bench::Bench;

fn shape_of(q_heads: usize, kv_heads: usize, length: usize, width: usize) -> AttentionShape {
    AttentionShape { batch: 1, q_heads, kv_heads, length, width }
}

/// One rung alone: RUNG=02.
fn rungs() -> impl Iterator<Item = Rung> {
    let only = std::env::var("RUNG").unwrap_or_default();
    RUNGS.iter().copied().filter(move |rung| rung.kernel == "flash_backward" && rung.path.contains(&only))
}

#[test]
fn every_rung_is_right_at_awkward_lengths_and_makes_no_mistake() {
    let gpu = Gpu::simulated().unwrap();
    for rung in rungs() {
        // At its first use each is compared with f64 at 1, 33 and 129 tokens.
        let compiled = FlashBackward::compile(&gpu, rung.path, 64, &[]).unwrap();
        let [plain, causal] =
            [false, true].map(|causal| compiled.checked(causal).unwrap_or_else(|error| panic!("{error}")));
        for (backward, shape) in
            [(&plain, shape_of(2, 1, 127, 64)), (&plain, shape_of(1, 1, 31, 64))].into_iter().chain([
                (&causal, shape_of(2, 1, 200, 64)),
                (&causal, AttentionShape { batch: 2, ..shape_of(2, 2, 31, 64) }),
            ])
        {
            backward.check_at(shape, 2.0).unwrap_or_else(|error| panic!("{backward:?}: {error}"));
        }
    }
}

/// That rung with one place of its source, or of what comes before and after it, changed: what the check says.
fn planted(name: &str, causal: bool, constants: &[(&str, u32)], was: &str, becomes: &str) -> String {
    let gpu = Gpu::simulated().unwrap();
    let rung = Ladder::FlashBackward.rung(name).unwrap().for_heads_of(64).unwrap().reshaped(constants);
    let mut sources = rung_sources(rung).unwrap();
    assert!(sources.iter().any(|source| source.text.contains(was)), "{name} has no `{was}`");
    for source in &mut sources {
        source.text = source.text.replace(was, becomes);
    }
    let kernels = Kernels::of(&gpu, rung, sources, &changed(rung.defines, constants), 64).unwrap();
    let backward = FlashBackward::empty(&gpu, rung.path, causal).unwrap();
    backward.loaded[0].get_or_init(|| kernels);
    let checked = backward.check(64).and_then(|()| backward.check_at(shape_of(1, 1, 200, 64), 2.0));
    match checked {
        Ok(()) => panic!("{name} with `{becomes}` in place of `{was}` passes"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn wrong_gradients_are_found() {
    for (name, causal, was, becomes, output) in [
        // Without delta the derivative of softmax is no more than that of a power.
        ("02", false, "(dp[x][i] - delta[i / 2])", "dp[x][i]", "output 0"),
        // Queries see keys behind them, in what becomes dq alone.
        ("02", true, "(causal && key0 + OTHERS > own0)", "false", "output 0"),
        // Of heads that share k and v only the first counts.
        ("03", false, "q_head < head * group + group", "q_head < head * group + 1", "output 0"),
        // Keys beyond the last one have a weight.
        ("03", false, "key0 + KEYS > length", "false", "output 0"),
        // Queries see keys behind them, where both lie in one tile.
        ("06", true, "first_key + 63 > query0", "first_key > query0", "output 0"),
        // The root of the head dimension is forgotten.
        ("02", false, "row, length, scale * LN2);", "row, length, LN2);", "output 0"),
        // Queries beyond the last one have a weight: their do is 0, and so is what they add, but not where there is none.
        ("01", false, "own >= length ||", "own + 1 >= length ||", "output 0"),
        // The last queries begin a tile late.
        ("04", true, "causal ? key0 / QUERIES : 0", "causal ? key0 / QUERIES + 1 : 0", "output"),
        // The last query's sums are not rounded.
        ("03", false, "row + half * 8 < length", "row + half * 8 + 1 < length", "output 0"),
    ] {
        let text = planted(name, causal, &[], was, becomes);
        assert!(text.contains(output) && text.contains("exactly"), "{name}, `{becomes}`: {text}");
    }
}

#[test]
fn races_and_missing_barriers_are_found() {
    for (name, constants, was, becomes) in [
        // dq is summed from a ds that others still write.
        ("03", &[][..], "        __syncthreads();\n            // dq = ds", "            // dq = ds"),
        // Tiles are read before the copies of cp.async are here.
        ("04", &[], "copies_wait<STAGES - 2>();", "copies_wait<STAGES - 1>();"),
        // Both warpgroups' halves of ds are read by both.
        (
            "05",
            &[],
            "        fence_async();\n        __syncthreads();\n        // dq = ds",
            "        fence_async();\n        // dq = ds",
        ),
        ("06", &[], "        consumers_sync();\n        // dq = ds", "        // dq = ds"),
        // A stage is given back before the products that read it are done.
        (
            "06",
            &[("QUERIES", 64)],
            "        start_sum(dk, ds, shared.q[stage]);",
            "        if (thread == 0) {\n            arrive(&shared.empty[stage]);\n        }\n        start_sum(dk, ds, shared.q[stage]);",
        ),
    ] {
        let text = planted(name, false, constants, was, becomes);
        println!("{name}, `{becomes}`: {text}");
    }
}

#[test]
fn a_forward_and_a_backward_pass_give_the_gradients_of_the_formula() {
    let gpu = Gpu::simulated().unwrap();
    let shape = AttentionShape { batch: 2, ..shape_of(4, 2, 65, 64) };
    for causal in [false, true] {
        let backward = FlashBackward::with(&gpu, "flash_backward/02_tensor_cores", causal, 64, &[]).unwrap();
        let [q, k, v] = cpu::attention_inputs(shape, 5, 2.0).map(flash_attention::bf16);
        let d_o = flash_attention::bf16(cpu::random_f32(shape.q_numbers(), 6));
        let wide = |x: &[u16]| x.iter().map(|&bits| cpu::f32_from_bf16(bits)).collect::<Vec<f32>>();
        let arrays = [&q, &k, &v, &d_o].map(|x| wide(x));
        let exact = cpu::attention_backward_f64(&arrays[0], &arrays[1], &arrays[2], &arrays[3], shape, &mask(causal));
        let [q, k, v, d_o] = [q, k, v, d_o].map(|x| gpu.to_device(&x).unwrap());
        let (o, lse) = backward.forward([&q, &k, &v], shape).unwrap();
        let inputs = BackwardInputs { q: &q, k: &k, v: &v, o: &o, d_o: &d_o, lse: &lse };
        let given = backward.gradients(inputs, shape).unwrap();
        for (name, (given, exact)) in ["dq", "dk", "dv"].iter().zip(given.iter().zip(exact.unwrap())) {
            let given = wide(&given.to_host().unwrap());
            let size = exact.iter().map(|x| x * x).sum::<f64>().sqrt();
            let off: f64 = given.iter().zip(&exact).map(|(a, b)| (f64::from(*a) - b).powi(2)).sum::<f64>().sqrt();
            // The result, weights and derivatives are rounded to bf16, each by up to 2⁻⁹ of itself.
            assert!(off < 0.008 * size, "{name}, causal {causal}: off by {:.1e}", off / size);
        }
    }
}

#[test]
fn what_does_not_fit_is_refused_with_a_way_out() {
    let gpu = Gpu::simulated().unwrap();
    let backward = FlashBackward::with(&gpu, "flash_backward/01_row_a_warp", false, 64, &[]).unwrap();
    let shape = shape_of(2, 1, 3, 64);
    let refused = |kv: usize, d_o: usize, lse: usize, shape| {
        let (q, kv, d_o) = (gpu.zeros(2 * 3 * 64).unwrap(), gpu.zeros(kv).unwrap(), gpu.zeros(d_o).unwrap());
        let lse = gpu.zeros(lse).unwrap();
        let inputs = BackwardInputs { q: &q, k: &kv, v: &kv, o: &q, d_o: &d_o, lse: &lse };
        let text = backward.gradients(inputs, shape).unwrap_err().to_string();
        assert!(text.contains("\nnext: "), "{text}");
        text
    };
    assert!(refused(3 * 64, 2 * 3 * 64, 5, shape).contains("`lse`: 6 elements expected, 5 given"));
    assert!(refused(3 * 64, 3 * 64, 6, shape).contains("`d_o`"));
    assert!(refused(64, 2 * 3 * 64, 6, shape).contains("`k`"));
    assert!(refused(3 * 64, 2 * 3 * 64, 6, shape_of(2, 1, 3, 96)).contains("heads of 96 numbers"));
    assert!(FlashBackward::new(&gpu, "flash_backward/00", false).is_err());
    assert!(backward.time(Size::Three(1, 8, 64), &Bench::default()).unwrap_err().to_string().contains("next: "));
    assert!(Ladder::FlashBackward.size((1, 33, 24)).unwrap_err().to_string().contains("64 and 128"));
    assert_eq!(Ladder::CausalFlashBackward.size((4, 33)), Ok(Size::Three(4, 33, 128)));
}
