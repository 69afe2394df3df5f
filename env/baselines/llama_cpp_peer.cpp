// llama.cpp's side of record_llama_cpp.py, which asks line by line as it asks crates/nn/examples/llama_speed.rs. What is timed is
// what llama-bench times: llama_decode and its end, without sampling.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "llama.h"

static llama_context *context;

static void fail(const char *what) {
    fprintf(stderr, "llama.cpp: %s\n", what);
    exit(1);
}

static llama_token token(int i) { return 100 + i * 7 % 101; }

// `texts` texts get `count` tokens each behind the `first` that they have; logits after the last.
static void read(int texts, int first, int count) {
    llama_batch batch = llama_batch_init(texts * count, 0, 1);
    for (int text = 0; text < texts; text++)
        for (int i = 0; i < count; i++) {
            int at = batch.n_tokens++;
            batch.token[at] = token(first + i);
            batch.pos[at] = first + i;
            batch.n_seq_id[at] = 1;
            batch.seq_id[at][0] = text;
            batch.logits[at] = i + 1 == count;
        }
    if (llama_decode(context, batch) != 0) fail("a batch could not be decoded");
    llama_synchronize(context);
    llama_batch_free(batch);
}

static double ms_since(std::chrono::steady_clock::time_point begin) {
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
}

// GB/s at which these threads read memory: the best of some passes over more than the caches hold.
static double read_rate(int threads) {
    std::vector<unsigned long> all(64 << 20, 1);
    double best = 0;
    for (int pass = 0; pass < 5; pass++) {
        unsigned long sum = 0;
        auto begin = std::chrono::steady_clock::now();
#pragma omp parallel for simd reduction(+ : sum) schedule(static) num_threads(threads)
        for (size_t i = 0; i < all.size(); i++) sum += all[i];
        double rate = 8e-6 * all.size() / ms_since(begin);
        if (sum != all.size()) fail("memory was not read");
        if (rate > best) best = rate;
    }
    return best;
}

int main(int arguments, char **argument) {
    if (arguments != 3) fail("give a GGUF file and how many threads");
    llama_log_set([](ggml_log_level level, const char *text, void *) {
        if (level == GGML_LOG_LEVEL_ERROR) fputs(text, stderr);
    }, nullptr);
    llama_backend_init();
    llama_model *model = llama_model_load_from_file(argument[1], llama_model_default_params());
    if (!model) fail("the model could not be loaded");
    llama_context_params params = llama_context_default_params();
    params.n_ctx = 16384;
    params.n_batch = 8192;
    params.n_ubatch = 512;
    params.n_seq_max = 16;
    params.kv_unified = false;
    params.n_threads = params.n_threads_batch = atoi(argument[2]);
    context = llama_init_from_model(model, params);
    if (!context) fail("there is no context");
    llama_memory_t memory = llama_get_memory(context);

    int known[2] = {0, 0};
    char line[256];
    while (fgets(line, sizeof line, stdin)) {
        int one, two, three;
        double answer;
        if (sscanf(line, "prefill %d", &one) == 1) {
            llama_memory_clear(memory, false);
            known[0] = 0;
            auto begin = std::chrono::steady_clock::now();
            read(1, 0, one);
            answer = ms_since(begin);
        } else if (sscanf(line, "decode %d %d %d", &one, &two, &three) == 3) {
            if (known[0] != one || known[1] != two) {
                llama_memory_clear(memory, false);
                for (int at = 0; at < two; at += 64) read(one, at, two - at < 64 ? two - at : 64);
                known[0] = one;
                known[1] = two;
            }
            for (int text = 0; text < one; text++) llama_memory_seq_rm(memory, text, two, -1);
            auto begin = std::chrono::steady_clock::now();
            for (int step = 0; step < three; step++) read(one, two + step, 1);
            answer = ms_since(begin) / three;
        } else if (strncmp(line, "read", 4) == 0) {
            answer = read_rate(params.n_threads);
        } else if (strncmp(line, "bytes", 5) == 0) {
            answer = (double)llama_model_size(model);
        } else {
            fail("that is no question");
        }
        printf("%g\n", answer);
        fflush(stdout);
    }
    llama_free(context);
    llama_model_free(model);
}
