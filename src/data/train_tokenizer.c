/* Training of a tokenizer: words are counted, merged, and written. */
#include "data/train_private.h"

#include <lockstep/base/file.h>
#include <lockstep/base/json.h>
#include <lockstep/base/temporary.h>
#include <lockstep/data/corpus_tools.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <utf8proc.h>

/* ---- tokenizer.json -------------------------------------------------------------------------- */

/* Whether training splits by this pattern: one that tokenizer.json means as it is written. */
static bool data_train_pattern_known(const char *name)
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
        if (text)
            utf8proc_encode_char((utf8proc_int32_t)code, (utf8proc_uint8_t *)text);
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
    const struct data_string token = data_string(&w->vocabulary->tokens, id);
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
    for (int64_t id = 0; id < vocabulary->tokens.count; id++) {
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
    for (const char *const *end = data_document_ends; *end; end++)
        for (int k = 0; k < config->special_count; k++)
            if (strcmp(config->special[k], *end) == 0)
                return *end;
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
        status = ls_path_join(path, w->config->corpus.output, name, error);
    if (!status) {
        status = ls_atomic_file_open(file, path, NULL, error);
        if (status)
            file->fd = -1;
    }
    if (!status) {
        ls_atomic_file_hold(file);
        ls_atomic_file_write(file, text, bytes); /* the commit tells of a failure */
    }
    free(text);
    return status;
}

/* The tokenizer comes last: without it the folder is none. */
static int data_vocabulary_write(const struct data_vocabulary *vocabulary,
                                 const struct ls_train_tokenizer_config *config,
                                 struct ls_error *error)
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

enum { SPECIAL_BYTES_MAX = 1024 };

/* ---- what is asked for ----------------------------------------------------------------------- */

static int special_check(const struct ls_train_tokenizer_config *config, struct ls_error *error)
{
    if (config->special_count < 1 || config->special_count > LS_TRAIN_SPECIAL_MAX)
        return ls_error_set(error, LS_EINVAL,
                            "train-tokenizer: %d special tokens; expected 1 to %d",
                            config->special_count, LS_TRAIN_SPECIAL_MAX);
    for (int i = 0; i < config->special_count; i++) {
        const char *token = config->special[i];
        size_t bytes = strlen(token);
        if (bytes == 0 || bytes > SPECIAL_BYTES_MAX ||
            ls_utf8_valid((const unsigned char *)token, bytes) < bytes)
            return ls_error_set(error, LS_EINVAL,
                                "train-tokenizer: special token %d, \"%.100s\": expected 1 to %d "
                                "bytes of UTF-8",
                                i + 1, token, SPECIAL_BYTES_MAX);
        for (int k = 0; k < i; k++)
            if (strcmp(token, config->special[k]) == 0)
                return ls_error_set(error, LS_EINVAL,
                                    "train-tokenizer: the special token \"%.100s\" is given twice",
                                    token);
    }
    return LS_OK;
}

static int config_check(const struct ls_train_tokenizer_config *config, struct ls_error *error)
{
    int status = special_check(config, error);
    if (status)
        return status;
    if (!data_train_pattern_known(config->pattern))
        return ls_error_set(error, LS_EINVAL,
                            "train-tokenizer: pattern \"%.100s\": expected gpt2, llama3, qwen, "
                            "o200k_base or tekken",
                            config->pattern);
    if (config->vocabulary < 256 + config->special_count ||
        config->vocabulary > LS_TRAIN_VOCABULARY_MAX)
        return ls_error_set(error, LS_EINVAL,
                            "train-tokenizer: a vocabulary of %lld; expected %d (256 bytes and the "
                            "special tokens) to %d",
                            (long long)config->vocabulary, 256 + config->special_count,
                            LS_TRAIN_VOCABULARY_MAX);
    if (config->frequency_min < 1)
        return ls_error_set(error, LS_EINVAL,
                            "train-tokenizer: a least frequency of %lld; expected at least 1",
                            (long long)config->frequency_min);
    return LS_OK;
}

/* Before the work: the folder is there, or the one that it will be made in. */
static int output_check(const char *output, const struct data_corpus *corpus,
                        struct ls_error *error)
{
    static const char *const names[] = {"tokenizer.json", "tokenizer_config.json"};
    char path[PATH_MAX];
    struct stat found;
    int status = LS_OK;
    for (int i = 0; i < 2 && !status; i++) {
        status = ls_path_join(path, output, names[i], error);
        if (!status)
            status = data_corpus_spare(corpus, path, error);
    }
    if (status)
        return status;
    bool there = stat(output, &found) == 0;
    if (!there) {
        ls_path_parent(output, path);
        if (stat(path, &found) != 0)
            return ls_error_errno(error, errno, "%.300s: the folder to make %.300s in", path,
                                  output);
    }
    return S_ISDIR(found.st_mode)
               ? LS_OK
               : ls_error_set(error, LS_EIO, "%.300s: expected a folder", there ? output : path);
}

