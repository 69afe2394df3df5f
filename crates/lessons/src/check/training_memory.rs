//! Exercises of lesson 21.

use super::Verdict;
use super::verdict::{ask, timed, wrong};

/// The reader's bytes of a step: of layers, the side of an image, and a batch.
pub type StepMemoryFormula = fn(layers: &[(u64, u64, u64)], side: u64, batch: u64) -> u64;
/// The reader's choice of an algorithm for each convolution, within a budget of bytes.
pub type ChooseAlgorithms = fn(convolutions: &[Vec<AlgoPerf>], budget: u64) -> Option<Vec<usize>>;

/// A layer of [`step_memory`]: channels in, channels out, side of the window.
type Conv = (u64, u64, u64);

/// The parts that a step of such a chain holds, in bytes.
#[derive(Clone, Copy)]
struct Parts {
    /// Once.
    parameters: u64,
    biases: u64,
    activations: u64,
    images: u64,
}

fn parts(layers: &[Conv], side: u64, batch: u64) -> Parts {
    let mut side_in = side;
    let mut found = Parts { parameters: 0, biases: 0, activations: 0, images: 4 * batch * layers[0].0 * side * side };
    for &(inputs, outputs, window) in layers {
        side_in = side_in + 1 - window;
        found.parameters += 4 * (outputs * inputs * window * window + outputs);
        found.biases += 4 * outputs;
        found.activations += 3 * 4 * batch * outputs * side_in * side_in;
    }
    found
}

/// Checks a function (layers, side, batch) that gives the bytes of a training step of a chain of convolutions with bias and ReLU,
/// f32, with AdamW: parameters, gradients, state, activations as candle keeps them, and the images.
pub fn step_memory(answer: StepMemoryFormula) -> Verdict {
    timed("step_memory", move || {
        let chains: [(&[Conv], u64, u64); 5] = [
            (&[(1, 32, 3)], 28, 1),
            (&[(3, 8, 5)], 32, 4),
            (&[(1, 32, 3), (32, 64, 3)], 28, 128),
            (&[(3, 16, 7), (16, 16, 1), (16, 24, 3)], 40, 6),
            (&[(2, 5, 2)], 3, 1000),
        ];
        for (layers, side, batch) in chains {
            let case = format!("{batch} images of {side} × {side}, layers (in, out, window) {layers:?}");
            let given = ask(&case, || answer(layers, side, batch))?;
            let Parts { parameters, biases, activations, images } = parts(layers, side, batch);
            let right = 4 * parameters + activations + images;
            if given == right {
                continue;
            }
            let padded: u64 = layers.iter().map(|(_, outputs, _)| 12 * batch * outputs * side * side).sum();
            // Which part is missing or counted in another way; the first that explains the number.
            let explained = [
                (right / 4, "these are numbers: an f32 has 4 bytes"),
                (right - images, "the images are on the device too"),
                (right - 3 * parameters, "the parameters have companions: think of all that training adds to each"),
                (right - 2 * parameters, "AdamW remembers something for each parameter, too"),
                (right - parameters, "one of the companions of the parameters is missing"),
                (right - 4 * biases, "a bias is a parameter"),
                (right - activations / 3, "count the results of one layer as candle keeps them: one is missing"),
                (right - activations / 3 * 2, "count the results of one layer as candle keeps them: two are missing"),
                (right - activations + activations / batch, "every image of the batch has activations of its own"),
                (right - activations + padded, "without padding a result is smaller than its input"),
            ];
            let hint = explained.into_iter().find(|(bytes, _)| *bytes == given).map_or(
                match given {
                    given if given > right => "more than the step holds: is something counted twice, or by the wrong side?",
                    _ => "less than the step holds: go through the parts of the table one by one, for one layer, then for two",
                },
                |(_, hint)| hint,
            );
            return wrong(format!("{case}: you say {given} bytes, and it should be {right}"), hint);
        }
        Ok(())
    })
}

