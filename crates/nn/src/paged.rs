//! Keys and values of many texts in the blocks of one pool, so that texts of any lengths take part in one step, and texts that begin
//! alike may share blocks (paged attention).

use crate::attention::{HIDDEN, causal_mask, grouped_attention};
use crate::cached::{Asked, KeysValues, Reader};
use candle_core::{DType, Device, Tensor};
use gpulab::error::{Error, Result};
use gpulab_kernels::engine::TextPart;

/// Keys and values in blocks of `block_size` tokens. Who holds which block is decided elsewhere.
#[derive(Debug)]
pub struct PagedCache {
    /// Of each layer, `[kv_heads, blocks · block_size, head_dim]`.
    layers: Vec<(Tensor, Tensor)>,
    blocks: usize,
    block_size: usize,
}

impl PagedCache {
    /// Memory for `blocks` blocks, with `kv_heads` keys and values of `head_dim` numbers for each token in a layer.
    pub(crate) fn new(
        (layers, kv_heads, head_dim): (usize, usize, usize),
        (blocks, block_size): (usize, usize),
        dtype: DType,
        device: &Device,
    ) -> Result<PagedCache> {
        let shape = (kv_heads, blocks * block_size, head_dim);
        let layer = |_| Ok((Tensor::zeros(shape, dtype, device)?, Tensor::zeros(shape, dtype, device)?));
        Ok(PagedCache { layers: (0..layers).map(layer).collect::<Result<_>>()?, blocks, block_size })
    }

    /// Bytes of keys and values: 2 · layers · blocks · block_size · heads · head dimension numbers.
    pub fn bytes(&self) -> usize {
        let bytes = |tensor: &Tensor| tensor.elem_count() * tensor.dtype().size_in_bytes();
        self.layers.iter().map(|(k, v)| bytes(k) + bytes(v)).sum()
    }

    /// What a step needs of the cache in each layer.
    pub(crate) fn step(&self, parts: &[TextPart<'_>], device: &Device) -> Result<PagedStep<'_>> {
        let (mut groups, mut writes, mut row) = (Vec::new(), Vec::new(), 0);
        // Texts of which one token is read are one product, however long each of them is.
        let mut single = Group::default();
        for part in parts {
            self.check(part)?;
            let slot = |position: usize| part.blocks[position / self.block_size] as usize * self.block_size;
            let (mut at, end) = (part.first, part.first + part.tokens.len());
            while at < end {
                let within = at % self.block_size;
                let count = (self.block_size - within).min(end - at);
                writes.push(Write { row: row + at - part.first, slot: slot(at) + within, count });
                at += count;
            }
            let slots = (0..end).map(|position| (slot(position) + position % self.block_size) as u32).collect();
            let mut alone = Group::default();
            let group = if part.tokens.len() == 1 { &mut single } else { &mut alone };
            group.rows.extend((row..row + part.tokens.len()).map(|row| row as u32));
            group.slots.push(slots);
            groups.extend((part.tokens.len() > 1).then_some(alone));
            row += part.tokens.len();
        }
        groups.extend((!single.rows.is_empty()).then_some(single));
        let order: Vec<u32> = groups.iter().flat_map(|group| group.rows.iter().copied()).collect();
        let mut back = vec![0_u32; row];
        order.iter().zip(0..).for_each(|(row, at)| back[*row as usize] = at);
        let back = match order.is_sorted() {
            true => None,
            false => Some(Tensor::from_vec(back, row, device)?),
        };
        let groups = groups.iter().map(|group| group.ready(device)).collect::<Result<_>>()?;
        Ok(PagedStep { cache: self, writes, groups, back })
    }

    /// The parts as the CPU's steps read them.
    pub(crate) fn readers<'a>(&self, parts: &[TextPart<'a>]) -> Result<Vec<Reader<'a>>> {
        let of = |part: &TextPart<'a>| {
            self.check(part)?;
            let (mut runs, mut left) = (Vec::<(usize, usize)>::new(), part.first + part.tokens.len());
            for block in part.blocks {
                let (slot, count) = (*block as usize * self.block_size, left.min(self.block_size));
                match runs.last_mut() {
                    // Blocks beside each other are one run.
                    Some((start, length)) if *start + *length == slot => *length += count,
                    _ => runs.push((slot, count)),
                }
                left -= count;
                if left == 0 {
                    break;
                }
            }
            let asked = if part.samples { Asked::Last } else { Asked::None };
            Ok(Reader { tokens: part.tokens, first: part.first, runs, asked })
        };
        parts.iter().map(of).collect()
    }

    /// All keys and values.
    pub(crate) fn all(&self) -> KeysValues<'_> {
        KeysValues { layers: &self.layers, head_slots: self.blocks * self.block_size }
    }

    fn check(&self, part: &TextPart<'_>) -> Result<()> {
        let end = part.first + part.tokens.len();
        let unknown = part.blocks.iter().any(|block| *block as usize >= self.blocks);
        if part.tokens.is_empty() || unknown || end > part.blocks.len() * self.block_size {
            return Err(Error::invalid(
                format!(
                    "{} tokens at position {} of a text do not fit into its {} blocks of {} tokens",
                    part.tokens.len(),
                    part.first,
                    part.blocks.len(),
                    self.block_size
                ),
                format!("give at least one token, and blocks below {} for all positions", self.blocks),
            ));
        }
        Ok(())
    }
}

