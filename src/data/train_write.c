/* A trained vocabulary as the files of Hugging Face's `tokenizers`: tokenizer.json, and
 * tokenizer_config.json with the token that ends a document. */
#include "data/train_private.h"

#include <lockstep/base/file.h>
#include <lockstep/base/json.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool data_train_pattern_known(const char *name)
{
    /* Those of tiktoken's first rank files have possessive repetitions, which Oniguruma, the reader
     * of tokenizer.json, takes for something else. */
    static const char *const names[] = {"gpt2", "llama3", "qwen", "o200k_base", "tekken"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(names[i], name) == 0)
            return true;
    return false;
}

/* ---- JSON ------------------------------------------------------------------------------------ */

struct writing {
    const struct data_vocabulary *vocabulary;
    const struct ls_train_tokenizer_config *config;
    char byte_text[256][3]; /* the character that stands for a byte, in UTF-8 */
};

static void byte_texts_init(struct writing *w)
{
    struct data_byte_map map;
    data_byte_map_init(&map);
    for (unsigned code = 0; code < sizeof map.byte_of / sizeof *map.byte_of; code++) {
        char *text = map.byte_of[code] >= 0 ? w->byte_text[map.byte_of[code]] : NULL;
        if (text && code < 0x80)
            text[0] = (char)code;
        else if (text)
            memcpy(text, (char[2]){(char)(0xc0 | code >> 6), (char)(0x80 | (code & 0x3f))}, 2);
    }
}

static void text_put(FILE *file, const char *text)
{
    ls_json_string(file, text, strlen(text));
}

/* A token as it is written; returns how many bytes of out[2 * LS_TRAIN_TOKEN_BYTES_MAX] it takes.
 */
static size_t token_text(const struct writing *w, int64_t id, char *out)
{
    const struct data_string token = data_vocabulary_token(w->vocabulary, id);
    size_t count = 0;
    if (id < w->config->special_count)
        return strlen(strcpy(out, w->config->special[id]));
    for (size_t i = 0; i < token.count; i++)
        for (const char *at = w->byte_text[token.bytes[i]]; *at; at++)
            out[count++] = *at;
    return count;
}

static void special_put(const struct writing *w, FILE *file)
{
    fputs("  \"added_tokens\": [", file);
    for (int i = 0; i < w->config->special_count; i++) {
        fprintf(file, "%s\n    {\"id\": %d, \"content\": ", i ? "," : "", i);
        text_put(file, w->config->special[i]);
        fputs(", \"single_word\": false, \"lstrip\": false, \"rstrip\": false, "
              "\"normalized\": false, \"special\": true}",
              file);
    }
    fputs("\n  ],\n", file);
}

static void byte_level_put(FILE *file, bool regex)
{
    fprintf(file,
            "{\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"trim_offsets\": true, "
            "\"use_regex\": %s}",
            regex ? "true" : "false");
}

static void split_put(const struct writing *w, FILE *file)
{
    bool gpt2 = strcmp(w->config->pattern, "gpt2") == 0;
    fputs("  \"pre_tokenizer\": ", file);
    if (!gpt2) {
        fputs("{\"type\": \"Sequence\", \"pretokenizers\": [\n"
              "    {\"type\": \"Split\", \"pattern\": {\"Regex\": ",
              file);
        text_put(file, data_pattern_named(w->config->pattern));
        fputs("}, \"behavior\": \"Isolated\", \"invert\": false},\n    ", file);
    }
    byte_level_put(file, gpt2);
    fputs(gpt2 ? ",\n" : "]},\n", file);
}

