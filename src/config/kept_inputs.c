/* What a run keeps of its inputs, so that its directory is enough to generate and evaluate wherever
 * it lies: the configuration, and the tokenizer's files with their digests. */
#include <lockstep/base/file.h>
#include <lockstep/chat.h>
#include <lockstep/config/inputs.h>

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    FILES = LS_TOKENIZER_FILES_MAX,
    NAME_BYTES = 300, /* of a file in a folder of the folder */
    DIGESTS_BYTES = FILES * (32 + 2 + NAME_BYTES),
};

struct bytes {
    char *data;
    size_t count;
};

/* The files of a tokenizer, by their names in a folder. */
struct files {
    int count;
    char names[FILES][NAME_BYTES];
    struct bytes bytes[FILES];
    char digests[DIGESTS_BYTES]; /* a line for each: its digest and its name */
};

static int file_read(struct files *files, const char *path, const char *name,
                     struct ls_error *error)
{
    struct bytes *bytes = &files->bytes[files->count];
    struct ls_digest digest = {0, 0};
    char hex[33];
    int status =
        ls_file_read(path, LS_VOCABULARY_BYTES_MAX, LS_EDATA, &bytes->data, &bytes->count, error);
    if (status)
        return status;
    snprintf(files->names[files->count++], NAME_BYTES, "%s", name);
    ls_digest_piece(&digest, name, 0, 0, bytes->data, bytes->count);
    ls_digest_hex(&digest, hex);
    ls_string_add(files->digests, sizeof files->digests, "", "%s  %s\n", hex, name);
    return LS_OK;
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

/* The digests that were written; "" if nothing is kept. */
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

/* The name in the next line of digests; false: there is none. */
static bool next_name(const char **line, char name[NAME_BYTES])
{
    const char *space = strstr(*line, "  ");
    size_t length = space ? strcspn(space + 2, "\n") : 0;
    if (length == 0 || length >= NAME_BYTES || space[2 + length] != '\n')
        return false;
    snprintf(name, NAME_BYTES, "%.*s", (int)length, space + 2);
    const char *slash = strchr(name, '/'), *further = LS_CHAT_FOLDER "/";
    if (slash && (strncmp(name, further, strlen(further)) != 0 || strchr(slash + 1, '/')))
        return false;
    *line = space + 2 + length + 1;
    return true;
}

/* before: the digests of files that are kept, and go. */
static int files_keep(const char *run, const char *before, const struct files *files,
                      struct ls_error *error)
{
    char path[PATH_MAX], folder[PATH_MAX], name[NAME_BYTES];
    snprintf(path, sizeof path, "%s/tokenizer", run);
    int status = ls_directory_add(path, NULL, error);
    while (!status && next_name(&before, name)) {
        kept_path(path, run, name);
        unlink(path);
    }
    for (int i = 0; i < files->count && !status; i++) {
        kept_path(path, run, files->names[i]);
        ls_path_parent(path, folder);
        status = ls_directory_add(folder, NULL, error);
        if (!status)
            status = ls_file_put(path, files->bytes[i].data, files->bytes[i].count, NULL, error);
    }
    kept_path(path, run, "digests");
    return status ? status : ls_file_put(path, files->digests, strlen(files->digests), NULL, error);
}

/* Copies the files of a tokenizer. */
static int tokenizer_keep(const struct ls_config *config, const struct ls_tokenizer_file *list,
                          int count, bool begun, struct ls_error *error)
{
    char before[DIGESTS_BYTES];
    struct files files = {0};
    int status = LS_OK;
    for (int i = 0; i < count && !status; i++)
        status = file_read(&files, list[i].path, list[i].name, error);
    digests_kept(config->train.out, before);
    if (!status && before[0] && begun && strcmp(before, files.digests))
        status = ls_config_reject(config, LS_ECONFIG, "data.tokenizer", error,
                                  "%s is not the tokenizer that this run began with, which is "
                                  "in %.200s/tokenizer",
                                  list[0].path, config->train.out);
    if (!status && strcmp(before, files.digests))
        status = files_keep(config->train.out, before, &files, error);
    files_release(&files);
    return status;
}

int ls_kept_write(const struct ls_config *config, const struct ls_tokenizer *tokenizer, bool begun,
                  struct ls_error *error)
{
    struct ls_config written = *config;
    char path[PATH_MAX];
    written.data.changed = false; /* said once, for the start that it is said for */
    char *kept = written.data.tokenizer;
    int status = LS_OK, count = 0;
    const struct ls_tokenizer_file *files =
        tokenizer ? ls_tokenizer_files(tokenizer, &count) : NULL;
    if (count > 0) {
        status = tokenizer_keep(config, files, count, begun, error);
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
    char path[PATH_MAX], before[DIGESTS_BYTES], name[NAME_BYTES];
    const char *line = before;
    struct files files = {0};
    int status = LS_OK;
    digests_kept(run, before);
    while (!status && files.count < FILES && next_name(&line, name)) {
        kept_path(path, run, name);
        status = file_read(&files, path, name, error);
    }
    if (!status && strcmp(before, files.digests))
        status = ls_error_set(error, LS_EDATA,
                              "%.500s/tokenizer: the files are not those that the run was trained "
                              "with: their digests differ from those in the file `digests`",
                              run);
    files_release(&files);
    return status;
}

bool ls_kept_hf_fits(const char *run)
{
    char path[PATH_MAX], kept[DIGESTS_BYTES], name[NAME_BYTES];
    static const char *const vocabularies[] = {"tokenizer.json", "vocab.json", "tokenizer.model"};
    const char *line = kept;
    struct files files = {0};
    int status = LS_OK;
    bool any = false;
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "%s/hf/%s", run, vocabularies[i]);
        any |= access(path, F_OK) == 0;
    }
    if (!any)
        return true;
    digests_kept(run, kept);
    while (!status && files.count < FILES && next_name(&line, name)) {
        snprintf(path, sizeof path, "%s/hf/%s", run, name);
        status = file_read(&files, path, name, NULL);
    }
    bool same = !status && !strcmp(kept, files.digests);
    files_release(&files);
    return same;
}

