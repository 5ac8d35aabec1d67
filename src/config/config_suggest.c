/* What a refusal says works: other ranks, the nearest configuration, another recipe. */
#include "config/config_private.h"

#include <lockstep/base/words.h>

#include <string.h>

/* ---- changes --------------------------------------------------------------------------------- */

/* A value as a user writes it. */
static void value_text(const struct ls_config *config, const struct ls_config_key *key, char *text,
                       size_t bytes)
{
    if (config_is_text(key))
        snprintf(text, bytes, "%s", (const char *)config_slot(config, key));
    else
        ls_config_value(config, key, text, bytes);
}

/* Whether `to` has another value of this key, of the layout or mended; text: that value. */
static bool changes(const struct ls_config *refused, const struct ls_config *to,
                    const struct ls_config_key *key, char *text, size_t bytes)
{
    char before[4 * LS_CONFIG_TEXT_BYTES];
    if (key->part != LS_CONFIG_LAYOUT && !config_is_mended(refused, key))
        return false;
    value_text(refused, key, before, sizeof before);
    value_text(to, key, text, bytes);
    return strcmp(before, text) != 0;
}

/* "parallel.tp = 2, parallel.split = """ */
static void changes_text(const struct ls_config *refused, const struct ls_config *to, char *text,
                         size_t bytes)
{
    text[0] = '\0';
    for (const struct ls_config_key *key = ls_config_keys(NULL); key->name; key++) {
        char value[4 * LS_CONFIG_TEXT_BYTES];
        const char *quote = config_is_text(key) ? "\"" : "";
        if (changes(refused, to, key, value, sizeof value))
            ls_string_add(text, bytes, ", ", "%s = %s%s%s", key->name, quote, value, quote);
    }
}

/* ---- judging --------------------------------------------------------------------------------- */

static bool admitted(const struct config_refusal *refusal, const struct ls_config *config,
                     int64_t world)
{
    struct ls_layout layout;
    bool readable = config->parallel.schedule != LS_LAYOUT_CSV || refusal->table;
    return readable && !config_admit(config, world, refusal->table, &layout, NULL);
}

bool config_works(const struct config_refusal *refusal, const struct ls_config *to)
{
    struct ls_config changed = *refusal->refused;
    for (const struct ls_config_key *key = ls_config_keys(NULL); key->name; key++) {
        char value[4 * LS_CONFIG_TEXT_BYTES], why[256];
        if (changes(refusal->refused, to, key, value, sizeof value) &&
            !config_parse(&changed, key, value, config_is_text(key), why, sizeof why))
            return false;
    }
    return !config_resolve(&changed, changed.model_keys.vocab, false, NULL) &&
           admitted(refusal, &changed, refusal->world);
}

/* ---- saying ---------------------------------------------------------------------------------- */

/* The ranks that the layout asks for, if their number alone is wrong. */
static void say_ranks(const struct config_refusal *refusal, struct ls_error *error)
{
    if (refusal->world && admitted(refusal, refusal->refused, 0))
        ls_error_suffix(error, ": start %ld", (long)ls_config_ranks(refusal->refused));
}

static void say_nearest(const struct config_refusal *refusal, const struct ls_config *nearest,
                        struct ls_error *error)
{
    char text[sizeof error->text - 32];
    changes_text(refusal->refused, nearest, text, sizeof text);
    ls_error_suffix(error, "; the nearest that works is %s", text);
}

/* Why none does: for a number of ranks, what is wrong with data parallel alone. */
static void say_none(const struct config_refusal *refusal, const struct ls_config *mended,
                     struct ls_error *error)
{
    struct ls_config plain = *mended;
    struct ls_layout layout;
    struct ls_error why = {0};
    ls_config_layout_reset(&plain);
    plain.parallel.dp = refusal->world;
    if (refusal->world && config_admit(&plain, refusal->world, NULL, &layout, &why))
        ls_error_suffix(error, "; no layout of %s was found that works: %.300s",
                        ls_counted(refusal->world, "rank").text, why.text);
    else
        ls_error_suffix(error, "; no layout near it was found that works");
}

/* A recipe that has context parallel as it is asked for: a sequence that is cut is a leaf. */
static void say_tiles(const struct config_refusal *refusal, struct ls_error *error)
{
    struct ls_config other = *refusal->refused;
    struct ls_config_numerics *n = &other.numerics;
    struct ls_error why = {0};
    int64_t cp = other.parallel.cp;
    bool leaf = ls_config_is_given(&other, "numerics.leaf_sequences") && n->leaf_sequences > 1;
    if (n->mode == LS_CONFIG_FAST || n->seq_tiles % cp == 0)
        return;
    n->seq_tiles = cp;
    n->leaf_sequences = 1;
    if (ls_seq_tiles_admit(cp, other.data.sequence, 1, &why)) {
        ls_error_suffix(error, "; numerics.seq_tiles = %ld would need another sequence: %.300s",
                        (long)cp, why.text);
        return;
    }
    if (config_resolve(&other, other.model_keys.vocab, false, NULL) ||
        !admitted(refusal, &other, refusal->world))
        return;
    ls_error_suffix(error, "; what works too, before the first step, is numerics.seq_tiles = %ld%s",
                    (long)cp, leaf ? ", numerics.leaf_sequences = 1" : "");
}

void config_suggest(const struct ls_config *refused, const struct ls_config *mended, int64_t world,
                    struct ls_error *error)
{
    struct ls_schedule table;
    struct ls_config nearest;
    struct config_refusal refusal = {.refused = refused, .world = world};
    const struct ls_layout_keys *keys = &refused->parallel;
    if (keys->schedule == LS_LAYOUT_CSV && *keys->schedule_file &&
        !ls_layout_file(keys, &table, NULL))
        refusal.table = &table;
    say_ranks(&refusal, error);
    if (config_nearest(&refusal, mended, &nearest)) {
        say_nearest(&refusal, &nearest, error);
        say_tiles(&refusal, error);
    } else {
        say_none(&refusal, mended, error);
    }
    if (refusal.table)
        ls_schedule_release(&table);
}
