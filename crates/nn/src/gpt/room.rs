//! A batch that is larger than the CPU's memory: refused before it is read, as a failed allocation would end the process there.

use super::Gpt;
use gpulab::cpu;
use gpulab::error::{Error, Result, bytes};
use candle_core::DType;

impl Gpt {
    /// Bytes that a text needs while its prompt of `prompt` tokens is read, with room for `room` in the cache: keys and values
    /// of all layers, and of one layer its scores (three tables of them at a time) and the wide middle of the feed-forward layer.
    fn bytes_a_text(&self, prompt: usize, room: usize) -> u64 {
        let (config, number) = (self.config(), self.kind().size_in_bytes());
        let cache = 2 * config.n_layer * room * config.n_embd * number;
        let scores = 3 * config.n_head * prompt * prompt * DType::F32.size_in_bytes();
        // Of four widths each: before and after GELU; of one: what comes in, its norm, and the like.
        let rows = prompt * config.n_embd * (2 * 4 + 4) * number;
        (cache + scores.max(rows) + config.vocab_size * DType::F32.size_in_bytes()) as u64
    }

    /// An error when the CPU's memory cannot hold that many texts.
    pub(super) fn room_for(&self, texts: usize, prompt: usize, room: usize) -> Result<()> {
        let info = cpu::info();
        let memory = [info.memory_bytes, info.memory_limit_bytes].into_iter().flatten().min();
        match memory {
            Some(memory) if self.device().is_cpu() => check(self.bytes_a_text(prompt, room), texts as u64, memory),
            // A GPU says so itself, and nothing is lost.
            _ => Ok(()),
        }
    }
}

fn check(a_text: u64, texts: u64, memory: u64) -> Result<()> {
    // A tenth is for the rest of the machine.
    let fits = memory / 10 * 9 / a_text;
    if texts <= fits {
        return Ok(());
    }
    Err(Error::Invalid {
        what: format!(
            "a batch of {texts} texts does not fit into memory: it needs about {} of {}",
            bytes(texts.saturating_mul(a_text)),
            bytes(memory)
        ),
        fix: match fits {
            0 => "not even one text fits: use a shorter prompt, or a smaller model".to_string(),
            _ => format!("use a batch of {fits} or less, or shorter texts"),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::super::{Config, Weights};
    use super::*;
    use candle_core::Device;

    #[test]
    fn a_batch_that_is_too_large_is_told_the_largest_that_fits() {
        check(1 << 20, 900, 1 << 30).unwrap();
        let text = check(1 << 20, 1000, 1 << 30).unwrap_err().to_string();
        assert!(
            text.contains("1000 texts") && text.contains("of 1.00 GiB\nnext: use a batch of 921 or less"),
            "{text}"
        );
        assert!(check(1 << 20, 1, 1 << 10).unwrap_err().to_string().contains("not even one"));
    }

    #[test]
    fn what_a_text_needs_grows_with_its_length() {
        let config = Config { n_layer: 2, n_head: 2, n_embd: 8, n_ctx: 64, vocab_size: 256 };
        let gpt = Gpt::new(&Weights::random(config, 1).unwrap(), &Device::Cpu, DType::F32).unwrap();
        assert_eq!(gpt.bytes_a_text(1, 10), 2 * 2 * 10 * 8 * 4 + 8 * 12 * 4 + 1024);
        assert_eq!(gpt.bytes_a_text(64, 64), 2 * 2 * 64 * 8 * 4 + 3 * 2 * 64 * 64 * 4 + 1024);
        gpt.room_for(64, 64, 64).unwrap();
        assert!(gpt.room_for(usize::MAX / 1024, 64, 64).is_err());
    }
}
