// Logits of llama.cpp, of every token of a text, in float32 throughout: no half-precision cache, no
// fused attention, one thread, one batch.
//
//   c++ -O2 bench/peers/llama_logits.cpp -o build/llama_logits -I LLAMA/include -I LLAMA/ggml/include
//       -L LLAMA/build/bin -lllama -lggml -lggml-base -Wl,-rpath,LLAMA/build/bin
//   build/llama_logits model.gguf ids.bin logits.bin
//
// LLAMA is a tree of llama.cpp in which `cmake -B build && cmake --build build --target llama` was
// run. ids.bin has int32 tokens; logits.bin gets float32 [tokens, vocabulary].
#include <llama.h>

#include <cstdio>
#include <vector>

static void quiet(ggml_log_level level, const char *text, void *)
{
    if (level == GGML_LOG_LEVEL_ERROR)
        fputs(text, stderr);
}

static std::vector<llama_token> tokens_read(const char *path)
{
    std::vector<llama_token> tokens;
    llama_token token;
    FILE *file = fopen(path, "rb");
    while (file && fread(&token, sizeof token, 1, file) == 1)
        tokens.push_back(token);
    if (file)
        fclose(file);
    return tokens;
}

static llama_context *context_make(llama_model *model, uint32_t tokens)
{
    llama_context_params how = llama_context_default_params();
    how.n_ctx = how.n_batch = how.n_ubatch = tokens;
    how.n_threads = how.n_threads_batch = 1;
    how.type_k = how.type_v = GGML_TYPE_F32;
    how.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;
    how.swa_full = true;
    return llama_init_from_model(model, how);
}

int main(int argc, char **argv)
{
    llama_log_set(quiet, nullptr);
    if (argc != 4) {
        fprintf(stderr, "usage: llama_logits MODEL.gguf IDS LOGITS\n");
        return 2;
    }
    std::vector<llama_token> tokens = tokens_read(argv[2]);
    llama_model_params how = llama_model_default_params();
    llama_model *model = llama_model_load_from_file(argv[1], how);
    llama_context *context =
        model && !tokens.empty() ? context_make(model, (uint32_t)tokens.size()) : nullptr;
    if (!context) {
        fprintf(stderr, "llama_logits: %s with %zu tokens cannot be run\n", argv[1], tokens.size());
        return 1;
    }
    llama_batch batch = llama_batch_init((int32_t)tokens.size(), 0, 1);
    batch.n_tokens = (int32_t)tokens.size();
    for (int i = 0; i < batch.n_tokens; i++) {
        batch.token[i] = tokens[(size_t)i];
        batch.pos[i] = i;
        batch.n_seq_id[i] = 1;
        batch.seq_id[i][0] = 0;
        batch.logits[i] = 1;
    }
    FILE *out = fopen(argv[3], "wb");
    bool good = out && llama_decode(context, batch) == 0;
    size_t vocabulary = (size_t)llama_vocab_n_tokens(llama_model_get_vocab(model));
    for (int i = 0; i < batch.n_tokens && good; i++)
        good = fwrite(llama_get_logits_ith(context, i), sizeof(float), vocabulary, out) ==
               vocabulary;
    good = out && fclose(out) == 0 && good;
    if (!good)
        fprintf(stderr, "llama_logits: %s: no logits\n", argv[1]);
    llama_batch_free(batch);
    llama_free(context);
    llama_model_free(model);
    return good ? 0 : 1;
}
