/* What a tokenizer is: its spec, its files, decoding. Encoding is in encoder.c. */
#include "data/data_private.h"

#include <lockstep/base/file.h>

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    BYTE_EOD = 256,
    BYTE_VOCABULARY = 257,
    SPEC_BYTES_MAX = 4 * PATH_MAX, /* a line with two paths */
};
static const char eod_text[] = "<|endoftext|>";

static int load_bpe(struct ls_tokenizer *tokenizer, const char *vocab_path, const char *merges_path,
                    struct ls_error *error)
{
    struct data_named_text vocab = {.name = vocab_path}, merges = {.name = merges_path};
    char *vocab_text, *merges_text = NULL;
    int rc = ls_file_read(vocab_path, LS_VOCABULARY_BYTES_MAX, LS_EDATA, &vocab_text, &vocab.count,
                          error);
    if (!rc)
        rc = ls_file_read(merges_path, LS_VOCABULARY_BYTES_MAX, LS_EDATA, &merges_text,
                          &merges.count, error);
    vocab.bytes = vocab_text;
    merges.bytes = merges_text;
    if (!rc)
        rc = data_bpe_parse(&tokenizer->bpe, vocab, merges, error);
    free(vocab_text);
    free(merges_text);
    if (!rc)
        rc = data_splitter_new(&tokenizer->splitter, error);
    return rc;
}

/* "VOCAB,MERGES" at the first comma that parts two files: names may have commas too. */
static int find_halves(const char *spec, char vocab[PATH_MAX], char merges[PATH_MAX],
                       struct ls_error *error)
{
    char half[PATH_MAX];
    struct ls_error first = {0};
    int rc = LS_OK;
    for (const char *comma = strchr(spec, ','); comma; comma = strchr(comma + 1, ',')) {
        snprintf(half, sizeof half, "%.*s", (int)(comma - spec), spec);
        bool vocab_found = realpath(half, vocab) != NULL;
        if (vocab_found && realpath(comma + 1, merges))
            return LS_OK;
        if (!rc)
            rc = ls_error_errno(&first, errno, "tokenizer \"%s\": %s %s", spec,
                                vocab_found ? "merges" : "vocabulary",
                                vocab_found ? comma + 1 : half);
    }
    return ls_error_set(error, rc, "%s", first.text);
}

/* Both paths, absolute, of the files that spec names. */
static int find_files(const char *spec, char vocab[PATH_MAX], char merges[PATH_MAX],
                      struct ls_error *error)
{
    static const char *const names[][2] = {{"vocab.json", "merges.txt"},
                                           {"gpt2-vocab.json", "gpt2-merges.txt"}};
    size_t length = strlen(spec);
    if (length >= PATH_MAX)
        return ls_error_set(error, LS_EINVAL, "tokenizer: a spec of %zu bytes is too long", length);
    char path[PATH_MAX + 32];
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/%s", spec, names[i][0]);
        if (!realpath(path, vocab))
            continue;
        snprintf(path, sizeof path, "%s/%s", spec, names[i][1]);
        if (realpath(path, merges))
            return LS_OK;
    }
    if (!strchr(spec, ','))
        return ls_error_set(error, LS_EDATA,
                            "tokenizer \"%s\": expected \"byte\", a directory with vocab.json and "
                            "merges.txt (or gpt2-vocab.json and gpt2-merges.txt), or "
                            "VOCAB.json,MERGES.txt",
                            spec);
    return find_halves(spec, vocab, merges, error);
}

int ls_tokenizer_new(const char *spec, struct ls_tokenizer **out, struct ls_error *error)
{
    *out = NULL;
    struct ls_tokenizer *tokenizer = calloc(1, sizeof *tokenizer);
    if (!tokenizer)
        return ls_error_set(error, LS_ENOMEM, "no memory for a tokenizer");
    int rc = LS_OK;
    if (strcmp(spec, "byte") == 0) {
        tokenizer->is_byte = true;
        tokenizer->spec = strdup(spec);
    } else {
        char vocab[PATH_MAX], merges[PATH_MAX];
        rc = find_files(spec, vocab, merges, error);
        if (!rc)
            rc = load_bpe(tokenizer, vocab, merges, error);
        if (!rc && asprintf(&tokenizer->spec, "%s,%s", vocab, merges) < 0)
            tokenizer->spec = NULL;
        tokenizer->files[0] = rc ? NULL : strdup(vocab);
        tokenizer->files[1] = rc ? NULL : strdup(merges);
    }
    bool named = tokenizer->is_byte || (tokenizer->files[0] && tokenizer->files[1]);
    if (!rc && (!tokenizer->spec || !named))
        rc = ls_error_set(error, LS_ENOMEM, "no memory for a tokenizer");
    if (rc) {
        ls_tokenizer_free(tokenizer);
        return rc;
    }
    *out = tokenizer;
    return LS_OK;
}

