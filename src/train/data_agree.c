/* Whether all ranks have the same recipe and layout, and list the same stores. Each rank reads the
 * configuration on its own host, and lists a folder or a pattern of stores there: an older program
 * or file, a copy that is not finished, or a file system whose caches are behind, would give it
 * another step, other messages or another order of samples, and no error. */
#include "train/trainer.h"

#include <lockstep/base/figure.h>
#include <lockstep/base/key.h>
#include <lockstep/base/version.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A line for each key that ranks share, or for each file of the stores. */
struct listing {
    char *text;
    size_t bytes;
    bool keys;
};

struct line {
    const char *text;
    size_t length; /* 0: behind the last one */
};

/* By name paths may differ: files are listed by what they hold, entries of data.blend without
 * their sources' paths. */
static bool has_path(const struct ls_config_key *key)
{
    return key->type == LS_CONFIG_PATH || key->type == LS_CONFIG_PATHS ||
           key->type == LS_CONFIG_BLEND;
}

/* Of the recipe, and others by which ranks exchange messages, or decide when they do. What a
 * machine does with its cores and its memory, and what one rank shows, is its own. */
static bool is_shared(const struct ls_config_key *key)
{
    static const char groups[] = "parallel|batch|train|eval|sample|rollout|check|snapshot",
                      own[] = "parallel.threads|parallel.auto|train.keep",
                      others[] = "memory.recompute|memory.partition_activations|comm.bucket_mb|"
                                 "comm.check|checkpoint.async|log.hash_every|log.drift_every|"
                                 "log.profile";
    char group[32];
    snprintf(group, sizeof group, "%.*s", (int)strcspn(key->name, "."), key->name);
    return key->part == LS_CONFIG_RECIPE || ls_word_among(others, key->name) ||
           (ls_word_among(groups, group) && !ls_word_among(own, key->name));
}

static int entries_list(FILE *file, const struct ls_config *config, struct ls_error *error)
{
    struct ls_config_source *entries;
    int count, status = ls_config_sources(config, &entries, &count, error);
    for (int i = 0; i < count && !status; i++) {
        char weight[LS_FIGURE_BYTES_MAX], epochs[LS_FIGURE_BYTES_MAX];
        ls_figure_text(LS_FIGURE_NUMBER, entries[i].weight, weight);
        ls_figure_text(LS_FIGURE_NUMBER, entries[i].epochs, epochs);
        fprintf(file, "data.blend: entry %d = source %d, weight %s, epochs %s, from_step %lld\n", i,
                entries[i].index, weight, epochs, (long long)entries[i].from_step);
    }
    free(entries);
    return status;
}

/* As it was given: what machines make of it is settled later. */
static int recipe_list(FILE *file, const struct ls_config *config, struct ls_error *error)
{
    fprintf(file, "numerics.version = %d\n", LS_NUMERICS_VERSION);
    for (const struct ls_config_key *key = ls_config_keys(NULL); key->name; key++) {
        char value[LS_CONFIG_VALUE_BYTES];
        if (!is_shared(key) || has_path(key))
            continue;
        ls_config_value(config, key, value, sizeof value);
        fprintf(file, "%s = %s\n", key->name, value);
    }
    return entries_list(file, config, error);
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

static FILE *listing_open(struct listing *listing, bool keys)
{
    *listing = (struct listing){.keys = keys};
    return open_memstream(&listing->text, &listing->bytes);
}

static int listing_close(FILE *file, int status, struct ls_error *error)
{
    bool whole = file && !fclose(file);
    return status || whole ? status : ls_no_memory(error, "for a recipe or a list of stores");
}

/* The line that begins at *at, which moves to the next one. */
static struct line line_take(const char **at)
{
    const struct line line = {*at, strcspn(*at, "\n")};
    *at += line.length + ((*at)[line.length] == '\n');
    return line;
}

/* Bytes with which both begin. */
static size_t lines_common(struct line a, struct line b)
{
    size_t common = 0;
    while (common < a.length && common < b.length && a.text[common] == b.text[common])
        common++;
    return common;
}

/* Cuts a long one to its beginning, and to what is around its byte `at`. */
static void line_show(struct line line, size_t at, char text[300])
{
    size_t from = at > 200 ? at - 60 : 0;
    if (!line.length)
        snprintf(text, 300, "nothing more");
    else if (!from)
        snprintf(text, 300, "%.*s", (int)line.length, line.text);
    else
        snprintf(text, 300, "%.60s ... %.*s", line.text, (int)(line.length - from),
                 line.text + from);
}

static int difference_tell(const struct ls_comm *world, const struct listing *listing,
                           const char *first, struct ls_error *error)
{
    const char *here = listing->text;
    struct line own, other;
    char mine[300], theirs[300];
    size_t common;
    int line = 0;
    do {
        own = line_take(&here);
        other = line_take(&first);
        common = lines_common(own, other);
        line++;
    } while (common == own.length && common == other.length && common);
    line_show(own, common, mine);
    line_show(other, common, theirs);
    if (listing->keys)
        return ls_error_set(
            error, LS_ECONFIG,
            "the configuration is not the same: %s has %s, and %s has %s. Expected one "
            "configuration and one version of lockstep on all hosts: copy them "
            "from one host to the others",
            ls_comm_rank_text(world, 0).text, theirs,
            ls_comm_rank_text(world, ls_comm_rank(world)).text, mine);
    return ls_error_set(error, LS_EDATA,
                        "the list of stores is not the same: file %d of %s is %s, and of %s %s. "
                        "Expected the same files on all hosts: wait until all of them are there, "
                        "or name the stores one by one",
                        line, ls_comm_rank_text(world, 0).text, theirs,
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
        status = ls_no_memory(error, "for a recipe or a list of stores");
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

/* Collective. status: of the listing, whose text is freed. */
static int listing_agree(const struct listing *mine, int status, struct ls_comm *world,
                         struct ls_error *error)
{
    struct ls_digest digest = {0, 0}, first;
    status = ls_comm_agree(world, status, error);
    if (!status)
        ls_digest_piece(&digest, "listing", 0, 0, mine->text, mine->bytes);
    first = digest;
    if (!status)
        status = ls_broadcast(world, &first, sizeof first, LS_U8, 0, error);
    int64_t differs = memcmp(&first, &digest, sizeof first) != 0, any = differs;
    if (!status)
        status = ls_all_reduce_max(world, &any, error);
    if (!status && any)
        status = lists_compare(mine, differs, world, error);
    free(mine->text);
    return status;
}

int recipe_agree(const struct ls_config *config, struct ls_comm *world, struct ls_error *error)
{
    struct listing mine;
    FILE *file = listing_open(&mine, true);
    int status = file ? recipe_list(file, config, error) : LS_OK;
    return listing_agree(&mine, listing_close(file, status, error), world, error);
}

int data_agree(const struct ls_training_data *data, const struct ls_token_store *valid,
               struct ls_comm *world, struct ls_error *error)
{
    struct listing mine;
    FILE *file = listing_open(&mine, false);
    for (int i = 0; file && i < data->count; i++) {
        char source[32];
        snprintf(source, sizeof source, "source %d", i);
        store_list(file, source, data->stores[i]);
    }
    if (file && valid)
        store_list(file, "data.valid", valid);
    return listing_agree(&mine, listing_close(file, LS_OK, error), world, error);
}
