/* Opens a checkpoint: state.json, then both files, each against its size and its digest. */
#include "ckpt/format.h"

#include <lockstep/base/json.h>

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <xxhash.h>

/* What ls_checkpoint_open hands out, and what its strings live in. */
struct opened {
    struct ls_checkpoint checkpoint; /* first: a pointer to it is a pointer to this */
    json_t *state;
    struct {
        uint64_t size;
        const char *digest;
    } parts[CKPT_PARTS];
};

static int get_int(const json_t *object, const char *path, const char *key, int64_t *out,
                   struct ls_error *error)
{
    const json_t *value = json_object_get(object, key);
    *out = json_integer_value(value);
    if (json_is_integer(value) && *out >= 0)
        return LS_OK;
    return ls_error_set(error, LS_ECKPT, "%s: expected a count under \"%s\", found %s", path, key,
                        value ? "something else" : "none");
}

static int get_string(const json_t *object, const char *path, const char *key, const char **out,
                      struct ls_error *error)
{
    *out = json_string_value(json_object_get(object, key));
    return *out ? LS_OK
                : ls_error_set(error, LS_ECKPT, "%s: expected a string under \"%s\"", path, key);
}

/* Is this a state.json of a version that is known here, with every byte as it was written? */
static int check_state(json_t *object, const char *path, struct ls_error *error)
{
    const char *format, *written;
    char kept[33], digest[33];
    int64_t version;
    int status = get_string(object, path, "format", &format, error);
    if (!status && strcmp(format, CKPT_FORMAT_NAME))
        status = ls_error_set(error, LS_ECKPT, "%s: the format is \"%.40s\", expected \"%s\"", path,
                              format, CKPT_FORMAT_NAME);
    status = status ? status : get_int(object, path, "version", &version, error);
    if (!status && version != CKPT_STATE_VERSION)
        status = ls_error_set(error, LS_ECKPT,
                              "%s: version %lld, this program reads %d; use the program that wrote "
                              "it",
                              path, (long long)version, CKPT_STATE_VERSION);
    status = status ? status : get_string(object, path, CKPT_STATE_DIGEST, &written, error);
    if (status)
        return status;
    snprintf(kept, sizeof kept, "%s", written); /* the object is about to lose it */
    if (!ckpt_state_digest(object, digest))
        return ls_error_set(error, LS_ENOMEM, "%s: no memory to check it", path);
    return strcmp(digest, kept) ? ls_error_set(error, LS_ECKPT,
                                               "%s: the digest is %s, \"%s\" says %s: the file is "
                                               "damaged",
                                               path, digest, CKPT_STATE_DIGEST, kept)
                                : LS_OK;
}

/* The fields of state.json. */
static int read_fields(struct opened *opened, const char *path, struct ls_error *error)
{
    const json_t *object = opened->state;
    struct ls_checkpoint_state *state = &opened->checkpoint.state;
    int status = check_state(opened->state, path, error);
    status = status ? status : get_int(object, path, "step", &state->step, error);
    status = status ? status : get_int(object, path, "samples", &state->samples, error);
    status = status ? status : get_int(object, path, "tokens", &state->tokens, error);
    status = status ? status : get_string(object, path, "hash", &state->hash, error);
    status = status ? status : get_string(object, path, "fingerprint", &state->fingerprint, error);
    status =
        status ? status : get_string(object, path, "recipe_digest", &state->recipe_digest, error);
    status = status ? status : get_string(object, path, "recipe", &state->recipe, error);
    const json_t *scale = json_object_get(object, "loss_scale");
    state->loss_scale = json_number_value(scale);
    if (!status && !json_is_number(scale))
        status = ls_error_set(error, LS_ECKPT, "%s: expected a number under \"loss_scale\"", path);
    state->fresh = json_is_true(json_object_get(object, "fresh"));
    state->good_steps = json_integer_value(json_object_get(object, "loss_scale_good_steps"));
    state->hysteresis = json_integer_value(json_object_get(object, "loss_scale_hysteresis"));
    const json_t *files = json_object_get(object, "files");
    for (int i = 0; !status && i < CKPT_PARTS; i++) {
        const json_t *file = json_object_get(files, ckpt_part_files[i]);
        int64_t size;
        status = get_int(file, path, "size", &size, error);
        status =
            status ? status : get_string(file, path, "xxh3_128", &opened->parts[i].digest, error);
        if (status)
            ls_error_prefix(error, "%s", ckpt_part_files[i]);
        opened->parts[i].size = (uint64_t)size;
    }
    return status;
}