static void model_put(const struct writing *w, FILE *file)
{
    const struct data_vocabulary *vocabulary = w->vocabulary;
    char text[4 * LS_TRAIN_TOKEN_BYTES_MAX + 1];
    fputs("  \"model\": {\n    \"type\": \"BPE\", \"dropout\": null, \"unk_token\": null, "
          "\"continuing_subword_prefix\": null,\n    \"end_of_word_suffix\": null, \"fuse_unk\": "
          "false, \"byte_fallback\": false, \"ignore_merges\": false,\n    \"vocab\": {",
          file);
    for (int64_t id = 0; id < vocabulary->count; id++) {
        fputs(id ? ",\n      " : "\n      ", file);
        ls_json_string(file, text, token_text(w, id, text));
        fprintf(file, ": %lld", (long long)id);
    }
    fputs("\n    },\n    \"merges\": [", file);
    for (int64_t i = 0; i < vocabulary->merges_count; i++) {
        size_t left = token_text(w, vocabulary->merges[i].left, text);
        text[left] = ' ';
        size_t right = token_text(w, vocabulary->merges[i].right, text + left + 1);
        fputs(i ? ",\n      " : "\n      ", file);
        ls_json_string(file, text, left + 1 + right);
    }
    fputs("\n    ]\n  }\n", file);
}

static int tokenizer_write(const void *context, FILE *file, struct ls_error *error)
{
    (void)error;
    fputs("{\n  \"version\": \"1.0\",\n  \"truncation\": null,\n  \"padding\": null,\n", file);
    special_put(context, file);
    fputs("  \"normalizer\": null,\n", file);
    split_put(context, file);
    fputs("  \"post_processor\": null,\n  \"decoder\": ", file);
    byte_level_put(file, true);
    fputs(",\n", file);
    model_put(context, file);
    fputs("}\n", file);
    return LS_OK;
}

/* What ends a document, as whoever reads the files will find it. */
static const char *document_end(const struct ls_train_tokenizer_config *config)
{
    static const char *const names[] = {"<|endoftext|>", "<|end_of_text|>"};
    for (int i = 0; i < 2; i++)
        for (int k = 0; k < config->special_count; k++)
            if (strcmp(config->special[k], names[i]) == 0)
                return names[i];
    return config->special[0];
}

static int description_write(const void *context, FILE *file, struct ls_error *error)
{
    const struct writing *w = context;
    (void)error;
    fputs("{\n  \"tokenizer_class\": \"PreTrainedTokenizerFast\",\n  \"eos_token\": ", file);
    text_put(file, document_end(w->config));
    fputs(",\n  \"add_prefix_space\": false,\n  \"clean_up_tokenization_spaces\": false\n}\n",
          file);
    return LS_OK;
}

/* ---- files ----------------------------------------------------------------------------------- */

static int file_write(const struct writing *w, const char *name, ls_writer *write,
                      struct ls_atomic_file *file, struct ls_error *error)
{
    char path[PATH_MAX], *text = NULL;
    size_t bytes = 0;
    int status = ls_text_write(write, w, &text, &bytes, error);
    if (!status && bytes > LS_VOCABULARY_BYTES_MAX)
        status = ls_error_set(error, LS_EINVAL,
                              "%s would have %zu bytes, and at most %d are read: use a smaller "
                              "vocabulary",
                              name, bytes, LS_VOCABULARY_BYTES_MAX);
    if (!status)
        status = ls_path_join(path, w->config->output, name, error);
    if (!status) {
        status = ls_atomic_file_open(file, path, NULL, error);
        if (status)
            file->fd = -1;
    }
    if (!status)
        ls_atomic_file_write(file, text, bytes); /* the commit tells of a failure */
    free(text);
    return status;
}

/* The tokenizer comes last: without it the folder is none. */
int data_vocabulary_write(const struct data_vocabulary *vocabulary,
                          const struct ls_train_tokenizer_config *config, struct ls_error *error)
{
    struct writing w = {.vocabulary = vocabulary, .config = config};
    struct ls_atomic_file tokenizer = {.fd = -1}, description = {.fd = -1};
    byte_texts_init(&w);
    int status = file_write(&w, "tokenizer.json", tokenizer_write, &tokenizer, error);
    if (!status)
        status = file_write(&w, "tokenizer_config.json", description_write, &description, error);
    if (!status)
        status = ls_atomic_file_commit(&description, error);
    if (!status)
        status = ls_atomic_file_commit(&tokenizer, error);
    ls_atomic_file_abort(&description);
    ls_atomic_file_abort(&tokenizer);
    return status;
}
