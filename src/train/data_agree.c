/* Whether all ranks have the same recipe, and list the same stores. Each rank reads the
 * configuration on its own host, and lists a folder or a pattern of stores there: an older program
 * or file, a copy that is not finished, or a file system whose caches are behind, would give it
 * another step or another order of samples, and no error. */
#include "train/trainer.h"

#include <lockstep/base/version.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A line for each key of the recipe, and for each file; the digest of all. */
struct listing {
    char *text;
    size_t bytes;
    int recipe; /* lines that are of the recipe */
};

/* By name paths may differ: what is there is listed below. */
static bool is_path(const struct ls_config_key *key)
{
    return key->type == LS_CONFIG_PATH || key->type == LS_CONFIG_PATHS ||
           key->type == LS_CONFIG_BLEND;
}

/* As it was given: what machines make of it is settled later. Returns how many lines. */
static int recipe_list(FILE *file, const struct ls_config *config)
{
    int lines = 1;
    fprintf(file, "numerics.version = %d\n", LS_NUMERICS_VERSION);
    for (const struct ls_config_key *key = ls_config_keys(NULL); key->name; key++) {
        char value[LS_CONFIG_VALUE_BYTES];
        if (key->part != LS_CONFIG_RECIPE || is_path(key))
            continue;
        ls_config_value(config, key, value, sizeof value);
        fprintf(file, "%s = %s\n", key->name, value);
        lines++;
    }
    return lines;
}

/* By its name alone: hosts may have the folder in other places. */
static void store_list(FILE *file, const char *source, const struct ls_token_store *store)
{
    for (int i = 0; i < ls_token_store_files(store); i++) {
        const struct ls_token_file one = ls_token_store_file(store, i);
        const char *slash = strrchr(one.path, '/');
        fprintf(file, "%s of %s, %lld tokens", slash ? slash + 1 : one.path, source,
                (long long)one.tokens);
        if (one.masked)
            fprintf(file, ", of which %lld count", (long long)one.counted);
        if (one.weighted)
            fputs(", with weights", file);
        fputc('\n', file);
    }
}

static int listing_make(const struct ls_config *config, const struct ls_training_data *data,
                        const struct ls_token_store *valid, struct listing *listing,
                        struct ls_error *error)
{
    *listing = (struct listing){0};
    FILE *file = open_memstream(&listing->text, &listing->bytes);
    listing->recipe = file ? recipe_list(file, config) : 0;
    for (int i = 0; file && i < data->count; i++) {
        char source[32];
        snprintf(source, sizeof source, "source %d", i);
        store_list(file, source, data->stores[i]);
    }
    if (file && valid)
        store_list(file, "data.valid", valid);
    return file && !fclose(file) ? LS_OK : ls_no_memory(error, "for a recipe and a list of stores");
}

/* text = the line that begins at `at` of a listing, "nothing more" behind the last. Returns where
 * the next one begins. */
static const char *line_take(const char *at, char text[300])
{
    size_t length = strcspn(at, "\n");
    snprintf(text, 300, "%.*s", length ? (int)ls_min((int64_t)length, 299) : 12,
             length ? at : "nothing more");
    return at + length + (at[length] == '\n');
}

static int difference_tell(const struct ls_comm *world, const struct listing *listing,
                           const char *first, struct ls_error *error)
{
    const char *here = listing->text;
    char mine[300], theirs[300];
    int line = 0;
    do {
        here = line_take(here, mine);
        first = line_take(first, theirs);
        line++;
    } while (!strcmp(mine, theirs) && (*here || *first));
    if (line <= listing->recipe)
        return ls_error_set(error, LS_ECONFIG,
                            "the recipe is not the same: %s has %s, and %s has %s. Expected one "
                            "configuration and one version of lockstep on all hosts: copy them "
                            "from one host to the others",
                            ls_comm_rank_text(world, 0).text, theirs,
                            ls_comm_rank_text(world, ls_comm_rank(world)).text, mine);
    return ls_error_set(error, LS_EDATA,
                        "the list of stores is not the same: file %d of %s is %s, and of %s %s. "
                        "Expected the same files on all hosts: wait until all of them are there, "
                        "or name the stores one by one",
                        line - listing->recipe, ls_comm_rank_text(world, 0).text, theirs,
                        ls_comm_rank_text(world, ls_comm_rank(world)).text, mine);
}

/* Collective. The whole list of rank 0 is sent only if another one differs. */
static int lists_compare(const struct listing *mine, bool differs, struct ls_comm *world,
                         struct ls_error *error)
{
    int64_t bytes = (int64_t)mine->bytes;
    bool first = ls_comm_rank(world) == 0;
    int status = ls_broadcast(world, &bytes, 1, LS_I64, 0, error);
    if (status)
        return status;
    char *text = calloc(1, (size_t)bytes + 1);
    if (!text)
        status = ls_no_memory(error, "for a list of stores");
    else if (first)
        memcpy(text, mine->text, mine->bytes);
    status = ls_comm_agree(world, status, error);
    if (!status)
        status = ls_broadcast(world, text, bytes, LS_U8, 0, error);
    if (!status && differs)
        status = difference_tell(world, mine, text, error);
    free(text);
    return ls_comm_agree(world, status, error);
}

int data_agree(const struct ls_config *config, const struct ls_training_data *data,
               const struct ls_token_store *valid, struct ls_comm *world, struct ls_error *error)
{
    struct listing mine;
    struct ls_digest digest = {0, 0}, first;
    int status = listing_make(config, data, valid, &mine, error);
    status = ls_comm_agree(world, status, error);
    if (!status)
        ls_digest_piece(&digest, "stores", 0, 0, mine.text, mine.bytes);
    first = digest;
    if (!status)
        status = ls_broadcast(world, &first, sizeof first, LS_U8, 0, error);
    int64_t differs = memcmp(&first, &digest, sizeof first) != 0, any = differs;
    if (!status)
        status = ls_all_reduce_max(world, &any, error);
    if (!status && any)
        status = lists_compare(&mine, differs, world, error);
    free(mine.text);
    return status;
}
