/* data.blend: sources mixed by weight. Its value is kept as the text that is written into a file,
 *
 *     [{source: "runs/web_train", weight: 0.7}, {source: "runs/code_train", weight: 0.3}]
 *
 * and read again by who needs it, so there is one form of it. */
#include "config/config_private.h"

#include <lockstep/net.h>

#include <libfyaml.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define ITEM(item_type, item_name, item_max, item_help)                                            \
    {                                                                                              \
        .name = #item_name, .type = LS_CONFIG_##item_type, .max = (item_max), .help = (item_help), \
        .offset = offsetof(struct ls_config_source, item_name)                                     \
    }
static const struct ls_config_key item_keys[] = {
    ITEM(PATHS, source, 0, "what data.train takes"),
    ITEM(REAL, weight, 1e15, "its share, beside the other weights"),
    ITEM(REAL, epochs, 1e12, "passes over it at most; 0 = no limit"),
    ITEM(INT, from_step, 0x1p60, "the step behind which it begins"),
    {.name = NULL},
};

struct items {
    struct ls_config_source *list;
    int64_t count, room;
    struct ls_yaml *yaml;
    struct ls_yaml_place seen[sizeof item_keys / sizeof *item_keys];
};

static int append(struct items *items, struct ls_error *error)
{
    if (items->count == LS_CONFIG_SOURCES_MAX)
        return ls_error_set(error, LS_ECONFIG, "data.blend: expected at most %d entries",
                            LS_CONFIG_SOURCES_MAX);
    if (!ls_list_grow(&items->list, items->count, &items->room, sizeof *items->list))
        return ls_no_memory(error, "for the sources of data.blend");
    items->list[items->count++] = (struct ls_config_source){.weight = -1};
    return LS_OK;
}

/* ---- from YAML ------------------------------------------------------------------------------- */

static int item_value(void *user, struct ls_yaml_place at, const char *name, const char *key)
{
    struct items *items = user;
    struct ls_config_source *item = &items->list[items->count - 1];
    char what[512], why[256], text[LS_CONFIG_TEXT_BYTES];
    int index = ls_config_key_index(item_keys, key);
    if (index < 0) {
        snprintf(what, sizeof what,
                 "data.blend: unknown key %.60s: expected source, weight, epochs or from_step",
                 key);
        return ls_yaml_about(items->yaml, at, "data.blend", what);
    }
    int status = ls_yaml_once(items->yaml, &items->seen[index], at, name);
    if (status)
        return status;
    struct ls_yaml_place value_at = ls_yaml_at(items->yaml);
    const struct fy_event *event = items->yaml->event;
    if (event->type != FYET_SCALAR || !ls_yaml_text(items->yaml, text, sizeof text))
        return ls_yaml_about(items->yaml, value_at, "data.blend",
                             "data.blend: expected one short value here");
    bool quoted = event->scalar.value && fy_token_scalar_style(event->scalar.value) != FYSS_PLAIN;
    const struct ls_config_key *found = &item_keys[index];
    if (ls_config_parse(found, (char *)item + found->offset, text, quoted, why, sizeof why))
        return LS_OK;
    snprintf(what, sizeof what, "data.blend: %s = %.100s: expected %s", found->name, text, why);
    return ls_yaml_about(items->yaml, value_at, "data.blend", what);
}

static int item_read(struct items *items)
{
    struct ls_yaml *yaml = items->yaml;
    struct ls_yaml_place at = ls_yaml_at(yaml);
    if (yaml->event->type != FYET_MAPPING_START)
        return ls_yaml_about(yaml, at, "data.blend",
                             "data.blend: expected {source: STORE, weight: NUMBER}");
    memset(items->seen, 0, sizeof items->seen);
    int status = append(items, yaml->error);
    if (!status)
        status = ls_yaml_map(yaml, "data.blend.", item_value, items);
    const struct ls_config_source *item = &items->list[items->count - 1];
    if (!status && (!item->source[0] || item->weight < 0))
        status = ls_yaml_about(yaml, at, "data.blend",
                               item->source[0] ? "data.blend: an entry without a weight"
                                               : "data.blend: an entry without a source");
    return status;
}

static int items_read(struct items *items)
{
    int status = LS_OK;
    while (!(status = ls_yaml_next(items->yaml)) && items->yaml->event->type != FYET_SEQUENCE_END &&
           !(status = item_read(items)))
        continue;
    return status;
}

/* ---- from and to text ------------------------------------------------------------------------ */

