/* What a tokenizer is: its spec and its files. Encoding is in encoder.c, decoding in detokenizer.c.
 */
#include "data/data_file.h"
#include "data/store_names.h"
#include "data/tokenizer_private.h"

#include <lockstep/base/file.h>
#include <lockstep/base/hub.h>
#include <lockstep/chat.h>

#include <dirent.h>
#include <errno.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    SPEC_BYTES_MAX = 4 * PATH_MAX, /* a line with two paths */
};
#define RANKS_ENDING ".tiktoken"

/* ---- specs ----------------------------------------------------------------------------------- */

/* What a spec names. */
struct found {
    enum { FOUND_PAIR, FOUND_JSON, FOUND_RANKS } kind;
    char path[2][PATH_MAX]; /* absolute; the second: of merges, or of a configuration, or "" */
    char pattern[32];       /* of a rank file */
    bool within;            /* the spec is their folder, which they must not link out of */
};

/* A file that a spec names itself. Its own link is not followed: what lies beside the link, as in
 * the folders of a cache, belongs to it. */
static bool named(const char *spec, char path[PATH_MAX])
{
    return access(spec, F_OK) == 0 && ls_path_absolute(spec, path);
}

/* "VOCAB,MERGES" at the first comma that parts two files: names may have commas too. */
static int find_halves(const char *spec, struct found *found, struct ls_error *error)
{
    char half[PATH_MAX];
    struct ls_error first = {0};
    int status = LS_OK;
    for (const char *comma = strchr(spec, ','); comma; comma = strchr(comma + 1, ',')) {
        snprintf(half, sizeof half, "%.*s", (int)(comma - spec), spec);
        bool vocab_found = named(half, found->path[0]);
        if (vocab_found && named(comma + 1, found->path[1]))
            return LS_OK;
        if (!status)
            status = ls_error_errno(&first, errno, "tokenizer \"%s\": %s %s", spec,
                                    vocab_found ? "merges" : "vocabulary",
                                    vocab_found ? comma + 1 : half);
    }
    return ls_error_copy(error, status, &first);
}

static bool exists(const char *folder, const char *name, char path[PATH_MAX])
{
    char joined[2 * PATH_MAX];
    snprintf(joined, sizeof joined, "%s/%s", folder, name);
    return named(joined, path);
}

/* "DIR/PATTERN.tiktoken" */
static bool is_ranks(const char *path, struct found *found)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    if (!ls_path_ends(name, RANKS_ENDING))
        return false;
    snprintf(found->pattern, sizeof found->pattern, "%.*s",
             (int)(strlen(name) - strlen(RANKS_ENDING)), name);
    return data_pattern_named(found->pattern) != NULL && named(path, found->path[0]);
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
           named(spec + length + 1, found->path[0]);
}

static int find(const char *spec, struct found *found, struct ls_error *error)
{
    size_t length = strlen(spec);
    char hub[LS_HUB_HINT_BYTES], path[PATH_MAX];
    *found = (struct found){0};
    if (length >= PATH_MAX)
        return ls_error_set(error, LS_EINVAL, "tokenizer: a spec of %zu bytes is too long", length);
    if (!exists(spec, "tokenizer.json", path) &&
        ls_path_inside(path, spec, "tokenizer.json", error)) /* a link to nothing is not none */
        return LS_EDATA;
    if (find_within(spec, found)) {
        found->within = true;
        return LS_OK;
    }
    if (is_ranks(spec, found) || find_patterned(spec, found))
        return LS_OK;
    *found = (struct found){.kind = FOUND_JSON};
    bool vocabulary = ls_path_ends(spec, "vocab.json");
    if (vocabulary && !strchr(spec, ','))
        return ls_error_set(error, LS_EDATA,
                            "tokenizer \"%s\": a vocabulary needs its merges: expected the folder "
                            "that holds both, or %s,MERGES.txt",
                            spec, spec);
    if (ls_path_ends(spec, "_config.json") || ls_path_ends(spec, "/config.json"))
        return ls_error_set(error, LS_EDATA,
                            "tokenizer \"%s\": settings without a vocabulary: expected the folder "
                            "that it is in, or its tokenizer.json",
                            spec);
    if (ls_path_ends(spec, ".json") && named(spec, found->path[0]))
        return LS_OK;
    if (exists(spec, "tokenizer.model", found->path[0]))
        return ls_error_set(error, LS_EDATA,
                            "tokenizer \"%s\": SentencePiece's tokenizer.model is not read: "
                            "expected tokenizer.json beside it, which save_pretrained of "
                            "transformers writes",
                            spec);
    ls_hub_hint(spec, hub);
    if (!strchr(spec, ','))
        return ls_error_set(error, LS_EDATA,
                            "tokenizer \"%s\": expected \"byte\"; a directory with "
                            "tokenizer.json, or with vocab.json and merges.txt (or gpt2-vocab.json "
                            "and gpt2-merges.txt), or with one PATTERN.tiktoken; a file of these; "
                            "VOCAB.json,MERGES.txt; or PATTERN:FILE for a rank file%s",
                            spec, hub);
    found->kind = FOUND_PAIR;
    return find_halves(spec, found, error);
}