/* ---- the tokens to begin with ---------------------------------------------------------------- */

/* A special token whose characters all stand for bytes is the token that merges would make of
 * these; another one has none. */
static int tokens_begin(struct data_vocabulary *vocabulary,
                        const struct ls_train_tokenizer_config *config, struct ls_error *error)
{
    struct data_byte_map map;
    int32_t id;
    int status = data_strings_init(&vocabulary->tokens, config->vocabulary, 0, true, error);
    data_byte_map_init(&map);
    for (int i = 0; i < config->special_count && !status; i++) {
        unsigned char bytes[SPECIAL_BYTES_MAX];
        const char *text = config->special[i];
        size_t count, length = strlen(text);
        if (!data_byte_map_read(&map, (struct data_string){(const unsigned char *)text, length},
                                bytes, &count))
            count = 0;
        status =
            data_strings_add(&vocabulary->tokens, (struct data_string){bytes, count}, &id, error);
    }
    for (size_t code = 0; code < sizeof map.byte_of / sizeof *map.byte_of && !status; code++) {
        unsigned char byte = (unsigned char)map.byte_of[code];
        if (map.byte_of[code] >= 0)
            status = data_strings_add(&vocabulary->tokens, (struct data_string){&byte, 1},
                                      &vocabulary->byte_id[byte], error);
    }
    return status;
}

/* ---- all of it ------------------------------------------------------------------------------- */

static int vocabulary_write(const struct data_vocabulary *vocabulary,
                            const struct ls_train_tokenizer_config *config, struct ls_error *error)
{
    struct stat found;
    bool made = stat(config->corpus.output, &found) != 0;
    int status = ls_directory_add(config->corpus.output, NULL, error);
    if (!status)
        status = data_vocabulary_write(vocabulary, config, error);
    if (status && made)
        ls_directory_remove(config->corpus.output);
    return status;
}

static int train(const struct ls_train_tokenizer_config *config, struct data_corpus *corpus,
                 const struct data_splitter *splitter, struct data_vocabulary *vocabulary,
                 struct ls_train_tokenizer_report *report, struct ls_error *error)
{
    struct data_words words = {0};
    const struct data_merging how = {config->vocabulary, config->frequency_min,
                                     config->corpus.stop};
    double began_s = ls_now_s();
    int status = data_words_count(config, corpus, splitter, &words, report, error);
    if (!status && report->text_bytes == 0)
        status = ls_error_set(error, LS_EDATA,
                              "empty corpus: the inputs hold no text; nothing was written");
    report->count_seconds = ls_now_s() - began_s;
    if (!status)
        status = tokens_begin(vocabulary, config, error);
    if (!status)
        status = data_vocabulary_train(vocabulary, &words, &how, error);
    report->merge_seconds = ls_now_s() - began_s - report->count_seconds;
    data_words_release(&words);
    return status;
}

int ls_train_tokenizer(const struct ls_train_tokenizer_config *config,
                       struct ls_train_tokenizer_report *report, struct ls_error *error)
{
    struct data_reading reading = {.config = &config->corpus, .skipped = &report->skipped};
    struct data_corpus *corpus = NULL;
    struct data_splitter *splitter = NULL;
    struct data_vocabulary vocabulary = {0};
    *report = (struct ls_train_tokenizer_report){0};
    int status = config_check(config, error);
    if (!status)
        status = data_reading_open(&reading, &corpus, error);
    if (!status)
        status = output_check(config->corpus.output, corpus, error);
    if (!status)
        status = data_splitter_new(data_pattern_named(config->pattern), DATA_ONIGURUMA, true,
                                   &splitter, error);
    if (!status)
        status = train(config, corpus, splitter, &vocabulary, report, error);
    if (!status)
        status = vocabulary_write(&vocabulary, config, error);
    report->vocabulary = vocabulary.tokens.count;
    report->merges = vocabulary.merges_count;
    data_strings_release(&vocabulary.tokens);
    free(vocabulary.merges);
    data_splitter_free(splitter);
    data_corpus_close(corpus);
    return status;
}
