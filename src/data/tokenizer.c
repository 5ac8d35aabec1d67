/* What a tokenizer is: its spec and its files. Encoding is in encoder.c, decoding in detokenizer.c.
 */
#include "data/tokenizer_private.h"

#include <lockstep/base/file.h>

#include <dirent.h>
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
#define RANKS_ENDING ".tiktoken"

/* ---- specs ----------------------------------------------------------------------------------- */

/* What a spec names. */
struct found {
    enum { FOUND_PAIR, FOUND_JSON, FOUND_RANKS } kind;
    char path[2][PATH_MAX]; /* absolute; the second: of merges, or of a configuration, or "" */
    char pattern[32];       /* of a rank file */
};

/* "VOCAB,MERGES" at the first comma that parts two files: names may have commas too. */
static int find_halves(const char *spec, struct found *found, struct ls_error *error)
{
    char half[PATH_MAX];
    struct ls_error first = {0};
    int rc = LS_OK;
    for (const char *comma = strchr(spec, ','); comma; comma = strchr(comma + 1, ',')) {
        snprintf(half, sizeof half, "%.*s", (int)(comma - spec), spec);
        bool vocab_found = realpath(half, found->path[0]) != NULL;
        if (vocab_found && realpath(comma + 1, found->path[1]))
            return LS_OK;
        if (!rc)
            rc = ls_error_errno(&first, errno, "tokenizer \"%s\": %s %s", spec,
                                vocab_found ? "merges" : "vocabulary",
                                vocab_found ? comma + 1 : half);
    }
    return ls_error_set(error, rc, "%s", first.text);
}

static bool exists(const char *folder, const char *name, char path[PATH_MAX])
{
    char joined[2 * PATH_MAX];
    snprintf(joined, sizeof joined, "%s/%s", folder, name);
    return realpath(joined, path) != NULL;
}

static bool ends_with(const char *text, const char *ending)
{
    size_t length = strlen(text), tail = strlen(ending);
    return length > tail && strcmp(text + length - tail, ending) == 0;
}

/* "DIR/PATTERN.tiktoken" */
static bool is_ranks(const char *path, struct found *found)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    if (!ends_with(name, RANKS_ENDING))
        return false;
    snprintf(found->pattern, sizeof found->pattern, "%.*s",
             (int)(strlen(name) - strlen(RANKS_ENDING)), name);
    return data_pattern_named(found->pattern) != NULL && realpath(path, found->path[0]);
}

/* The one rank file of a folder. */
static bool find_ranks(const char *folder, struct found *found)
{
    char path[2 * PATH_MAX];
    DIR *directory = opendir(folder);
    int count = 0;
    for (struct dirent *entry; directory && (entry = readdir(directory));) {
        struct found other = {.kind = FOUND_RANKS};
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        if (is_ranks(path, &other)) {
            *found = other;
            count++;
        }
    }
    if (directory)
        closedir(directory);
    return count == 1;
}

/* In a folder. */
static bool find_within(const char *folder, struct found *found)
{
    static const char *const pairs[][2] = {{"vocab.json", "merges.txt"},
                                           {"gpt2-vocab.json", "gpt2-merges.txt"}};
    if (exists(folder, "tokenizer.json", found->path[0])) {
        found->kind = FOUND_JSON;
        return true;
    }
    for (int i = 0; i < 2; i++)
        if (exists(folder, pairs[i][0], found->path[0]) &&
            exists(folder, pairs[i][1], found->path[1]))
            return true;
    found->kind = FOUND_RANKS;
    return find_ranks(folder, found);
}

/* "PATTERN:FILE" */
static bool find_patterned(const char *spec, struct found *found)
{
    size_t length = strcspn(spec, ":");
    snprintf(found->pattern, sizeof found->pattern, "%.*s", (int)ls_min((int64_t)length, 31), spec);
    found->kind = FOUND_RANKS;
    return spec[length] && data_pattern_named(found->pattern) &&
           realpath(spec + length + 1, found->path[0]);
}