/* ---- files ----------------------------------------------------------------------------------- */

/* within: the file is taken because it lies in its folder. */
static int file_put(struct ls_tokenizer *t, const char *path, const char *name, bool within,
                    struct ls_error *error)
{
    struct ls_tokenizer_file *file = &t->files[t->files_count++];
    char folder[PATH_MAX], checked[PATH_MAX];
    ls_path_parent(path, folder);
    int status = within ? ls_path_inside(checked, folder, strrchr(path, '/') + 1, error) : LS_OK;
    if (status)
        return status;
    file->path = strdup(path);
    file->name = strdup(name);
    return file->path && file->name ? LS_OK : ls_no_memory(error, "for a tokenizer");
}

/* Reads the file that was put last. */
static int file_read(const struct ls_tokenizer *t, struct data_named_text *file, char **text,
                     struct ls_error *error)
{
    file->name = t->files[t->files_count - 1].path;
    int status =
        ls_file_read(file->name, LS_VOCABULARY_BYTES_MAX, LS_EDATA, text, &file->count, error);
    file->bytes = *text;
    return status;
}

/* The same of a file that says what ids mean. */
static int vocabulary_read(struct ls_tokenizer *t, struct data_named_text *file, char **text,
                           struct ls_error *error)
{
    int status = file_read(t, file, text, error);
    if (!status)
        ls_digest_piece(&t->digest, t->files[t->files_count - 1].name, 0, 0, file->bytes,
                        file->count);
    return status;
}

/* Files that belong to a tokenizer where they lie beside it; and further chat templates. */
static const char *const companions[] = {"tokenizer_config.json", "special_tokens_map.json",
                                         "added_tokens.json", "chat_template.jinja"};
enum { COMPANIONS = sizeof companions / sizeof *companions };

static int companion_put(struct ls_tokenizer *t, const char *folder, const char *name,
                         struct ls_error *error)
{
    char path[PATH_MAX];
    if (!exists(folder, name, path))
        return LS_OK;
    if (t->files_count == LS_TOKENIZER_FILES_MAX)
        return ls_error_set(error, LS_EDATA, "%.300s: a tokenizer of more than %d files", path,
                            LS_TOKENIZER_FILES_MAX);
    int status = ls_path_inside(path, folder, name, error);
    return status ? status : file_put(t, path, name, false, error);
}

static int companions_put(struct ls_tokenizer *t, const char *folder, struct ls_error *error)
{
    json_t *templates = ls_chat_files(folder), *each;
    size_t i;
    int status = LS_OK;
    for (int c = 0; c < COMPANIONS && !status; c++)
        status = companion_put(t, folder, companions[c], error);
    json_array_foreach(templates, i, each)
    {
        if (!status)
            status = companion_put(t, folder, json_string_value(each), error);
    }
    json_decref(templates);
    return status;
}

/* A key of a settings file that makes another tokenizer than GPT-2's; NULL: none. */
static const char *beyond_pair(const json_t *settings)
{
    static const char *const flags[] = {"add_prefix_space", "add_bos_token",
                                        "split_special_tokens"};
    const char *class = json_string_value(json_object_get(settings, "tokenizer_class"));
    if (class && strcmp(class, "GPT2Tokenizer") != 0 && strcmp(class, "GPT2TokenizerFast") != 0)
        return "tokenizer_class";
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
        if (json_is_true(json_object_get(settings, flags[i])))
            return flags[i];
    return NULL;
}

/* vocab.json and merges.txt are GPT-2's if nothing beside them says otherwise. folder: NULL, if
 * they are named themselves. */
static int pair_settings_take(struct ls_tokenizer *t, const char *folder, struct ls_error *error)
{
    char path[PATH_MAX];
    struct data_settings settings = {.name = path};
    snprintf(path, sizeof path, "%s", t->files[0].path);
    const struct ls_digest files = t->digest;
    int status = folder ? ls_tokenizer_settings_read(folder, path, &settings.root, error) : LS_OK;
    const char *key = status ? NULL : beyond_pair(settings.root);
    if (key)
        status = data_pair_refuse(path, key, error);
    if (!status)
        status = data_pair_tokens(t, settings, error);
    bool alone = t->added.count == 1 && !memcmp(&files, &t->digest, sizeof files);
    if (!status && !alone)
        status = companions_put(t, folder, error);
    json_decref(settings.root);
    return status;
}