static void opened_free(struct opened *opened)
{
    if (!opened)
        return;
    ls_safetensors_close(opened->checkpoint.model);
    ls_safetensors_close(opened->checkpoint.optimizer);
    json_decref(opened->state);
    free(opened);
}

/* Reads state.json and compares the sizes of the two files with it: all that can be told without
 * reading them. */
static int open_state(struct opened **out, const char *directory, struct ls_error *error)
{
    char path[PATH_MAX];
    *out = NULL;
    struct opened *opened = calloc(1, sizeof *opened);
    if (!opened)
        return ls_error_set(error, LS_ENOMEM, "%s: no memory to open it", directory);
    snprintf(opened->checkpoint.directory, PATH_MAX, "%s", directory);
    int code = ls_path_join(path, directory, CKPT_STATE_FILE, error);
    if (!code) {
        code = ls_json_read(path, LS_ECKPT, &opened->state, error);
        code = code ? code : read_fields(opened, path, error);
    }
    for (int i = 0; !code && i < CKPT_PARTS; i++) {
        struct stat status;
        code = ls_path_join(path, directory, ckpt_part_files[i], error);
        if (!code && stat(path, &status))
            code = ls_error_set(error, LS_ECKPT, "%s: %s", path, strerror(errno));
        if (!code && (uint64_t)status.st_size != opened->parts[i].size)
            code = ls_error_set(error, LS_ECKPT, "%s: %lld bytes long, %s says %llu", path,
                                (long long)status.st_size, CKPT_STATE_FILE,
                                (unsigned long long)opened->parts[i].size);
    }
    if (code) {
        opened_free(opened);
        return code;
    }
    *out = opened;
    return LS_OK;
}

/* Of the whole file, in pieces: reading a large one takes a while. */
static int digest_of(const struct ls_safetensors *file, XXH128_hash_t *hash, struct ls_error *error)
{
    enum { PIECE_BYTES = 16 << 20 };
    XXH3_state_t *state = XXH3_createState();
    if (!state)
        return ls_error_set(error, LS_ENOMEM, "no memory for a digest");
    XXH3_128bits_reset(state);
    for (size_t at = 0; at < file->size; at += PIECE_BYTES) {
        size_t rest = file->size - at;
        size_t bytes = rest < PIECE_BYTES ? rest : PIECE_BYTES;
        XXH3_128bits_update(state, file->bytes + at, bytes);
        /* A hint: what was read need not stay in the memory of the process. */
        madvise((void *)(file->bytes + at), bytes, MADV_DONTNEED);
        ls_progress();
    }
    *hash = XXH3_128bits_digest(state);
    XXH3_freeState(state);
    return LS_OK;
}

static int open_part(struct opened *opened, enum ls_checkpoint_part part, struct ls_error *error)
{
    struct ls_safetensors **file =
        part == LS_CKPT_MODEL ? &opened->checkpoint.model : &opened->checkpoint.optimizer;
    char path[PATH_MAX], digest[33];
    int status = ls_path_join(path, opened->checkpoint.directory, ckpt_part_files[part], error);
    status = status ? status : ckpt_map(file, path, error);
    if (status)
        return status;
    XXH128_hash_t hash;
    status = digest_of(*file, &hash, error);
    if (status)
        return status;
    ckpt_digest_hex(hash.high64, hash.low64, digest);
    if (strcmp(digest, opened->parts[part].digest))
        return ls_error_set(error, LS_ECKPT,
                            "%s: the digest is %s, %s says %.40s: the file is damaged", path,
                            digest, CKPT_STATE_FILE, opened->parts[part].digest);
    return ckpt_parse(*file, path, error);
}