static int find(const char *spec, struct found *found, struct ls_error *error)
{
    size_t length = strlen(spec);
    *found = (struct found){0};
    if (length >= PATH_MAX)
        return ls_error_set(error, LS_EINVAL, "tokenizer: a spec of %zu bytes is too long", length);
    if (find_within(spec, found))
        return LS_OK;
    if (is_ranks(spec, found) || find_patterned(spec, found))
        return LS_OK;
    *found = (struct found){.kind = FOUND_JSON};
    bool vocabulary = !strcmp(spec, "vocab.json") || ends_with(spec, "vocab.json");
    if (vocabulary && !strchr(spec, ','))
        return ls_error_set(error, LS_EDATA,
                            "tokenizer \"%s\": a vocabulary needs its merges: expected the folder "
                            "that holds both, or %s,MERGES.txt",
                            spec, spec);
    if (ends_with(spec, ".json") && !strchr(spec, ',') && realpath(spec, found->path[0]))
        return LS_OK;
    if (!strchr(spec, ','))
        return ls_error_set(error, LS_EDATA,
                            "tokenizer \"%s\": expected \"byte\"; a directory with "
                            "tokenizer.json, or with vocab.json and merges.txt (or gpt2-vocab.json "
                            "and gpt2-merges.txt), or with one PATTERN.tiktoken; a file of these; "
                            "VOCAB.json,MERGES.txt; or PATTERN:FILE for a rank file",
                            spec);
    found->kind = FOUND_PAIR;
    return find_halves(spec, found, error);
}

/* ---- files ----------------------------------------------------------------------------------- */

static int file_put(struct ls_tokenizer *t, const char *path, const char *name,
                    struct ls_error *error)
{
    struct ls_tokenizer_file *file = &t->files[t->files_count++];
    file->path = strdup(path);
    file->name = strdup(name);
    return file->path && file->name ? LS_OK
                                    : ls_error_set(error, LS_ENOMEM, "no memory for a tokenizer");
}

/* Reads the file that was put last. */
static int file_read(const struct ls_tokenizer *t, struct data_named_text *file, char **text,
                     struct ls_error *error)
{
    file->name = t->files[t->files_count - 1].path;
    int rc = ls_file_read(file->name, LS_VOCABULARY_BYTES_MAX, LS_EDATA, text, &file->count, error);
    file->bytes = *text;
    return rc;
}

static int load_pair(struct ls_tokenizer *t, const struct found *found, struct ls_error *error)
{
    static const char *const names[] = {"vocab.json", "merges.txt"};
    struct data_named_text file[2] = {{0}};
    char *text[2] = {NULL, NULL};
    int rc = LS_OK;
    for (int i = 0; i < 2 && !rc; i++) {
        rc = file_put(t, found->path[i], names[i], error);
        if (!rc)
            rc = file_read(t, &file[i], &text[i], error);
    }
    if (!rc)
        rc = data_bpe_parse(&t->bpe, file[0], file[1], &t->eod, error);
    free(text[0]);
    free(text[1]);
    t->vocabulary = t->bpe.vocabulary;
    t->bos = t->eos = t->pad = -1;
    t->pre_count = 1;
    t->pre[0].parts = t->may_cut = true;
    if (!rc)
        rc = data_decoding_init(t, &(struct data_decoding){0}, error);
    return rc ? rc
              : data_splitter_new(DATA_PATTERN_GPT2, DATA_ONIGURUMA, true, &t->pre[0].splitter,
                                  error);
}

/* Files that belong to a tokenizer.json where they lie beside it; the first one is read. */
static const char *const companions[] = {"tokenizer_config.json", "special_tokens_map.json",
                                         "chat_template.jinja"};

static int load_json(struct ls_tokenizer *t, const struct found *found, struct ls_error *error)
{
    struct data_named_text file = {0}, config = {0};
    char *text = NULL, *config_text = NULL, folder[PATH_MAX], path[PATH_MAX];
    snprintf(folder, sizeof folder, "%.*s", (int)(strrchr(found->path[0], '/') - found->path[0]),
             found->path[0]);
    int rc = file_put(t, found->path[0], "tokenizer.json", error);
    if (!rc)
        rc = file_read(t, &file, &text, error);
    for (int i = 0; i < 3 && !rc; i++) {
        if (!exists(folder, companions[i], path))
            continue;
        rc = file_put(t, path, companions[i], error);
        if (!rc && i == 0)
            rc = file_read(t, &config, &config_text, error);
    }
    if (!rc)
        rc = data_tokenizer_parse_json(t, file, config, error);
    free(text);
    free(config_text);
    return rc;
}

static int load_ranks(struct ls_tokenizer *t, const struct found *found, struct ls_error *error)
{
    struct data_named_text file = {0};
    char *text = NULL, name[64];
    snprintf(name, sizeof name, "%s" RANKS_ENDING, found->pattern);
    int rc = file_put(t, found->path[0], name, error);
    if (!rc)
        rc = file_read(t, &file, &text, error);
    if (!rc)
        rc = data_tokenizer_parse_ranks(t, found->pattern, file, error);
    free(text);
    return rc;
}