/// Checks the number of texts that fit: bf16 parameters and gradients, f32 master copy and AdamW's two means of 124,439,808
/// parameters, 45 · 10⁶ bytes for each text, on a GPU with 24 · 10⁹ bytes.
pub fn sixteen_bit_gpu(answer: fn() -> u64) -> Verdict {
    timed("sixteen_bit_gpu", move || {
        let given = ask("", answer)?;
        let texts = |bytes_each: f64| (24e9 - bytes_each * 124_439_808.0) / 45e6;
        let is = |bytes_each: f64| given as f64 == texts(bytes_each).floor();
        let hint = match given {
            _ if is(16.0) => return Ok(()),
            _ if given as f64 == texts(16.0).ceil() => "the last one of these does not fit whole",
            _ if is(0.0) => "the parameters and their companions are there before the first text",
            _ if is(12.0) => "one part of 4 bytes per parameter is missing: the update works on more than bf16",
            _ if is(8.0) => "half of what each parameter needs is missing",
            _ if is(4.0) || is(2.0) => "that is what the GPU's products use; what does the update need beside it?",
            _ if is(18.0) || is(20.0) => "some of these numbers are bf16, and you counted them as f32",
            _ if given as f64 == ((24.0 * (1u64 << 30) as f64 - 16.0 * 124_439_808.0) / 45e6).floor() => {
                "10⁹ bytes, not GiB"
            }
            _ => "first the bytes of one parameter with all its companions, then what is left for texts",
        };
        wrong(format!("you say {given} texts"), hint)
    })
}

/// An algorithm for a convolution with its costs, as cuDNN lists it (`cudnnConvolutionFwdAlgoPerf_t`).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AlgoPerf {
    /// How long the convolution takes with it, in µs.
    pub us: f64,
    /// The workspace that it needs, in bytes.
    pub workspace: u64,
}

fn best(algorithms: &[AlgoPerf], budget: u64) -> Option<usize> {
    let fits = algorithms.iter().enumerate().filter(|(_, algorithm)| algorithm.workspace <= budget);
    // Of equal ones `min_by` gives the first.
    fits.min_by(|(_, a), (_, b)| a.us.total_cmp(&b.us).then(a.workspace.cmp(&b.workspace))).map(|(at, _)| at)
}

/// Checks a function that chooses an algorithm for each of several convolutions that run one after the other and share one
/// workspace of at most `budget` bytes.
pub fn choose_algorithms(answer: ChooseAlgorithms) -> Verdict {
    let list = |pairs: &[(f64, u64)]| -> Vec<AlgoPerf> {
        pairs.iter().map(|&(us, workspace)| AlgoPerf { us, workspace }).collect()
    };
    timed("choose_algorithms", move || {
        let cases = [
            (vec![list(&[(124.0, 60), (152.0, 0), (170.0, 61)])], 100),
            (
                vec![
                    list(&[(124.0, 60), (152.0, 0)]),
                    list(&[(140.0, 85), (245.0, 0)]),
                    list(&[(125.0, 120), (188.0, 0)]),
                ],
                100,
            ),
            (vec![list(&[(124.0, 60), (152.0, 60)]), list(&[(90.0, 60), (91.0, 0)])], 60),
            (vec![list(&[(10.0, 50), (10.0, 20), (10.0, 20)]), list(&[(9.0, 0)])], 50),
            (vec![list(&[(10.0, 50)]), list(&[(9.0, 0)])], 49),
            (vec![list(&[(10.0, 1), (20.0, 0)]), list(&[(9.0, 7), (8.0, 9)])], 0),
            (vec![list(&[(900.0, 0), (10.0, 1), (11.0, 1)])], 1),
            (vec![], 10),
        ];
        for (convolutions, budget) in cases {
            let right: Option<Vec<usize>> = convolutions.iter().map(|algorithms| best(algorithms, budget)).collect();
            let shown: Vec<Vec<(f64, u64)>> =
                convolutions.iter().map(|list| list.iter().map(|a| (a.us, a.workspace)).collect()).collect();
            let case = format!("(µs, bytes) of each algorithm {shown:?}, at most {budget} bytes");
            let given = ask(&case, || answer(&convolutions, budget))?;
            if given == right {
                continue;
            }
            let hint = match (&given, &right) {
                (Some(_), None) => "one of the convolutions has no algorithm that fits",
                (None, Some(_)) => "there is a choice that fits: how much workspace is in use at one moment?",
                (Some(given), Some(right)) if given.len() != right.len() => "one number for each convolution",
                (Some(given), Some(_)) => {
                    choice_hint(given, &convolutions, budget).unwrap_or("this choice fits, and a faster one fits too")
                }
                (None, None) => unreachable!("equal"),
            };
            return wrong(format!("{case}: you choose {given:?}, and it should be {right:?}"), hint);
        }
        Ok(())
    })
}