static bool put_items(const struct items *items, char text[LS_CONFIG_BLEND_BYTES])
{
    size_t used = 0;
    text[0] = '\0';
    for (int64_t i = 0; i < items->count; i++) {
        const struct ls_config_source *item = &items->list[i];
        char value[LS_CONFIG_VALUE_BYTES];
        for (const struct ls_config_key *key = item_keys; key->name; key++) {
            bool first = key == item_keys;
            ls_config_format(key, (const char *)item + key->offset, value, sizeof value);
            if (key - item_keys >= 2 && !strcmp(value, "0"))
                continue;
            used += (size_t)snprintf(text + used, LS_CONFIG_BLEND_BYTES - used, "%s%s: %s",
                                     !first ? ", "
                                     : i    ? ", {"
                                            : "[{",
                                     key->name, value);
            if (used + 3 >= LS_CONFIG_BLEND_BYTES)
                return false;
        }
        used += (size_t)snprintf(text + used, LS_CONFIG_BLEND_BYTES - used, "}");
    }
    if (items->count)
        snprintf(text + used, LS_CONFIG_BLEND_BYTES - used, "]");
    return true;
}

/* "0.7 runs/web_train 0.3 runs/code_train", as Megatron's --data-path has it. */
static int pairs_read(struct items *items, const char *text, struct ls_error *error)
{
    const struct ls_config_key *source = &item_keys[0], *weight = &item_keys[1];
    char word[LS_CONFIG_TEXT_BYTES], why[256];
    bool path = false;
    int status = LS_OK;
    for (const char *at = text; !status && *(at += strspn(at, " \t\n")); path = !path) {
        size_t length = strcspn(at, " \t\n");
        snprintf(word, sizeof word, "%.*s", (int)length, at);
        at += length;
        const struct ls_config_key *key = path ? source : weight;
        status = path ? LS_OK : append(items, error);
        char *item = status ? NULL : (char *)&items->list[items->count - 1];
        if (item && !(length < sizeof word &&
                      ls_config_parse(key, item + key->offset, word, false, why, sizeof why)))
            status = ls_error_set(error, LS_ECONFIG, "%.80s stands for a %s", word, key->name);
    }
    if (!status && path)
        status = ls_error_set(error, LS_ECONFIG, "the last weight has no store");
    return status;
}

static int text_read(struct items *items, const char *text, struct ls_error *error)
{
    struct ls_yaml yaml;
    if (text[strspn(text, " \t\n")] != '[')
        return pairs_read(items, text, error);
    items->yaml = &yaml;
    int status = ls_yaml_open(&yaml, "data.blend", text, strlen(text), "expected a list", error);
    if (!status)
        status = ls_yaml_begin(&yaml);
    if (!status && yaml.event->type != FYET_SEQUENCE_START)
        status = ls_yaml_fail(&yaml, ls_yaml_at(&yaml), "expected a list");
    if (!status)
        status = items_read(items);
    if (!status)
        status = ls_yaml_end(&yaml);
    ls_yaml_close(&yaml);
    return status;
}

bool config_blend_parse(const char *text, char slot[LS_CONFIG_BLEND_BYTES], char *why, size_t bytes)
{
    struct items items = {0};
    struct ls_error error = {0};
    char kept[LS_CONFIG_BLEND_BYTES] = "";
    int status = text_read(&items, text, &error);
    if (!status && !put_items(&items, kept))
        status = ls_error_set(&error, LS_ECONFIG, "longer than %d bytes", LS_CONFIG_BLEND_BYTES);
    if (!status)
        memcpy(slot, kept, sizeof kept);
    else
        snprintf(why, bytes, "[{source: STORE, weight: 0.7}, ...] or \"0.7 STORE 0.3 STORE\" (%s)",
                 error.text);
    free(items.list);
    return status == LS_OK;
}

int config_blend_read(struct ls_yaml *yaml, const char *file, char slot[LS_CONFIG_BLEND_BYTES])
{
    struct items items = {.yaml = yaml};
    struct ls_yaml_place at = ls_yaml_at(yaml);
    int status = items_read(&items);
    bool fits = true;
    for (int64_t i = 0; i < items.count && !status; i++)
        fits &= config_here(file, true, items.list[i].source);
    if (!status && !(fits && put_items(&items, slot)))
        status = ls_yaml_about(yaml, at, "data.blend",
                               "data.blend: too long; put stores into one folder");
    free(items.list);
    return status;
}

/* ---- its sources ----------------------------------------------------------------------------- */

/* Numbers them: who asks which entries are one source asks these. */
static void sources_number(struct ls_config_source *entries, int64_t count)
{
    int known = 0;
    for (int64_t i = 0; i < count; i++) {
        int64_t first = 0;
        while (strcmp(entries[first].source, entries[i].source) != 0)
            first++;
        entries[i].index = first < i ? entries[first].index : known++;
    }
}