static int load(struct ls_tokenizer *t, const char *spec, struct ls_error *error)
{
    struct found found;
    int rc = find(spec, &found, error), printed = -1;
    if (rc)
        return rc;
    switch (found.kind) {
    case FOUND_PAIR:
        rc = load_pair(t, &found, error);
        t->name = strdup("gpt2");
        printed = asprintf(&t->spec, "%s,%s", found.path[0], found.path[1]);
        break;
    case FOUND_JSON:
        rc = load_json(t, &found, error);
        t->name = strdup("tokenizer.json");
        printed = asprintf(&t->spec, "%s", found.path[0]);
        break;
    case FOUND_RANKS:
        rc = load_ranks(t, &found, error);
        t->name = strdup(found.pattern);
        printed = asprintf(&t->spec, "%s:%s", found.pattern, found.path[0]);
        break;
    }
    if (printed < 0)
        t->spec = NULL;
    return rc;
}

/* ---- tokenizers ------------------------------------------------------------------------------ */

int ls_tokenizer_new(const char *spec, struct ls_tokenizer **out, struct ls_error *error)
{
    *out = NULL;
    struct ls_tokenizer *tokenizer = calloc(1, sizeof *tokenizer);
    if (!tokenizer)
        return ls_error_set(error, LS_ENOMEM, "no memory for a tokenizer");
    int rc = LS_OK;
    if (strcmp(spec, "byte") == 0) {
        *tokenizer = (struct ls_tokenizer){.is_byte = true,
                                           .vocabulary = BYTE_VOCABULARY,
                                           .eod = BYTE_EOD,
                                           .bos = -1,
                                           .eos = -1,
                                           .pad = -1,
                                           .name = strdup(spec),
                                           .spec = strdup(spec)};
    } else {
        rc = load(tokenizer, spec, error);
    }
    if (!rc && (!tokenizer->spec || !tokenizer->name))
        rc = ls_error_set(error, LS_ENOMEM, "no memory for a tokenizer");
    if (rc) {
        ls_tokenizer_free(tokenizer);
        return rc;
    }
    *out = tokenizer;
    return LS_OK;
}

void data_tokenizer_release(struct ls_tokenizer *tokenizer)
{
    for (int i = 0; i < tokenizer->pre_count; i++)
        data_splitter_free(tokenizer->pre[i].splitter);
    data_normalizers_release(&tokenizer->normalizers);
    data_added_release(&tokenizer->added);
    data_bpe_release(&tokenizer->bpe);
    data_strings_release(&tokenizer->text);
    for (int i = 0; i < tokenizer->files_count; i++) {
        free(tokenizer->files[i].path);
        free(tokenizer->files[i].name);
    }
    free(tokenizer->name);
    free(tokenizer->spec);
}

void ls_tokenizer_free(struct ls_tokenizer *tokenizer)
{
    if (!tokenizer)
        return;
    data_tokenizer_release(tokenizer);
    free(tokenizer);
}

const char *ls_tokenizer_name(const struct ls_tokenizer *tokenizer)
{
    return tokenizer->name;
}

const char *ls_tokenizer_spec(const struct ls_tokenizer *tokenizer)
{
    return tokenizer->spec;
}

const struct ls_tokenizer_file *ls_tokenizer_files(const struct ls_tokenizer *tokenizer, int *count)
{
    *count = tokenizer->files_count;
    return tokenizer->files;
}

int64_t ls_tokenizer_vocabulary(const struct ls_tokenizer *tokenizer)
{
    return tokenizer->vocabulary;
}

int32_t ls_tokenizer_eod(const struct ls_tokenizer *tokenizer)
{
    return tokenizer->eod;
}

const int32_t *ls_tokenizer_around(const struct ls_tokenizer *tokenizer, bool behind, int *count)
{
    *count = behind ? tokenizer->after_count : tokenizer->before_count;
    return behind ? tokenizer->after : tokenizer->before;
}

int32_t ls_tokenizer_bos(const struct ls_tokenizer *tokenizer)
{
    return tokenizer->bos;
}

int32_t ls_tokenizer_eos(const struct ls_tokenizer *tokenizer)
{
    return tokenizer->eos;
}

int32_t ls_tokenizer_pad(const struct ls_tokenizer *tokenizer)
{
    return tokenizer->pad;
}

int32_t ls_tokenizer_id(const struct ls_tokenizer *tokenizer, const char *token)
{
    const struct data_added_token *added = data_added_of_text(&tokenizer->added, token);
    return added ? added->id : -1;
}