static int load_pair(struct ls_tokenizer *t, const struct found *found, struct ls_error *error)
{
    char folder[PATH_MAX];
    static const char *const names[] = {"vocab.json", "merges.txt"};
    struct data_named_text file[2] = {{0}};
    char *text[2] = {NULL, NULL};
    int status = LS_OK;
    for (int i = 0; i < 2 && !status; i++) {
        status = file_put(t, found->path[i], names[i], found->within, error);
        if (!status)
            status = vocabulary_read(t, &file[i], &text[i], error);
    }
    if (!status)
        status = data_bpe_parse(&t->bpe, file[0], file[1], &t->eod, error);
    free(text[0]);
    free(text[1]);
    ls_path_parent(found->path[0], folder);
    if (!status)
        status = pair_settings_take(t, found->within ? folder : NULL, error);
    t->vocabulary = t->bpe.vocabulary;
    t->bos = t->eos = t->pad = -1;
    t->pre_count = 1;
    t->pre[0].parts = t->may_cut = true;
    if (!status)
        status = data_decoding_init(t, &(struct data_decoding){0}, error);
    return status ? status
                  : data_splitter_new(DATA_PATTERN_GPT2, DATA_ONIGURUMA, true, &t->pre[0].splitter,
                                      error);
}

static int load_json(struct ls_tokenizer *t, const struct found *found, struct ls_error *error)
{
    struct data_named_text file = {0};
    char *text = NULL, folder[PATH_MAX], path[PATH_MAX];
    struct data_settings settings = {.name = path};
    ls_path_parent(found->path[0], folder);
    int status = file_put(t, found->path[0], "tokenizer.json", found->within, error);
    if (!status)
        status = vocabulary_read(t, &file, &text, error);
    if (!status)
        status = companions_put(t, folder, error);
    if (!status)
        status = ls_tokenizer_settings_read(folder, path, &settings.root, error);
    if (!status)
        status = data_tokenizer_parse_json(t, file, settings, error);
    free(text);
    json_decref(settings.root);
    return status;
}

static int load_ranks(struct ls_tokenizer *t, const struct found *found, struct ls_error *error)
{
    struct data_named_text file = {0};
    char *text = NULL, name[64];
    snprintf(name, sizeof name, "%s" RANKS_ENDING, found->pattern);
    int status = file_put(t, found->path[0], name, found->within, error);
    if (!status)
        status = vocabulary_read(t, &file, &text, error);
    if (!status)
        status = data_tokenizer_parse_ranks(t, found->pattern, file, error);
    free(text);
    return status;
}

static int load(struct ls_tokenizer *t, const char *spec, struct ls_error *error)
{
    struct found found;
    int status = find(spec, &found, error), printed = -1;
    if (status)
        return status;
    switch (found.kind) {
    case FOUND_PAIR:
        status = load_pair(t, &found, error);
        t->name = strdup("gpt2");
        printed = asprintf(&t->spec, "%s,%s", found.path[0], found.path[1]);
        break;
    case FOUND_JSON:
        status = load_json(t, &found, error);
        t->name = strdup("tokenizer.json");
        printed = asprintf(&t->spec, "%s", found.path[0]);
        break;
    case FOUND_RANKS:
        status = load_ranks(t, &found, error);
        t->name = strdup(found.pattern);
        printed = asprintf(&t->spec, "%s:%s", found.pattern, found.path[0]);
        break;
    }
    if (printed < 0)
        t->spec = NULL;
    return status;
}

/* ---- tokenizers ------------------------------------------------------------------------------ */

