//! The experiments: which kernel, which sliders, and what a value of theirs means for the launch.

use warpsim::Launch;

/// An experiment of a page.
#[derive(Debug)]
pub struct Experiment {
    /// Its name in the page's address.
    pub name: &'static str,
    /// Its heading.
    pub title: &'static str,
    /// What to try and to look for, in a sentence or two.
    pub task: &'static str,
    /// The lesson that explains it, by the name of its notebook.
    pub lesson: &'static str,
    /// The kernel's name in the source.
    pub entry: &'static str,
    /// Its parameters' names, in order.
    pub parameters: &'static [&'static str],
    /// Where its source, or its sources, come from.
    pub origins: &'static [Origin],
    /// What the reader can move.
    pub sliders: &'static [Slider],
    /// The launch for the sliders' values, one for each of them and one of those listed there.
    pub setting: fn(&[i64]) -> Setting,
}

/// Where a kernel's source stands.
#[derive(Debug, Clone, Copy)]
pub enum Origin {
    /// A code cell of the lesson's notebook.
    Cell,
    /// A rung of a ladder, such as `reduction/03_whole_warps`.
    Rung(&'static str),
}

/// A number that the reader sets.
#[derive(Debug)]
pub struct Slider {
    /// What stands beside it.
    pub label: &'static str,
    /// What it can be, in the order of the slider.
    pub values: &'static [i64],
    /// Words in place of the numbers, if there are any.
    pub words: &'static [&'static str],
    /// Where it stands at first: an index of `values`.
    pub first: usize,
}

/// A launch, and the picture of it.
#[derive(Debug)]
pub struct Setting {
    /// Which of the origins.
    pub kernel: usize,
    /// Its grid and blocks.
    pub launch: Launch,
    /// Its arguments.
    pub args: Vec<Given>,
    /// What is drawn.
    pub drawn: Drawn,
}

/// An argument of a kernel.
#[derive(Debug, Clone, Copy)]
pub enum Given {
    /// A number.
    I32(i32),
    /// A buffer of f32, filled with numbers or left as it was allocated.
    Floats {
        /// How many.
        elements: usize,
        /// Whether there is anything in it.
        written: bool,
    },
}

/// A picture of [`gpulab_inspect`].
#[derive(Debug)]
pub enum Drawn {
    /// Blocks, warps, threads.
    Launch,
    /// An access against 32-byte sectors.
    Sectors(String),
    /// An access against the 32 banks of shared memory.
    Banks(String),
    /// The source as a heat map.
    Source,
}

const SIDES: &[i64] = &[32, 64, 128, 256, 512, 1024];
/// Threads of a block of the reductions: a constant in their PTX.
pub const THREADS: u32 = 256;

const fn read(elements: usize) -> Given {
    Given::Floats { elements, written: true }
}

const fn to_write(elements: usize) -> Given {
    Given::Floats { elements, written: false }
}

/// All of them, in the order of the page.
pub const EXPERIMENTS: &[Experiment] = &[
    Experiment {
        name: "launch",
        title: "Blocks, warps and threads of a launch",
        task: "A thread adds one pair of elements. Make the blocks larger and smaller, and the vectors longer: when does a \
               launch have threads to spare, and who keeps them from writing past the end?",
        lesson: "00_welcome",
        entry: "vector_add",
        parameters: &["a", "b", "c", "n"],
        origins: &[Origin::Cell],
        sliders: &[
            Slider { label: "elements", values: &[1, 31, 32, 33, 100, 500, 1000, 2000, 4000], words: &[], first: 6 },
            Slider { label: "threads per block", values: SIDES, words: &[], first: 3 },
        ],
        setting: |values| {
            let (n, block) = (values[0] as usize, values[1] as u32);
            Setting {
                kernel: 0,
                launch: Launch::linear((n as u32).div_ceil(block), block),
                args: vec![read(n), read(n), to_write(n), Given::I32(n as i32)],
                drawn: Drawn::Launch,
            }
        },
    },
    Experiment {
        name: "sectors",
        title: "A stride, and the sectors that a warp fetches",
        task: "Each thread reads one float, `stride` elements from its neighbour's. A warp uses 128 bytes whatever the stride is; \
               how many does it fetch, and from which stride on does that no longer grow?",
        lesson: "10_vector_add",
        entry: "strided",
        parameters: &["a", "c", "n", "stride"],
        origins: &[Origin::Cell],
        sliders: &[Slider {
            label: "stride",
            values: &[1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 16, 24, 32],
            words: &[],
            first: 1,
        }],
        setting: |values| {
            let (n, stride) = (1024, values[0] as usize);
            Setting {
                kernel: 0,
                launch: Launch::linear(4, 256),
                args: vec![read(n * stride), to_write(n), Given::I32(n as i32), Given::I32(stride as i32)],
                drawn: Drawn::Sectors("a[i * stride]".to_string()),
            }
        },
    },
    Experiment {
        name: "divergence",
        title: "Two paths through one warp",
        task: "`run` neighbouring threads take the same path, the next `run` take the other one. Which values let a warp take \
               only one of them? Look at the lanes that are active in lines 6 and 8.",
        lesson: "10_vector_add",
        entry: "two_ways",
        parameters: &["x", "n", "run"],
        origins: &[Origin::Cell],
        sliders: &[Slider { label: "run", values: &[1, 2, 4, 8, 16, 24, 32, 48, 64], words: &[], first: 0 }],
        setting: |values| Setting {
            kernel: 0,
            launch: Launch::linear(4, 256),
            args: vec![read(1024), Given::I32(1024), Given::I32(values[0] as i32)],
            drawn: Drawn::Source,
        },
    },
    Experiment {
        name: "banks",
        title: "A tree of sums in shared memory, and its bank conflicts",
        task: "A block adds its numbers in a tree, step by step. In which rung do the lanes of a warp meet in the same bank, and \
               how does that change from step to step?",
        lesson: "11_reduction",
        entry: "reduce",
        parameters: &["a", "partial", "n"],
        origins: &[
            Origin::Rung("reduction/02_tree"),
            Origin::Rung("reduction/03_whole_warps"),
            Origin::Rung("reduction/04_no_conflicts"),
        ],
        sliders: &[
            Slider {
                label: "rung",
                values: &[0, 1, 2],
                words: &["02 tree", "03 whole warps", "04 no conflicts"],
                first: 1,
            },
            Slider { label: "step", values: &[1, 2, 3, 4], words: &[], first: 1 },
        ],
        setting: |values| {
            let (rung, step) = (values[0] as usize, values[1]);
            let index = ["thread", "first", "thread"][rung];
            Setting {
                kernel: rung,
                launch: Launch::linear(4, THREADS),
                args: vec![read(1024), to_write(4), Given::I32(1024)],
                // A step loads twice: what it adds, and what it adds it to.
                drawn: Drawn::Banks(format!("load sums[{index}] #{}", 2 * step - 1)),
            }
        },
    },
];