/* Without trailing slashes, and of what is before them the part after the last one. */
static struct ls_run_name last_part(const char *path)
{
    struct ls_run_name name;
    const char *begin = path, *end = path + strlen(path);
    while (end > path + 1 && end[-1] == '/')
        end--;
    for (const char *c = path; c + 1 < end; c++)
        if (*c == '/')
            begin = c + 1;
    snprintf(name.text, sizeof name.text, "%.*s", (int)(end - begin), begin);
    return name;
}

struct ls_run_name ls_run_name(const char *out)
{
    char whole[PATH_MAX];
    struct ls_run_name name = last_part(out);
    bool here = !strcmp(name.text, ".") || !strcmp(name.text, "..");
    return here && realpath(out, whole) ? last_part(whole) : name;
}

int ls_kept_read(const char *run, struct ls_config *config, struct ls_tokenizer **tokenizer,
                 struct ls_error *error)
{
    char path[PATH_MAX];
    *tokenizer = NULL;
    ls_config_defaults(config);
    int status = ls_path_join(path, run, "config.yaml", error);
    if (!status)
        status = ls_config_load_file(config, path, error);
    if (!status)
        status = tokenizer_check(run, error);
    /* The data may be gone; without it the run still knows its vocabulary. */
    bool named = !status && config->data.tokenizer[0];
    if (!status) {
        status = ls_config_tokenizer(config, tokenizer, error);
        status = status == LS_EIO && !named ? LS_OK : status;
    }
    int64_t vocabulary = ls_tokenizer_vocabulary_of(*tokenizer, config->model_keys.vocab);
    return status ? status : ls_config_resolve(config, vocabulary, error);
}