int ls_checkpoint_open(struct ls_checkpoint **out, const char *directory, struct ls_error *error)
{
    struct opened *opened;
    char named[PATH_MAX];
    *out = NULL;
    bool follow = ckpt_best_follow(directory, named);
    int status = open_state(&opened, follow ? named : directory, error);
    if (status)
        return status;
    for (int part = 0; !status && part < CKPT_PARTS; part++)
        status = open_part(opened, (enum ls_checkpoint_part)part, error);
    if (status) {
        opened_free(opened);
        return status;
    }
    *out = &opened->checkpoint;
    return LS_OK;
}

int ls_checkpoint_visit(const char *directory, ls_checkpoint_visitor *visit, void *user,
                        struct ls_error *error)
{
    struct opened *opened;
    char named[PATH_MAX];
    bool follow = ckpt_best_follow(directory, named);
    int status = open_state(&opened, follow ? named : directory, error);
    if (!status)
        visit(user, opened->checkpoint.directory, &opened->checkpoint.state);
    opened_free(opened);
    return status;
}

void ls_checkpoint_close(struct ls_checkpoint *checkpoint)
{
    opened_free((struct opened *)checkpoint);
}

/* ---- the checkpoints of a run ---- */

/* The step of "step-%08d", -1 for other names. */
static int64_t step_of(const char *name)
{
    if (strncmp(name, "step-", 5) || strlen(name) < 13 || strlen(name) > 5 + 18 ||
        strspn(name + 5, "0123456789") != strlen(name + 5))
        return -1;
    return strtoll(name + 5, NULL, 10);
}

static bool is_leftover(const char *name)
{
    char stem[64];
    size_t length = strlen(name);
    if (length < 4 || length >= sizeof stem || strcmp(name + length - 4, ".tmp"))
        return false;
    snprintf(stem, sizeof stem, "%.*s", (int)(length - 4), name);
    return step_of(stem) >= 0;
}

static int is_checkpoint_entry(const struct dirent *entry)
{
    return step_of(entry->d_name) >= 0;
}

static int is_leftover_entry(const struct dirent *entry)
{
    return is_leftover(entry->d_name);
}

static int newest_first(const struct dirent **a, const struct dirent **b)
{
    int64_t x = step_of((*a)->d_name), y = step_of((*b)->d_name);
    return (x < y) - (x > y);
}

static void list_free(struct dirent **entries, int count)
{
    for (int i = 0; i < count; i++)
        free(entries[i]);
    free(entries);
}

/* The entries of RUN/checkpoints that select picks, newest first; *count is 0 where there is no
 * such directory. parent gets its path. */
static int list(struct dirent ***entries, int *count, char parent[PATH_MAX],
                const char *run_directory, int (*select)(const struct dirent *),
                struct ls_error *error)
{
    *entries = NULL;
    *count = 0;
    int status = ls_path_join(parent, run_directory, CKPT_DIRECTORY, error);
    if (status)
        return status;
    int found = scandir(parent, entries, select, newest_first);
    if (found < 0)
        return errno == ENOENT ? LS_OK : ls_error_errno(error, errno, "%s: cannot list", parent);
    *count = found;
    return LS_OK;
}