/// What is wrong with a choice beside being slow.
fn choice_hint(given: &[usize], convolutions: &[Vec<AlgoPerf>], budget: u64) -> Option<&'static str> {
    let mut equal = true;
    for (at, algorithms) in given.iter().zip(convolutions) {
        let Some(algorithm) = algorithms.get(*at) else { return Some("there is no algorithm of that number") };
        if algorithm.workspace > budget {
            return Some("one of these needs more than the buffer has");
        }
        equal &= best(algorithms, budget).is_some_and(|best| algorithms[best].us == algorithm.us);
    }
    equal.then_some("as fast as it can be, but read on which of several equal ones to take")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(verdict: Verdict, hint: &str) {
        let text = verdict.text();
        assert!(text.starts_with("NOT YET") && text.contains(hint), "{hint}: {text}");
    }

    /// The bytes with each part weighted: companions of a parameter, results of a layer, images, and whether windows shrink.
    fn memory(layers: &[Conv], side: u64, batch: u64, companions: u64, results: u64, images: u64, shrink: bool) -> u64 {
        let mut side_out = side;
        let mut sum = images * 4 * batch * layers[0].0 * side * side;
        for &(inputs, outputs, window) in layers {
            side_out = if shrink { side_out + 1 - window } else { side };
            sum += companions * 4 * outputs * (inputs * window * window + 1);
            sum += results * 4 * batch * outputs * side_out * side_out;
        }
        sum
    }

    #[test]
    fn a_step_right_and_wrong() {
        assert!(step_memory(|l, s, b| memory(l, s, b, 4, 3, 1, true)).passed());
        told(step_memory(|l, s, b| memory(l, s, b, 4, 3, 1, true) / 4), "an f32 has 4 bytes");
        told(step_memory(|l, s, b| memory(l, s, b, 4, 3, 0, true)), "the images are");
        told(step_memory(|l, s, b| memory(l, s, b, 1, 3, 1, true)), "have companions");
        told(step_memory(|l, s, b| memory(l, s, b, 2, 3, 1, true)), "AdamW remembers");
        told(step_memory(|l, s, b| memory(l, s, b, 3, 3, 1, true)), "is missing");
        told(step_memory(|l, s, b| memory(l, s, b, 4, 2, 1, true)), "one is missing");
        told(step_memory(|l, s, b| memory(l, s, b, 4, 1, 1, true)), "two are missing");
        told(step_memory(|l, s, b| memory(l, s, b, 4, 3, 1, false)), "without padding");
        told(
            step_memory(|l, s, b| memory(l, s, b, 4, 3, 1, true) - 16 * l.iter().map(|layer| layer.1).sum::<u64>()),
            "a bias is a parameter",
        );
        told(
            step_memory(|l, s, b| {
                memory(l, s, b, 4, 3, 1, true) - memory(l, s, b, 0, 3, 0, true) + memory(l, s, 1, 0, 3, 0, true)
            }),
            "of its own",
        );
        // Only the first layer's side shrinks: right for one layer, wrong for two.
        told(
            step_memory(|l, s, b| {
                l.iter().map(|layer| memory(&[*layer], s, b, 4, 3, 0, true)).sum::<u64>() + 4 * b * l[0].0 * s * s
            }),
            "more than",
        );
        // Cheats: the figure of the lesson, and one for all.
        told(step_memory(|_, _, _| 114_391_552), "more than");
        told(step_memory(|_, _, _| 0), "less than");
        told(step_memory(|_, _, _| panic!("not written yet")), "panic");
    }

    #[test]
    fn texts_right_and_wrong() {
        assert!(sixteen_bit_gpu(|| 489).passed());
        told(sixteen_bit_gpu(|| 490), "does not fit whole");
        told(sixteen_bit_gpu(|| 533), "before the first text");
        told(sixteen_bit_gpu(|| ((24e9 - 12.0 * 124_439_808.0) / 45e6) as u64), "4 bytes per parameter");
        told(sixteen_bit_gpu(|| ((24e9 - 8.0 * 124_439_808.0) / 45e6) as u64), "half of what");
        told(sixteen_bit_gpu(|| ((24e9 - 4.0 * 124_439_808.0) / 45e6) as u64), "what the GPU's products use");
        told(sixteen_bit_gpu(|| ((24e9 - 20.0 * 124_439_808.0) / 45e6) as u64), "counted them as f32");
        told(sixteen_bit_gpu(|| ((24.0 * 1073741824.0 - 16.0 * 124_439_808.0) / 45e6) as u64), "not GiB");
        // Cheats: nothing, and everything.
        told(sixteen_bit_gpu(|| 0), "first the bytes");
        told(sixteen_bit_gpu(|| u64::MAX), "first the bytes");
    }

    type Lists<'a> = &'a [Vec<AlgoPerf>];

    /// The best of those that `fits` lets pass, by a key.
    fn each(
        lists: Lists,
        fits: impl Fn(&AlgoPerf) -> bool,
        key: impl Fn(&AlgoPerf) -> (f64, u64),
    ) -> Option<Vec<usize>> {
        let one = |list: &Vec<AlgoPerf>| {
            let fitting = list.iter().enumerate().filter(|(_, a)| fits(a));
            let least = fitting.min_by(|(_, a), (_, b)| {
                let (a, b) = (key(a), key(b));
                a.0.total_cmp(&b.0).then(a.1.cmp(&b.1))
            });
            least.map(|(at, _)| at)
        };
        lists.iter().map(one).collect()
    }

    #[test]
    fn algorithms_right_and_wrong() {
        assert!(
            choose_algorithms(|lists, budget| each(lists, |a| a.workspace <= budget, |a| (a.us, a.workspace))).passed()
        );
        // Another shape: sorted, then the first that fits.
        let sorted = |lists: Lists, budget: u64| -> Option<Vec<usize>> {
            let mut chosen = Vec::new();
            for list in lists {
                let mut order: Vec<usize> = (0..list.len()).collect();
                order.sort_by(|&a, &b| {
                    list[a].us.total_cmp(&list[b].us).then(list[a].workspace.cmp(&list[b].workspace))
                });
                chosen.push(order.into_iter().find(|&at| list[at].workspace <= budget)?);
            }
            Some(chosen)
        };
        assert!(choose_algorithms(sorted).passed());
        // The budget shared out among the convolutions, as if all ran at once.
        let shared = |lists: Lists, budget: u64| {
            let mut left = budget;
            let mut chosen = Vec::new();
            for list in lists {
                let at = best(list, left)?;
                left -= list[at].workspace;
                chosen.push(at);
            }
            Some(chosen)
        };
        told(choose_algorithms(shared), "a faster one fits too");
        told(choose_algorithms(|lists, _| each(lists, |_| true, |a| (a.us, a.workspace))), "more than the buffer has");
        told(
            choose_algorithms(|lists, budget| each(lists, |a| a.workspace < budget, |a| (a.us, a.workspace))),
            "there is a choice that fits",
        );
        told(choose_algorithms(|lists, budget| each(lists, |a| a.workspace <= budget, |a| (a.us, 0))), "equal ones");
        told(
            choose_algorithms(|lists, budget| each(lists, |a| a.workspace <= budget, |a| (a.workspace as f64, 0))),
            "faster one",
        );
        told(
            choose_algorithms(|lists, budget| {
                each(lists, |a| a.workspace <= budget, |a| (a.us, a.workspace)).or(Some(vec![0; lists.len()]))
            }),
            "has no algorithm that fits",
        );
        // Cheats: always the first, never any, one number too many.
        told(choose_algorithms(|lists, _| Some(vec![0; lists.len()])), "more than the buffer has");
        told(choose_algorithms(|_, _| None), "there is a choice that fits");
        told(choose_algorithms(|lists, _| Some(vec![9; lists.len()])), "of that number");
        told(choose_algorithms(|lists, _| Some(vec![0; lists.len() + 1])), "one number for each");
    }
}