int ls_tokenizer_new(const char *spec, struct ls_tokenizer **out, struct ls_error *error)
{
    *out = NULL;
    struct ls_tokenizer *tokenizer = calloc(1, sizeof *tokenizer);
    if (!tokenizer)
        return ls_no_memory(error, "for a tokenizer");
    int status = LS_OK;
    if (strcmp(spec, "byte") == 0) {
        *tokenizer = (struct ls_tokenizer){.is_byte = true,
                                           .vocabulary = DATA_BYTE_EOD + 1,
                                           .eod = DATA_BYTE_EOD,
                                           .bos = -1,
                                           .eos = -1,
                                           .pad = -1,
                                           .name = strdup(spec),
                                           .spec = strdup(spec)};
        ls_digest_piece(&tokenizer->digest, spec, 0, 0, "", 0);
    } else {
        status = load(tokenizer, spec, error);
    }
    if (!status && (!tokenizer->spec || !tokenizer->name))
        status = ls_no_memory(error, "for a tokenizer");
    if (status) {
        ls_tokenizer_free(tokenizer);
        return status;
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

void ls_tokenizer_digest(const struct ls_tokenizer *tokenizer, char text[33])
{
    ls_digest_hex(&tokenizer->digest, text);
}

int64_t ls_tokenizer_vocabulary(const struct ls_tokenizer *tokenizer)
{
    return tokenizer->vocabulary;
}

int64_t ls_tokenizer_vocabulary_of(const struct ls_tokenizer *tokenizer, int64_t model)
{
    int64_t all = tokenizer ? tokenizer->vocabulary : 0;
    int64_t text = tokenizer && tokenizer->added.count ? tokenizer->bpe.vocabulary : all;
    return model < text ? all : ls_min(all, model);
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

/* What PREFIX.tokenizer says. */
struct recorded {
    char *spec;   /* owned; NULL: nothing is recorded */
    char *digest; /* within spec; "": of an earlier version, which kept none */
};

/* Beside one store; a spec of NULL and LS_OK if there is none. */
static int recorded_find(const char *store, struct recorded *recorded, struct ls_error *error)
{
    char prefix[PATH_MAX], path[PATH_MAX + 16];
    size_t bytes;
    bool there = false;
    *recorded = (struct recorded){NULL, NULL};
    if (store_name_bare(store))
        return LS_OK; /* nothing is written beside such a file */
    snprintf(prefix, sizeof prefix, "%s", store);
    if (!strip(prefix, ".bin"))
        strip(prefix, ".idx");
    snprintf(path, sizeof path, "%s.tokenizer", prefix);
    int status =
        data_small_read(path, NULL, SPEC_BYTES_MAX, &there, &recorded->spec, &bytes, error);
    if (!status && !there && (strip(prefix, "_train") || strip(prefix, "_valid"))) {
        snprintf(path, sizeof path, "%s.tokenizer", prefix);
        status =
            data_small_read(path, NULL, SPEC_BYTES_MAX, &there, &recorded->spec, &bytes, error);
    }
    if (status || !there)
        return status;
    recorded->digest = recorded->spec + strcspn(recorded->spec, "\n");
    if (*recorded->digest)
        *recorded->digest++ = '\0';
    recorded->digest[strcspn(recorded->digest, "\n")] = '\0';
    return LS_OK;
}

bool data_tokenizer_recorded(const char *store)
{
    struct recorded recorded;
    bool found = !recorded_find(store, &recorded, NULL) && recorded.spec;
    free(recorded.spec);
    return found;
}

int ls_tokenizer_new_for_store(const char *store, struct ls_tokenizer **out, struct ls_error *error)
{
    struct recorded recorded = {0};
    struct store_names names;
    *out = NULL;
    int status = store_names_find(store, NULL, &names, error);
    if (!status)
        status = recorded_find(names.list[0], &recorded, error);
    if (!status && recorded.spec) {
        status = ls_tokenizer_new(recorded.spec, out, error);
        if (status) {
            ls_error_prefix(error, "tokenizer of %s", store);
            ls_error_suffix(error, ". If it was moved, name it: data.tokenizer, or --tokenizer");
        }
    }
    free(recorded.spec);
    store_names_release(&names);
    return status;
}

/* ---- several stores -------------------------------------------------------------------------- */

/* The digest that an earlier version did not record, if its tokenizer is still there. */
static void digest_find(const char *spec, char digest[33])
{
    struct ls_tokenizer *tokenizer;
    digest[0] = '\0';
    if (!ls_tokenizer_new(spec, &tokenizer, NULL))
        ls_tokenizer_digest(tokenizer, digest);
    ls_tokenizer_free(tokenizer);
}

/* What the first store, or the model, has. */
struct wanted {
    char spec[SPEC_BYTES_MAX], digest[33];
    const char *from;
    bool surely; /* another one is what is there to be compared */
};

/* A token that is not added; empty: none. */
static struct data_string plain_token(const struct ls_tokenizer *t, int32_t id, unsigned char *byte)
{
    *byte = (unsigned char)id;
    if (t->is_byte)
        return (struct data_string){byte, id < DATA_BYTE_EOD};
    bool none = id >= t->bpe.vocabulary || data_added_of_id(&t->added, id);
    return none ? (struct data_string){NULL, 0} : data_string(&t->bpe.tokens, id);
}

/* Whether the ids that both have mean the same, as of one tokenizer that was saved twice or was
 * given more added tokens. */
static bool ids_agree(const struct ls_tokenizer *a, const struct ls_tokenizer *b)
{
    const int64_t both = ls_min(a->vocabulary, b->vocabulary);
    bool same = true;
    for (int32_t id = 0; id < both && same; id++) {
        unsigned char bytes[2];
        struct data_string mine = plain_token(a, id, &bytes[0]);
        struct data_string other = plain_token(b, id, &bytes[1]);
        same = mine.count == 0 || other.count == 0 ||
               (mine.count == other.count && !memcmp(mine.bytes, other.bytes, mine.count));
    }
    return same;
}

/* NULL: it is gone, or has changed since. */
static struct ls_tokenizer *unchanged(const char *spec, const char *digest)
{
    struct ls_tokenizer *tokenizer;
    char now[33] = "";
    if (!ls_tokenizer_new(spec, &tokenizer, NULL))
        ls_tokenizer_digest(tokenizer, now);
    if (!strcmp(now, digest))
        return tokenizer;
    ls_tokenizer_free(tokenizer);
    return NULL;
}

/* Of two digests. */
static bool differs(const struct wanted *wanted, const char *spec, const char *digest)
{
    struct ls_tokenizer *mine = unchanged(wanted->spec, wanted->digest);
    struct ls_tokenizer *other = unchanged(spec, digest);
    bool result = !wanted->surely || !strcmp(spec, "byte") || !strcmp(wanted->spec, "byte");
    if (mine && other)
        result = !ids_agree(mine, other);
    ls_tokenizer_free(mine);
    ls_tokenizer_free(other);
    return result;
}

static int wanted_check(struct wanted *wanted, const char *store, const char *spec,
                        const char *digest, struct ls_error *error)
{
    if (!wanted->from) {
        *wanted = (struct wanted){.from = store};
        snprintf(wanted->spec, sizeof wanted->spec, "%s", spec);
        strcpy(wanted->digest, digest);
        return LS_OK;
    }
    if (!*digest || !*wanted->digest || !strcmp(digest, wanted->digest) ||
        !differs(wanted, spec, digest))
        return LS_OK;
    return ls_error_set(error, wanted->surely ? LS_ECONFIG : LS_EDATA,
                        "%s: its tokenizer is %.200s, and that of %s is %.200s%s: expected "
                        "one tokenizer for all data of a model",
                        store, spec, wanted->from, wanted->spec,
                        strcmp(spec, wanted->spec) ? "" : ", changed since");
}

static int store_check(struct wanted *wanted, int count, const char *store, struct ls_error *error)
{
    struct recorded recorded;
    char digest[33];
    int status = recorded_find(store, &recorded, error);
    if (status || !recorded.spec)
        return status; /* or a foreign store */
    snprintf(digest, sizeof digest, "%s", recorded.digest);
    if (!*digest)
        digest_find(recorded.spec, digest);
    for (int i = 0; i < count && !status; i++)
        status = wanted_check(&wanted[i], store, recorded.spec, digest, error);
    free(recorded.spec);
    return status;
}

static void wanted_set(struct wanted *wanted, const struct ls_tokenizer *tokenizer,
                       const char *from, bool surely)
{
    *wanted = (struct wanted){.from = from, .surely = surely};
    snprintf(wanted->spec, sizeof wanted->spec, "%s", ls_tokenizer_spec(tokenizer));
    ls_tokenizer_digest(tokenizer, wanted->digest);
}

static int stores_check(struct wanted *wanted, int count, const char *stores,
                        struct ls_error *error)
{
    struct store_names names;
    int status = store_names_find(stores, NULL, &names, error);
    for (int i = 0; i < names.count && !status; i++)
        status = store_check(wanted, count, names.list[i], error);
    store_names_release(&names);
    return status;
}

int ls_tokenizer_stores_check(const struct ls_tokenizer *tokenizer, const char *stores,
                              struct ls_error *error)
{
    struct wanted wanted = {.from = NULL};
    if (tokenizer)
        wanted_set(&wanted, tokenizer, "the model", false);
    return stores_check(&wanted, 1, stores, error);
}

int ls_tokenizer_stores_fit(const struct ls_tokenizer *tokenizer, const char *from,
                            const char *stores, struct ls_error *error)
{
    struct wanted wanted[2] = {{.from = NULL}}; /* of the first store, and of the run */
    if (tokenizer)
        wanted_set(&wanted[1], tokenizer, from, true);
    return stores_check(wanted, tokenizer ? 2 : 1, stores, error);
}