/* One walk over the run's checkpoints. *gone: how many a run that goes on removed meanwhile. */
static int find_once(struct ls_checkpoint **out, const char *run_directory,
                     const struct ls_log *log, int *gone, struct ls_error *error)
{
    struct dirent **entries;
    char parent[PATH_MAX], directory[PATH_MAX];
    int count;
    *gone = 0;
    int code = list(&entries, &count, parent, run_directory, is_checkpoint_entry, error);
    if (code)
        return code;
    struct ls_error newest = {0};
    for (int i = 0; i < count && !*out; i++) {
        struct ls_error damage = {0};
        struct stat status;
        code = ls_path_join(directory, parent, entries[i]->d_name, &damage);
        code = code ? code : ls_checkpoint_open(out, directory, &damage);
        if (code && stat(directory, &status) && errno == ENOENT) {
            ++*gone;
        } else if (code) {
            ls_log(log, LS_LOG_WARNING, "skipping a damaged checkpoint: %s", damage.text);
            newest = newest.code ? newest : damage;
        }
    }
    list_free(entries, count);
    if (!*out && newest.code)
        return ls_error_set(error, newest.code,
                            "%.300s: none of %d checkpoints can be read (move them away to start "
                            "afresh); the newest: %.600s",
                            parent, count, newest.text);
    return LS_OK;
}

int ls_checkpoint_find_latest(struct ls_checkpoint **out, const char *run_directory,
                              const struct ls_log *log, struct ls_error *error)
{
    enum { WALKS_MAX = 10 };
    int gone = 1, code = LS_OK;
    *out = NULL;
    for (int walk = 0; walk < WALKS_MAX && gone > 0 && !*out && !code; walk++)
        code = find_once(out, run_directory, log, &gone, error);
    return code;
}

int ls_checkpoint_list(const char *run_directory, ls_checkpoint_visitor *visit, void *user,
                       struct ls_error *error)
{
    struct dirent **entries;
    char parent[PATH_MAX], directory[PATH_MAX];
    int count;
    int status = list(&entries, &count, parent, run_directory, is_checkpoint_entry, error);
    for (int i = 0; !status && i < count; i++) {
        status = ls_path_join(directory, parent, entries[i]->d_name, error);
        if (!status)
            ls_checkpoint_visit(directory, visit, user, NULL);
    }
    list_free(entries, count);
    return status;
}

int ls_checkpoint_count(const char *run_directory, int *count, struct ls_error *error)
{
    struct dirent **entries;
    char parent[PATH_MAX];
    int status = list(&entries, count, parent, run_directory, is_checkpoint_entry, error);
    list_free(entries, *count);
    return status;
}

/* Removes a checkpoint in a way that an interruption leaves nothing that looks like one. */
static int remove_checkpoint(const char *directory, struct ls_error *error)
{
    char leftover[PATH_MAX];
    if (snprintf(leftover, sizeof leftover, "%s.tmp", directory) >= (int)sizeof leftover)
        return ls_error_set(error, LS_EINVAL, "%.200s...: the path is too long", directory);
    if (rename(directory, leftover))
        return ls_error_errno(error, errno, "%s: cannot remove", directory);
    return ckpt_remove_directory(leftover, error);
}

int ls_checkpoint_prune(const char *run_directory, int keep, struct ls_error *error)
{
    struct dirent **entries;
    char parent[PATH_MAX], directory[PATH_MAX];
    int count;
    int status = list(&entries, &count, parent, run_directory, is_leftover_entry, error);
    for (int i = 0; !status && i < count; i++) {
        status = ls_path_join(directory, parent, entries[i]->d_name, error);
        status = status ? status : ckpt_remove_directory(directory, error);
    }
    list_free(entries, count);
    if (status || keep <= 0)
        return status;
    struct ls_checkpoint_best best;
    bool has_best;
    status = ls_checkpoint_best_read(run_directory, &best, &has_best, error);
    status =
        status ? status : list(&entries, &count, parent, run_directory, is_checkpoint_entry, error);
    for (int i = 0, kept = 0; !status && i < count; i++) {
        struct opened *opened = NULL;
        status = ls_path_join(directory, parent, entries[i]->d_name, error);
        if (!status && kept >= keep && !(has_best && best.step == step_of(entries[i]->d_name)))
            status = remove_checkpoint(directory, error);
        else if (!status && open_state(&opened, directory, NULL) == LS_OK)
            kept++;
        opened_free(opened);
    }
    list_free(entries, count);
    return status;
}
