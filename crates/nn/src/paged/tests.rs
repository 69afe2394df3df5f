use super::*;
use crate::gpt::{Config, Gpt, Weights};
use crate::llama::{ChatModel, WeightDtype};

/// A model by its two paths to the same logits.
trait BothPaths {
    fn cache(&self, blocks: usize, block_size: usize) -> PagedCache;
    fn paged(&self, parts: &[TextPart<'_>], cache: &PagedCache) -> Result<Tensor>;
    /// After each token of a text.
    fn plain(&self, text: &[u32]) -> Vec<Vec<f32>>;
}

impl BothPaths for Gpt {
    fn cache(&self, blocks: usize, block_size: usize) -> PagedCache {
        self.paged_cache(blocks, block_size).unwrap()
    }
    fn paged(&self, parts: &[TextPart<'_>], cache: &PagedCache) -> Result<Tensor> {
        self.paged_step(parts, cache)
    }
    fn plain(&self, text: &[u32]) -> Vec<Vec<f32>> {
        let tokens = Tensor::from_slice(text, (1, text.len()), &Device::Cpu).unwrap();
        self.logits(&tokens).unwrap().squeeze(0).unwrap().to_vec2().unwrap()
    }
}

impl BothPaths for ChatModel {
    fn cache(&self, blocks: usize, block_size: usize) -> PagedCache {
        self.llama.paged_cache(blocks, block_size).unwrap()
    }
    fn paged(&self, parts: &[TextPart<'_>], cache: &PagedCache) -> Result<Tensor> {
        self.llama.paged_step(parts, cache)
    }
    fn plain(&self, text: &[u32]) -> Vec<Vec<f32>> {
        self.llama.logits(text).unwrap().to_vec2().unwrap()
    }
}

fn gpt() -> Gpt {
    let config = Config { n_layer: 2, n_head: 2, n_embd: 16, n_ctx: 64, vocab_size: 256 };
    Gpt::new(&Weights::random(config, 3).unwrap(), &Device::Cpu, DType::F32).unwrap()
}

/// Steps in which three texts take part with other lengths each, the blocks of one in no order, and one that shares a block.
/// `allowed` is a share of the largest logit.
fn steps_give_the_logits_of_whole_texts(model: &dyn BothPaths, allowed: f32) {
    let a: Vec<u32> = (0..13).map(|i| 60 + 7 * i).collect();
    let b: Vec<u32> = (0..9).map(|i| 200 - 11 * i).collect();
    // It begins as `a`, whose first block it uses.
    let c: Vec<u32> = a[..4].iter().copied().chain([99, 98, 97]).collect();
    let (of_a, of_b, of_c) = ([5, 0, 3, 7], [2, 6, 1], [5, 4]);
    let cache = model.cache(8, 4);
    let part = |text: &'static str, first: usize, count: usize, samples| (text, first, count, samples);
    let steps = [
        vec![part("a", 0, 5, false), part("b", 0, 6, true)],
        vec![part("b", 6, 1, true), part("a", 5, 7, true), part("c", 4, 2, false)],
        vec![part("a", 12, 1, true), part("b", 7, 1, true), part("c", 6, 1, true)],
        vec![part("b", 8, 1, true)],
    ];
    for step in steps {
        let texts = |name| match name {
            "a" => (&a, of_a.as_slice()),
            "b" => (&b, of_b.as_slice()),
            _ => (&c, of_c.as_slice()),
        };
        let parts: Vec<TextPart<'_>> = step
            .iter()
            .map(|(name, first, count, samples)| {
                let (text, blocks) = texts(name);
                TextPart { tokens: &text[*first..first + count], first: *first, blocks, samples: *samples }
            })
            .collect();
        let given = model.paged(&parts, &cache).unwrap().to_vec2::<f32>().unwrap();
        let asked = step.iter().filter(|(.., samples)| *samples);
        let mut seen = 0;
        for (row, (name, first, count, _)) in given.iter().zip(asked) {
            let wanted = &model.plain(texts(name).0)[first + count - 1];
            let off = row.iter().zip(wanted).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            let scale = wanted.iter().map(|x| x.abs()).fold(0.0, f32::max);
            assert!(off < allowed * scale && scale > 0.0, "{name} at {first}: {off} of {scale}");
            seen += 1;
        }
        assert_eq!(seen, step.iter().filter(|(.., samples)| *samples).count());
    }
}

#[test]
fn a_gpts_steps_give_the_logits_of_whole_texts() {
    steps_give_the_logits_of_whole_texts(&gpt(), 1e-3);
}

#[test]
fn a_llamas_steps_give_the_logits_of_whole_texts() {
    // Products by stored weights round their inputs to 8 bits: where the last bit of a sum in f32 differs, and which does depends
    // on the CPU, an input may come to lie a whole step away, 1/127 of the largest of its block.
    for (precision, allowed) in [(WeightDtype::Dense(DType::F32), 1e-3), (WeightDtype::AsStored, 3e-2)] {
        steps_give_the_logits_of_whole_texts(&ChatModel::practice(&Device::Cpu, precision).unwrap(), allowed);
    }
}

#[test]
fn what_does_not_fit_is_refused() {
    let gpt = gpt();
    let cache = gpt.paged_cache(4, 4).unwrap();
    assert_eq!(cache.bytes(), 2 * 2 * 16 * 16 * 4);
    let refused = |tokens: &[u32], first, blocks: &[u32]| {
        let error = gpt.paged_step(&[TextPart { tokens, first, blocks, samples: true }], &cache).unwrap_err();
        assert!(error.to_string().contains("\nnext: "), "{error}");
    };
    refused(&[], 0, &[0]);
    refused(&[1; 5], 0, &[0]);
    refused(&[1], 4, &[0]);
    refused(&[1], 0, &[4]);
    refused(&[256], 0, &[0]);
    refused(&[1; 4], 64, &[0; 17]);
}
