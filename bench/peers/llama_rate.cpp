// Seconds in which llama.cpp continues many prompts at once, greedily, from the first token that is
// read to the last that is written; caches and attention as it sets them by default.
//
//   c++ -O2 bench/peers/llama_rate.cpp -o build/llama_rate -I LLAMA/include -I LLAMA/ggml/include
//       -L LLAMA/build/bin -lllama -lggml -lggml-base -Wl,-rpath,LLAMA/build/bin
//   build/llama_rate model.gguf PROMPTS PROMPT_TOKENS NEW_TOKENS THREADS
//
// LLAMA is a tree of llama.cpp in which `cmake -B build && cmake --build build --target llama` was
// run. It prints one JSON object.
#include <llama.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

static void quiet(ggml_log_level level, const char *text, void *)
{
    if (level == GGML_LOG_LEVEL_ERROR)
        fputs(text, stderr);
}

static void batch_add(llama_batch &batch, llama_token id, int position, int sequence, bool ends)
{
    int i = batch.n_tokens++;
    batch.token[i] = id;
    batch.pos[i] = position;
    batch.n_seq_id[i] = 1;
    batch.seq_id[i][0] = sequence;
    batch.logits[i] = ends;
}

static llama_token likeliest(llama_context *context, int row, int vocabulary)
{
    const float *logits = llama_get_logits_ith(context, row);
    return (llama_token)(std::max_element(logits, logits + vocabulary) - logits);
}

static bool generate(llama_context *context, int vocabulary, int prompts, int read, int written)
{
    llama_batch batch = llama_batch_init(prompts * std::max(read, 1), 0, 1);
    std::vector<int> rows(prompts);
    bool good = true;
    for (int s = 0; s < prompts; s++)
        for (int t = 0; t < read; t++) {
            rows[s] = batch.n_tokens;
            batch_add(batch, (s * 7 + t * t) % 256, t, s, t + 1 == read);
        }
    for (int t = 0; t < written && good; t++) {
        good = llama_decode(context, batch) == 0;
        std::vector<llama_token> drawn(prompts);
        for (int s = 0; s < prompts && good; s++)
            drawn[s] = likeliest(context, rows[s], vocabulary);
        batch.n_tokens = 0;
        for (int s = 0; s < prompts && good; s++) {
            rows[s] = s;
            batch_add(batch, drawn[s], read + t, s, true);
        }
    }
    llama_batch_free(batch);
    return good;
}

int main(int argc, char **argv)
{
    llama_log_set(quiet, nullptr);
    if (argc != 6) {
        fprintf(stderr, "usage: llama_rate MODEL.gguf PROMPTS PROMPT_TOKENS NEW_TOKENS THREADS\n");
        return 2;
    }
    int prompts = atoi(argv[2]), read = atoi(argv[3]), written = atoi(argv[4]);
    llama_model *model = llama_model_load_from_file(argv[1], llama_model_default_params());
    llama_context_params how = llama_context_default_params();
    how.n_ctx = (uint32_t)(prompts * (read + written));
    how.n_batch = (uint32_t)(prompts * read);
    how.n_seq_max = (uint32_t)prompts;
    how.n_threads = how.n_threads_batch = atoi(argv[5]);
    llama_context *context = model ? llama_init_from_model(model, how) : nullptr;
    if (!context) {
        fprintf(stderr, "llama_rate: %s cannot be run\n", argv[1]);
        return 1;
    }
    int vocabulary = llama_vocab_n_tokens(llama_model_get_vocab(model));
    auto begin = std::chrono::steady_clock::now();
    bool good = generate(context, vocabulary, prompts, read, written);
    std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    llama_free(context);
    llama_model_free(model);
    if (!good) {
        fprintf(stderr, "llama_rate: a step failed\n");
        return 1;
    }
    printf("{\"prompts\": %d, \"rate\": %.3f}\n", prompts, prompts * written / seconds.count());
    return 0;
}