bool ls_tokenizer_is_special(const struct ls_tokenizer *tokenizer, int32_t id)
{
    const struct data_added_token *added = data_added_of_id(&tokenizer->added, id);
    return added ? added->special : id == tokenizer->eod && tokenizer->added.count == 0;
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

/* *spec = what PREFIX.tokenizer of the first of the stores holds, to be freed. */
static int spec_read(const char *store, char **spec, struct ls_error *error)
{
    char prefix[PATH_MAX], path[PATH_MAX + 16];
    size_t bytes;
    *spec = NULL;
    snprintf(prefix, sizeof prefix, "%.*s", (int)strcspn(store, ","), store);
    if (!strip(prefix, ".bin"))
        strip(prefix, ".idx");
    snprintf(path, sizeof path, "%s.tokenizer", prefix);
    if (access(path, F_OK) != 0) {
        if (!strip(prefix, "_train"))
            strip(prefix, "_valid");
        snprintf(path, sizeof path, "%s.tokenizer", prefix);
    }
    int rc = ls_file_read(path, SPEC_BYTES_MAX, LS_EDATA, spec, &bytes, error);
    if (!rc)
        (*spec)[strcspn(*spec, "\n")] = '\0';
    return rc;
}

int ls_tokenizer_new_for_store(const char *store, struct ls_tokenizer **out, struct ls_error *error)
{
    char *spec;
    *out = NULL;
    int rc = spec_read(store, &spec, error);
    if (!rc)
        rc = ls_tokenizer_new(spec, out, error);
    if (rc)
        ls_error_prefix(error, "tokenizer of %s", store);
    free(spec);
    return rc;
}

/* ---- several stores -------------------------------------------------------------------------- */

static bool same_file(const char *a, const char *b)
{
    char *text[2] = {NULL};
    size_t bytes[2];
    bool read = !ls_file_read(a, LS_VOCABULARY_BYTES_MAX, LS_EDATA, &text[0], &bytes[0], NULL) &&
                !ls_file_read(b, LS_VOCABULARY_BYTES_MAX, LS_EDATA, &text[1], &bytes[1], NULL);
    bool same = read && bytes[0] == bytes[1] && memcmp(text[0], text[1], bytes[0]) == 0;
    free(text[0]);
    free(text[1]);
    return same;
}

static bool same_tokenizer(const struct ls_tokenizer *a, const struct ls_tokenizer *b)
{
    int count, others;
    const struct ls_tokenizer_file *mine = ls_tokenizer_files(a, &count),
                                   *theirs = ls_tokenizer_files(b, &others);
    bool same = strcmp(ls_tokenizer_name(a), ls_tokenizer_name(b)) == 0 && count == others;
    for (int i = 0; i < count && same; i++)
        same = strcmp(mine[i].path, theirs[i].path) == 0 || same_file(mine[i].path, theirs[i].path);
    return same;
}

/* A tokenizer that is no longer where its store says proves nothing. */
static bool differ(const struct ls_tokenizer *tokenizer, const char *a, const char *b)
{
    struct ls_tokenizer *first = NULL, *second = NULL;
    if (!tokenizer && !ls_tokenizer_new(a, &first, NULL))
        tokenizer = first;
    bool differ =
        tokenizer && !ls_tokenizer_new(b, &second, NULL) && !same_tokenizer(tokenizer, second);
    ls_tokenizer_free(first);
    ls_tokenizer_free(second);
    return differ;
}

int ls_tokenizer_stores_check(const struct ls_tokenizer *tokenizer, const char *stores,
                              struct ls_error *error)
{
    char *wanted = tokenizer ? strdup(ls_tokenizer_spec(tokenizer)) : NULL;
    const char *from = "the model";
    int from_bytes = (int)strlen(from), rc = LS_OK;
    for (const char *store = stores; *store && !rc; store += *store == ',') {
        int bytes = (int)strcspn(store, ",");
        char *spec = NULL;
        if (bytes > 0)
            spec_read(store, &spec, NULL); /* of a foreign store there is none */
        if (spec && wanted && strcmp(spec, wanted) != 0 && differ(tokenizer, wanted, spec))
            rc = ls_error_set(error, LS_EDATA,
                              "%.*s: its tokenizer is %.200s, and that of %.*s is %.200s: expected "
                              "one tokenizer for all data of a model",
                              bytes, store, spec, from_bytes, from, wanted);
        if (spec && !wanted) {
            wanted = spec;
            from = store;
            from_bytes = bytes;
        } else {
            free(spec);
        }
        store += bytes;
    }
    free(wanted);
    return rc;
}