/// Texts of which as many tokens are read: which rows of the step these are, and where each text's keys are.
#[derive(Default)]
struct Group {
    rows: Vec<u32>,
    slots: Vec<Vec<u32>>,
}

impl Group {
    fn ready(&self, device: &Device) -> Result<ReadyGroup> {
        let (texts, keys) = (self.slots.len(), self.slots.iter().map(Vec::len).max().unwrap_or(0));
        let length = self.rows.len() / texts;
        // Shorter texts are filled up with slot 0, which is hidden from them.
        let filled = |slots: &Vec<u32>| slots.clone().into_iter().chain(std::iter::repeat_n(0, keys - slots.len()));
        let slots: Vec<u32> = self.slots.iter().flat_map(filled).collect();
        let mask = if length > 1 {
            Some(causal_mask(length, keys - length, device)?)
        } else if self.slots.iter().any(|slots| slots.len() < keys) {
            let seen = |slots: &Vec<u32>| {
                let own = slots.len();
                (0..keys).map(move |key| if key < own { 0.0 } else { HIDDEN })
            };
            let mask: Vec<f32> = self.slots.iter().flat_map(seen).collect();
            Some(Tensor::from_vec(mask, (texts, 1, 1, keys), device)?)
        } else {
            None
        };
        Ok(ReadyGroup {
            rows: Tensor::from_slice(&self.rows, self.rows.len(), device)?,
            slots: Tensor::from_vec(slots, texts * keys, device)?,
            shape: (texts, length, keys),
            mask,
        })
    }
}

struct ReadyGroup {
    rows: Tensor,
    slots: Tensor,
    /// Texts, tokens of each that are read, keys.
    shape: (usize, usize, usize),
    mask: Option<Tensor>,
}

struct Write {
    row: usize,
    slot: usize,
    count: usize,
}

/// One step: the same in all layers.
pub(crate) struct PagedStep<'a> {
    cache: &'a PagedCache,
    writes: Vec<Write>,
    groups: Vec<ReadyGroup>,
    /// Where each row of the step is among the groups' rows; nothing where they have its order.
    back: Option<Tensor>,
}

impl PagedStep<'_> {
    /// Writes a layer's new keys and values, `[1, kv_heads, rows, head_dim]`, and gives each row of `q`, `[1, heads, rows, head_dim]`,
    /// what it gathers from its own text: the shape of `q`.
    pub(crate) fn attend(&self, layer: usize, q: &Tensor, k: &Tensor, v: &Tensor) -> Result<Tensor> {
        let (keys, values) = &self.cache.layers[layer];
        for (to, from) in [(keys, k.squeeze(0)?), (values, v.squeeze(0)?)] {
            for write in &self.writes {
                to.slice_set(&from.narrow(1, write.row, write.count)?.contiguous()?, 1, write.slot)?;
            }
        }
        let (q, (_, heads, _, d)) = (q.squeeze(0)?, q.dims4()?);
        let mut gathered = Vec::new();
        for group in &self.groups {
            let (texts, length, count) = group.shape;
            let of_texts = |all: &Tensor, slots: &Tensor, length: usize| -> Result<Tensor> {
                let rows = all.index_select(slots, 1)?.reshape((all.dim(0)?, texts, length, d))?;
                Ok(rows.transpose(0, 1)?.contiguous()?)
            };
            let (k, v) = (of_texts(keys, &group.slots, count)?, of_texts(values, &group.slots, count)?);
            let seen = grouped_attention(&of_texts(&q, &group.rows, length)?, &k, &v, group.mask.as_ref())?;
            gathered.push(seen.transpose(0, 1)?.reshape((heads, texts * length, d))?);
        }
        let gathered = Tensor::cat(&gathered, 1)?;
        let gathered = match &self.back {
            Some(back) => gathered.index_select(back, 1)?,
            None => gathered,
        };
        Ok(gathered.unsqueeze(0)?)
    }
}

/// The tokens of all parts, their positions, and which rows are the last of parts that ask for logits.
pub(crate) fn rows(parts: &[TextPart<'_>], device: &Device) -> Result<(Tensor, Tensor, Tensor)> {
    let tokens: Vec<u32> = parts.iter().flat_map(|part| part.tokens.iter().copied()).collect();
    let positions = parts.iter().flat_map(|part| (part.first..part.first + part.tokens.len()).map(|at| at as u32));
    let positions: Vec<u32> = positions.collect();
    let mut end = 0;
    let ends = parts.iter().filter_map(|part| {
        end += part.tokens.len();
        part.samples.then_some(end as u32 - 1)
    });
    let ends: Vec<u32> = ends.collect();
    let (count, asked) = (tokens.len(), ends.len());
    Ok((
        Tensor::from_vec(tokens, (1, count), device)?,
        Tensor::from_vec(positions, count, device)?,
        Tensor::from_vec(ends, asked, device)?,
    ))
}

#[cfg(test)]
mod tests;
