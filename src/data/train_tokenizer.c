/* Training of a tokenizer: words are counted, merged, and written. */
#include "data/train_private.h"

#include <lockstep/base/file.h>

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

enum { WORKERS_MAX = 1024, SPECIAL_BYTES_MAX = 1024 };

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
            data_utf8_valid((const unsigned char *)token, bytes) < bytes)
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
    if (config->inputs_count < 1)
        return ls_error_set(error, LS_EINVAL, "train-tokenizer: no input; name files or folders");
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
    if (config->workers < 1 || config->workers > WORKERS_MAX)
        return ls_error_set(error, LS_EINVAL, "train-tokenizer: %d workers; expected 1 to %d",
                            config->workers, WORKERS_MAX);
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

/* The bytes that the characters of a special token stand for, if all of them stand for one: it is
 * the token that merges would make of these. Otherwise none. */
static size_t special_bytes(const char *text, unsigned char *bytes)
{
    struct data_byte_map map;
    size_t count = 0;
    data_byte_map_init(&map);
    for (const unsigned char *at = (const unsigned char *)text; *at;) {
        size_t length;
        uint32_t code = data_utf8_decode(at, &length);
        if (code >= sizeof map.byte_of / sizeof *map.byte_of || map.byte_of[code] < 0)
            return 0;
        bytes[count++] = (unsigned char)map.byte_of[code];
        at += length;
    }
    return count;
}

static int tokens_begin(struct data_vocabulary *vocabulary,
                        const struct ls_train_tokenizer_config *config, struct ls_error *error)
{
    struct data_byte_map map;
    int32_t id;
    int status = data_vocabulary_init(vocabulary, config->vocabulary, error);
    for (int i = 0; i < config->special_count && !status; i++) {
        unsigned char bytes[SPECIAL_BYTES_MAX];
        size_t count = special_bytes(config->special[i], bytes);
        status = data_vocabulary_add(vocabulary, (struct data_string){bytes, count}, &id, error);
    }
    data_byte_map_init(&map);
    for (size_t code = 0; code < sizeof map.byte_of / sizeof *map.byte_of && !status; code++) {
        unsigned char byte = (unsigned char)map.byte_of[code];
        if (map.byte_of[code] >= 0)
            status = data_vocabulary_add(vocabulary, (struct data_string){&byte, 1},
                                         &vocabulary->byte_id[byte], error);
    }
    return status;
}

/* ---- all of it ------------------------------------------------------------------------------- */

static int vocabulary_write(const struct data_vocabulary *vocabulary,
                            const struct ls_train_tokenizer_config *config, struct ls_error *error)
{
    struct stat found;
    bool made = stat(config->output, &found) != 0;
    int status = ls_directory_add(config->output, NULL, error);
    if (!status)
        status = data_vocabulary_write(vocabulary, config, error);
    if (status && made)
        ls_directory_remove(config->output);
    return status;
}

static int train(const struct ls_train_tokenizer_config *config, struct data_corpus *corpus,
                 const struct data_splitter *splitter, struct data_vocabulary *vocabulary,
                 struct ls_train_tokenizer_report *report, struct ls_error *error)
{
    struct data_words words = {0};
    const struct data_merging how = {config->vocabulary, config->frequency_min, config->stop};
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
    const struct data_corpus_config reading = {.inputs = config->inputs,
                                               .count = config->inputs_count,
                                               .json_key =
                                                   config->json_key ? config->json_key : "text",
                                               .records = LS_RECORDS_TEXT};
    struct data_corpus *corpus = NULL;
    struct data_splitter *splitter = NULL;
    struct data_vocabulary vocabulary = {0};
    *report = (struct ls_train_tokenizer_report){0};
    int status = config_check(config, error);
    if (!status)
        status = data_corpus_open(&reading, &corpus, error);
    if (!status)
        status = output_check(config->output, corpus, error);
    if (!status)
        status = data_splitter_new(data_pattern_named(config->pattern), DATA_ONIGURUMA, true,
                                   &splitter, error);
    if (!status)
        status = train(config, corpus, splitter, &vocabulary, report, error);
    if (!status)
        status = vocabulary_write(&vocabulary, config, error);
    report->vocabulary = vocabulary.count;
    report->merges = vocabulary.merges_count;
    data_vocabulary_release(&vocabulary);
    data_splitter_free(splitter);
    data_corpus_close(corpus);
    return status;
}