void ls_tokenizer_free(struct ls_tokenizer *tokenizer)
{
    if (!tokenizer)
        return;
    data_splitter_free(tokenizer->splitter);
    data_bpe_release(&tokenizer->bpe);
    free(tokenizer->spec);
    free(tokenizer->files[0]);
    free(tokenizer->files[1]);
    free(tokenizer);
}

const char *ls_tokenizer_name(const struct ls_tokenizer *tokenizer)
{
    return tokenizer->is_byte ? "byte" : "gpt2";
}

const char *ls_tokenizer_spec(const struct ls_tokenizer *tokenizer)
{
    return tokenizer->spec;
}

bool ls_tokenizer_files(const struct ls_tokenizer *tokenizer, const char *paths[2])
{
    for (int i = 0; i < 2; i++)
        paths[i] = tokenizer->files[i];
    return !tokenizer->is_byte;
}

int64_t ls_tokenizer_vocabulary(const struct ls_tokenizer *tokenizer)
{
    return tokenizer->is_byte ? BYTE_VOCABULARY : tokenizer->bpe.vocabulary;
}

int32_t ls_tokenizer_eod(const struct ls_tokenizer *tokenizer)
{
    return tokenizer->is_byte ? BYTE_EOD : tokenizer->bpe.eod;
}

/* Without a suffix where it has it; true then. */
static bool strip(char *text, const char *suffix)
{
    size_t length = strlen(text), tail = strlen(suffix);
    if (length <= tail || strcmp(text + length - tail, suffix) != 0)
        return false;
    text[length - tail] = 0;
    return true;
}

int ls_tokenizer_new_for_store(const char *store, struct ls_tokenizer **out, struct ls_error *error)
{
    *out = NULL;
    char prefix[PATH_MAX], path[PATH_MAX + 16];
    snprintf(prefix, sizeof prefix, "%.*s", (int)strcspn(store, ","), store);
    if (!strip(prefix, ".bin"))
        strip(prefix, ".idx");
    snprintf(path, sizeof path, "%s.tokenizer", prefix);
    if (access(path, F_OK) != 0) {
        if (!strip(prefix, "_train"))
            strip(prefix, "_valid");
        snprintf(path, sizeof path, "%s.tokenizer", prefix);
    }
    char *spec;
    size_t bytes;
    int rc = ls_file_read(path, SPEC_BYTES_MAX, LS_EDATA, &spec, &bytes, error);
    if (!rc) {
        spec[strcspn(spec, "\n")] = '\0';
        rc = ls_tokenizer_new(spec, out, error);
    }
    if (rc)
        ls_error_prefix(error, "tokenizer of %s", store);
    free(spec);
    return rc;
}

static int append(struct ls_text *out, const void *bytes, size_t count, struct ls_error *error)
{
    int rc = data_text_reserve(out, count, error);
    if (rc)
        return rc;
    memcpy(out->bytes + out->count, bytes, count);
    out->count += count;
    return LS_OK;
}

int ls_decode(const struct ls_tokenizer *tokenizer, const int32_t *ids, int64_t count,
              struct ls_text *out, struct ls_error *error)
{
    int64_t vocabulary = ls_tokenizer_vocabulary(tokenizer);
    const struct data_bpe *bpe = &tokenizer->bpe;
    int rc = LS_OK;
    for (int64_t i = 0; i < count && !rc; i++) {
        int32_t id = ids[i];
        if (id < 0 || id >= vocabulary)
            return ls_error_set(
                error, LS_EDATA, "token %lld has id %d; the %s tokenizer has the ids 0 to %lld",
                (long long)i, id, ls_tokenizer_name(tokenizer), (long long)vocabulary - 1);
        if (id == ls_tokenizer_eod(tokenizer)) {
            rc = append(out, eod_text, sizeof eod_text - 1, error);
        } else if (tokenizer->is_byte) {
            unsigned char byte = (unsigned char)id;
            rc = append(out, &byte, 1, error);
        } else {
            rc = append(out, bpe->bytes + bpe->offset[id], bpe->offset[id + 1] - bpe->offset[id],
                        error);
        }
    }
    return rc;
}

bool data_token_ends_line(const struct ls_tokenizer *tokenizer, int64_t id)
{
    if (id < 0 || id >= ls_tokenizer_vocabulary(tokenizer))
        return false;
    if (tokenizer->is_byte)
        return id == '\n';
    return tokenizer->bpe.bytes[tokenizer->bpe.offset[id + 1] - 1] == '\n';
}
