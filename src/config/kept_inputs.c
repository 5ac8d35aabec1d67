/* What a run keeps of its inputs, so that its directory is enough to generate and evaluate wherever
 * it lies: the configuration, and the tokenizer's files with their digests. */
#include <lockstep/base/file.h>
#include <lockstep/config/inputs.h>

#include <limits.h>
#include <stdlib.h>
#include <string.h>

enum { FILES = 2, DIGESTS_BYTES = 256 };
static const char *const names[FILES] = {"vocab.json", "merges.txt"};

struct bytes {
    char *data;
    size_t count;
};

static int file_write(const char *path, const char *data, size_t count, struct ls_error *error)
{
    struct ls_atomic_file file;
    int status = ls_atomic_file_open(&file, path, NULL, error);
    if (status)
        return status;
    ls_atomic_file_write(&file, data, count);
    return ls_atomic_file_commit(&file, error);
}

/* Both files of a tokenizer, by their names here. */
struct files {
    struct bytes bytes[FILES];
    char digests[DIGESTS_BYTES]; /* a line for each: its digest and its name */
};

static int files_read(const char *const paths[FILES], struct files *files, struct ls_error *error)
{
    int status = LS_OK;
    size_t used = 0;
    *files = (struct files){0};
    for (int i = 0; i < FILES && !status; i++) {
        struct ls_digest digest = {0, 0};
        char hex[33];
        status = ls_file_read(paths[i], LS_VOCABULARY_BYTES_MAX, LS_EDATA, &files->bytes[i].data,
                              &files->bytes[i].count, error);
        if (status)
            break;
        ls_digest_piece(&digest, names[i], 0, 0, files->bytes[i].data, files->bytes[i].count);
        ls_digest_hex(&digest, hex);
        used += (size_t)snprintf(files->digests + used, sizeof files->digests - used, "%s  %s\n",
                                 hex, names[i]);
    }
    return status;
}

static void files_release(struct files *files)
{
    for (int i = 0; i < FILES; i++)
        free(files->bytes[i].data);
}

static void kept_path(char path[PATH_MAX], const char *run, const char *name)
{
    snprintf(path, PATH_MAX, "%s/tokenizer/%s", run, name);
}

/* The digests that were written; "" where nothing is kept. */
static void digests_kept(const char *run, char text[DIGESTS_BYTES])
{
    char path[PATH_MAX];
    kept_path(path, run, "digests");
    char *read;
    size_t bytes;
    text[0] = '\0';
    if (ls_file_read(path, DIGESTS_BYTES - 1, LS_EDATA, &read, &bytes, NULL) == LS_OK)
        memcpy(text, read, bytes + 1);
    free(read);
}

static int files_keep(const char *run, const struct files *files, struct ls_error *error)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/tokenizer", run);
    int status = ls_directory_make(path, NULL, error);
    for (int i = 0; i < FILES && !status; i++) {
        kept_path(path, run, names[i]);
        status = file_write(path, files->bytes[i].data, files->bytes[i].count, error);
    }
    kept_path(path, run, "digests");
    return status ? status : file_write(path, files->digests, strlen(files->digests), error);
}

/* Copies the files of a tokenizer. */
static int tokenizer_keep(const struct ls_config *config, const char *const paths[FILES],
                          bool begun, struct ls_error *error)
{
    char before[DIGESTS_BYTES];
    struct files files;
    int status = files_read(paths, &files, error);
    digests_kept(config->train.out, before);
    if (!status && before[0] && begun && strcmp(before, files.digests))
        status = ls_config_reject(config, LS_ECONFIG, "data.tokenizer", error,
                                  "%s is not the tokenizer that this run began with, which lies in "
                                  "%.200s/tokenizer",
                                  paths[0], config->train.out);
    if (!status && strcmp(before, files.digests))
        status = files_keep(config->train.out, &files, error);
    files_release(&files);
    return status;
}

int ls_kept_write(const struct ls_config *config, const struct ls_tokenizer *tokenizer, bool begun,
                  struct ls_error *error)
{
    struct ls_config written = *config;
    char path[PATH_MAX];
    const char *paths[FILES];
    char *kept = written.data.tokenizer;
    int status = LS_OK;
    if (tokenizer && ls_tokenizer_files(tokenizer, paths)) {
        status = tokenizer_keep(config, paths, begun, error);
        if (snprintf(kept, LS_CONFIG_TEXT_BYTES, "%s/tokenizer", config->train.out) >=
            LS_CONFIG_TEXT_BYTES)
            snprintf(kept, LS_CONFIG_TEXT_BYTES, "%s", config->data.tokenizer);
    } else {
        snprintf(kept, LS_CONFIG_TEXT_BYTES, "%s", tokenizer ? ls_tokenizer_spec(tokenizer) : "");
    }
    snprintf(path, sizeof path, "%s/config.yaml", config->train.out);
    return status ? status : ls_config_save_portable(&written, path, error);
}

/* ---- reading it back ------------------------------------------------------------------------- */

static int tokenizer_check(const char *run, struct ls_error *error)
{
    char kept[FILES][PATH_MAX], before[DIGESTS_BYTES];
    const char *paths[FILES];
    struct files files;
    digests_kept(run, before);
    if (!before[0])
        return LS_OK;
    for (int i = 0; i < FILES; i++) {
        kept_path(kept[i], run, names[i]);
        paths[i] = kept[i];
    }
    int status = files_read(paths, &files, error);
    if (!status && strcmp(before, files.digests))
        status = ls_error_set(error, LS_EDATA,
                              "%.500s/tokenizer: the files are not those that the run was trained "
                              "with: their digests differ from those in the file `digests`",
                              run);
    files_release(&files);
    return status;
}

int ls_kept_read(const char *run, struct ls_config *config, struct ls_tokenizer **tokenizer,
                 struct ls_error *error)
{
    char path[PATH_MAX];
    *tokenizer = NULL;
    if (snprintf(path, sizeof path, "%s/config.yaml", run) >= PATH_MAX)
        return ls_error_set(error, LS_EINVAL, "%.200s...: the path is too long", run);
    ls_config_defaults(config);
    int status = ls_config_load_file(config, path, error);
    if (!status)
        status = tokenizer_check(run, error);
    /* The data may be gone; without it the run still knows its vocabulary. */
    bool named = !status && config->data.tokenizer[0];
    if (!status) {
        status = ls_config_tokenizer(config, tokenizer, error);
        status = status == LS_EIO && !named ? LS_OK : status;
    }
    int64_t vocabulary = *tokenizer ? ls_tokenizer_vocabulary(*tokenizer) : 0;
    return status ? status : ls_config_resolve(config, vocabulary, error);
}