int ls_config_sources(const struct ls_config *config, struct ls_config_source **out, int *count,
                      struct ls_error *error)
{
    struct items items = {0};
    int status = LS_OK;
    if (config->data.blend[0])
        status = text_read(&items, config->data.blend, error);
    else if (config->data.train[0])
        status = append(&items, error);
    if (!status && !config->data.blend[0] && items.count) {
        items.list[0].weight = 1;
        memcpy(items.list[0].source, config->data.train, sizeof items.list[0].source);
    }
    if (status) {
        free(items.list);
        items = (struct items){0};
    }
    sources_number(items.list, items.count);
    *out = items.list;
    *count = (int)items.count;
    return status;
}

/* Whether a name of a list is a URL. */
static bool is_elsewhere(const char *source)
{
    static const char bare[] = "u16:";
    for (const char *at = source; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
        if (ls_url_is(at + (strncmp(at, bare, sizeof bare - 1) ? 0 : sizeof bare - 1)))
            return true;
    return false;
}

/* Whether the entry's weight holds for the step behind `step`: no later one of its source does. */
static bool holds(const struct ls_config_source *entries, int count, int entry, int64_t step)
{
    bool begun = entries[entry].from_step <= step;
    for (int i = 0; i < count && begun; i++)
        begun = entries[i].index != entries[entry].index ||
                entries[i].from_step <= entries[entry].from_step || entries[i].from_step > step;
    return begun;
}

/* Of the stage that begins behind `step`. */
static double share_elsewhere(const struct ls_config_source *entries, int count, int64_t step)
{
    double all = 0, elsewhere = 0;
    for (int i = 0; i < count; i++) {
        double weight = holds(entries, count, i, step) ? entries[i].weight : 0;
        all += weight;
        elsewhere += is_elsewhere(entries[i].source) ? weight : 0;
    }
    return all > 0 ? elsewhere / all : 0;
}

double ls_config_elsewhere(const struct ls_config *config)
{
    struct ls_config_source *entries;
    int count;
    double most = 0;
    if (ls_config_sources(config, &entries, &count, NULL))
        return 0;
    for (int i = 0; i < count; i++)
        most = fmax(most, share_elsewhere(entries, count, entries[i].from_step));
    free(entries);
    return most;
}

bool config_blend_map(char blend[LS_CONFIG_BLEND_BYTES], void (*map)(void *user, char *source),
                      void *user)
{
    struct items items = {0};
    bool good = !text_read(&items, blend, NULL);
    for (int64_t i = 0; i < items.count && good; i++)
        map(user, items.list[i].source);
    good = good && put_items(&items, blend);
    free(items.list);
    return good;
}

/* ---- going on with another one --------------------------------------------------------------- */

/* An entry that begins before the end of a step, by what samples follow from. */
struct begun {
    struct ls_config_source entry; /* under the name by which it is compared */
    double epochs;                 /* of its source, whichever entry has them */
    int place;                     /* of its source in the order of sources, which ends ties */
};

static int begun_find(const struct ls_config *config, int64_t step, struct begun **out)
{
    struct ls_config_source *entries;
    int count, kept = 0;
    *out = NULL;
    if (ls_config_sources(config, &entries, &count, NULL))
        return -1;
    *out = calloc((size_t)ls_max(count, 1), sizeof **out);
    for (int i = 0; i < count && *out; i++) {
        struct begun *begun = &(*out)[kept];
        if (entries[i].from_step >= step)
            continue;
        begun->entry = entries[i];
        begun->place = count;
        for (int k = count - 1; k >= 0; k--) {
            if (entries[k].index != entries[i].index)
                continue;
            begun->epochs = entries[k].epochs > 0 ? entries[k].epochs : begun->epochs;
            begun->place = k;
        }
        ls_config_source_name(begun->entry.source);
        kept++;
    }
    free(entries);
    return *out ? kept : -1;
}

static bool begun_same(const struct begun *a, const struct begun *b, bool weighed)
{
    return !strcmp(a->entry.source, b->entry.source) && a->epochs == b->epochs &&
           a->entry.from_step == b->entry.from_step &&
           (!weighed || a->entry.weight == b->entry.weight);
}

bool ls_config_blend_goes_on(const struct ls_config *now, const struct ls_config *then,
                             int64_t step)
{
    struct begun *here, *there;
    int count = begun_find(now, step, &here);
    bool same = begun_find(then, step, &there) == count && count >= 0;
    for (int i = 0; i < count && same; i++) {
        same = begun_same(&here[i], &there[i], count > 1);
        for (int k = 0; k < i && same; k++)
            same = (here[k].place < here[i].place) == (there[k].place < there[i].place);
    }
    free(here);
    free(there);
    return same;
}
