// The network's sizes, and where its parameters lie in the one array that holds them all.
#pragma once

enum Sizes {
    IMAGE = 28, // pixels to a side
    C1 = 32,    // channels of the first convolution, 26 × 26
    SIDE1 = 26,
    C2 = 64, // of the second, 24 × 24
    SIDE2 = 24,
    POOLED = 12,
    WINDOWS = POOLED * POOLED,
    FEATURES = C2 * WINDOWS,
    HIDDEN = 128,
    CLASSES = 10,
};

// First element of each parameter, in the order of a checkpoint.
enum Parameters {
    CONV1_WEIGHT = 0,
    CONV1_BIAS = CONV1_WEIGHT + C1 * 9,
    CONV2_WEIGHT = CONV1_BIAS + C1,
    CONV2_BIAS = CONV2_WEIGHT + C2 * C1 * 9,
    FC1_WEIGHT = CONV2_BIAS + C2,
    FC1_BIAS = FC1_WEIGHT + HIDDEN * FEATURES,
    FC2_WEIGHT = FC1_BIAS + HIDDEN,
    FC2_BIAS = FC2_WEIGHT + CLASSES * HIDDEN,
    ALL = FC2_BIAS + CLASSES,
};

// The words that say where the training stands; they stay on the GPU, so that a step needs nothing from the host.
enum State {
    SEEN,    // images of this epoch that steps before this one took
    STEP,    // updates made, this step's included once its backward pass has begun
    BAD,     // 1: a gradient of this step is no finite number, and nothing is updated
    GOOD,    // steps in a row without one (fp16: when the loss scale grows)
    SKIPPED, // fp16: steps that were passed over
    BATCHES, // steps of this epoch before this one
    FIRST_BAD, // 1 + the first of them after which BAD was set
};

// Words of conv2's weight as the tensor cores' lanes read it: see `pack` in update.cu.
enum { PACKED = C2 * C1 * 9 };
