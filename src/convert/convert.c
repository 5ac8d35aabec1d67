/* Conversion: reads a source, gives each of its keys a fate; the project derives the rest. */
#include "convert/convert_private.h"

#include <lockstep/base/file.h>
#include <lockstep/base/formatted.h>
#include <lockstep/base/words.h>

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

enum { FILE_BYTES_MAX = 1 << 20, TEXT_BYTES = LS_CONFIG_VALUE_BYTES };

/* ---- items ---------------------------------------------------------------------------------- */

static int line_of(const struct convert *c, const char *theirs)
{
    const struct convert_entry *entry = convert_entries_find(&c->entries, theirs);
    return entry ? entry->line : 0;
}

static void item_release(struct ls_convert_item *item)
{
    free(item->theirs);
    free(item->key);
    free(item->value);
    free(item->why);
}

static void item_add(struct convert *c, enum ls_convert_fate fate, const char *theirs,
                     const char *key, const char *value, const char *why)
{
    struct ls_convert *result = c->result;
    if (c->status)
        return;
    if (!ls_list_grow(&result->items, (int64_t)result->count, &result->room, sizeof *result->items))
        goto out;
    struct ls_convert_item *added = &result->items[result->count];
    struct convert_entry *entry = convert_entries_find(&c->entries, theirs);
    if (entry)
        entry->told = true;
    *added = (struct ls_convert_item){
        .fate = fate,
        .line = line_of(c, theirs),
        .theirs = strdup(theirs),
        .key = strdup(key),
        .value = strdup(value),
        .why = strdup(why),
    };
    if (added->theirs && added->key && added->value && added->why) {
        result->count++;
        return;
    }
    item_release(added);
out:
    c->status = ls_no_memory(c->error, "for a conversion");
}

/* text[TEXT_BYTES] = the format with what follows it. */
#define FORMATTED(text, format)                                                                    \
    char text[TEXT_BYTES];                                                                         \
    LS_FORMAT(text, format)

bool convert_has(const struct convert *c, const char *ours)
{
    for (size_t i = 0; i < c->result->count; i++)
        if (strcmp(c->result->items[i].key, ours) == 0)
            return true;
    for (size_t i = 0; i < c->options->word_count; i++) {
        size_t length = strcspn(c->options->words[i], "=");
        if (strlen(ours) == length && strncmp(c->options->words[i], ours, length) == 0)
            return true;
    }
    return c->options->preset && strcmp(ours, "model.preset") == 0;
}

bool convert_is_auto(const struct convert *c, const char *theirs)
{
    for (size_t i = 0; i < c->result->count; i++)
        if (c->result->items[i].fate == LS_CONVERT_AUTO &&
            strcmp(c->result->items[i].theirs, theirs) == 0)
            return true;
    return false;
}

void convert_keep(struct convert *c, const char *ours, const char *theirs, const char *format, ...)
{
    FORMATTED(value, format);
    item_add(c, LS_CONVERT_KEPT, theirs, ours, value, "");
}

void convert_assume(struct convert *c, const char *ours, const char *theirs, const char *format,
                    ...)
{
    FORMATTED(value, format);
    if (!convert_has(c, ours) && !convert_is_auto(c, theirs))
        item_add(c, LS_CONVERT_ASSUMED, theirs, ours, value, "");
}

void convert_settle(struct convert *c, const char *ours, const char *theirs, const char *format,
                    ...)
{
    FORMATTED(value, format);
    if (convert_find(c, theirs))
        convert_keep(c, ours, theirs, "%s", value);
    else
        convert_assume(c, ours, theirs, "%s", value);
}

void convert_drop(struct convert *c, const char *theirs, const char *format, ...)
{
    FORMATTED(why, format);
    item_add(c, LS_CONVERT_DROPPED, theirs, "", "", why);
}

void convert_lose(struct convert *c, const char *theirs, const char *lacks, const char *format, ...)
{
    FORMATTED(why, format);
    char found[LS_CONVERT_HERE_BYTES];
    if (ls_convert_here(lacks, found))
        snprintf(
            why, sizeof why,
            "%s is here, but this is not translated to it yet: set it yourself, and leave this out",
            found);
    item_add(c, LS_CONVERT_LOST, theirs, "", "", why);
}

void convert_advise(struct convert *c, const char *format, ...)
{
    FORMATTED(why, format);
    item_add(c, LS_CONVERT_ADVICE, "", "", "", why);
}

void convert_fail(struct convert *c, const char *theirs, const char *format, ...)
{
    FORMATTED(expected, format);
    int line = line_of(c, theirs);
    const struct convert_entry *entry = convert_find(c, theirs);
    char place[32] = "";
    if (c->status)
        return;
    if (line)
        snprintf(place, sizeof place, ":%d", line);
    c->status =
        ls_error_set(c->error, LS_ECONFIG, "%.200s%s: %.200s%s%.200s: %s", c->name, place, theirs,
                     entry && *entry->text ? " = " : "", entry ? entry->text : "", expected);
}

void convert_take(struct convert *c, const char *ours, const char *theirs, const char *initial)
{
    if (convert_find(c, theirs))
        convert_keep(c, ours, theirs, "%s", convert_word(c, theirs, ""));
    else if (initial)
        convert_assume(c, ours, theirs, "%s", initial);
}

void convert_keep_int(struct convert *c, const char *ours, const char *theirs, int64_t value)
{
    convert_keep(c, ours, theirs, "%lld", (long long)value);
}

bool convert_take_int(struct convert *c, const char *ours, const char *theirs, int64_t *out)
{
    bool given = convert_int(c, theirs, 1, out);
    if (given)
        convert_keep_int(c, ours, theirs, *out);
    return given;
}

bool convert_choose(struct convert *c, const char *ours, const char *theirs, const char *word)
{
    char known[256] = "";
    for (const struct ls_word *one = ls_config_key_of(ours)->words; one->word; one++) {
        if (convert_among(word, one->word)) {
            convert_keep(c, ours, theirs, "%s", one->word);
            return true;
        }
        ls_string_add(known, sizeof known, ", ", "%s", one->word);
    }
    convert_lose(c, theirs, ASKED, "there is no %s: %s is one of %s", word, ours, known);
    return false;
}

/* ---- what all projects have ----------------------------------------------------------------- */

int64_t convert_dp(struct convert *c, int64_t model_ranks, const char *axes)
{
    int64_t ranks = c->options->ranks;
    if (ranks == 0 || c->status)
        return 0;
    if (ranks % model_ranks) {
        c->status = ls_error_set(c->error, LS_ECONFIG,
                                 "%.200s: %lld ranks cannot be shared: expected a multiple of %s = "
                                 "%lld",
                                 c->name, (long long)ranks, axes, (long long)model_ranks);
        return 0;
    }
    return ranks / model_ranks;
}

void convert_tp(struct convert *c, const char *theirs, int64_t ranks)
{
    enum { TILES = 8 }; /* what numerics.tp_tiles = 0 reaches */
    convert_keep_int(c, "parallel.tp", theirs, ranks);
    if (ranks > TILES || !ls_is_pow2(ranks))
        convert_keep_int(c, "numerics.tp_tiles", theirs, ranks);
}

void convert_cp(struct convert *c, const char *theirs, int64_t ranks)
{
    convert_keep_int(c, "parallel.cp", theirs, ranks);
    if (ranks > 1)
        convert_keep_int(c, "numerics.seq_tiles", theirs, ranks);
}

void convert_bucket(struct convert *c, const char *theirs, double elements)
{
    double mib = elements * 4 / (1 << 20);
    convert_keep(c, "comm.bucket_mb", theirs, "%.0f", mib < 1 ? 1 : mib > 65536 ? 65536 : mib);
}

void convert_reduce(struct convert *c, const char *theirs, const char *type)
{
    bool half = convert_among(type, "bf16|bfp16|bfloat16");
    if (convert_among(type, "fp32|float32|float"))
        convert_drop(c, theirs, "as it is here");
    else if (convert_choose(c, "numerics.reduce", theirs, half ? "bf16" : type)) {
        convert_keep(c, "numerics.mode", theirs, "fast");
        convert_advise(c, "numerics.mode=fast: other layouts give other bits; numerics.reduce=fp32 "
                          "with numerics.mode=ordered keeps them equal");
    }
}

void convert_documents(struct convert *c, const char *theirs)
{
    convert_keep(c, "data.packing", theirs, "documents");
    convert_advise(c, "data.packing=documents: samples are whole documents here, and there a "
                      "stream that is cut anywhere; stores without an index cannot be packed");
}

void convert_first_weights(struct convert *c, const char *theirs)
{
    char lacks[64];
    const char *title = ls_convert_project_title(c->result->project);
    snprintf(lacks, sizeof lacks, "model.from: *%s*", title);
    if (convert_has(c, "model.from"))
        convert_drop(c, theirs, "model.from has the first weights");
    else
        convert_lose(c, theirs, lacks,
                     "checkpoints of %s are not read: give model.from=FOLDER, the same weights in "
                     "a format that it takes",
                     title);
}

/* ---- fates ---------------------------------------------------------------------------------- */

/* Whether `switch` of the section is there and off. */
static bool is_off(const struct convert *c, const char *section, size_t length, const char *name)
{
    char key[TEXT_BYTES];
    snprintf(key, sizeof key, "%.*s%s", (int)length, section, name);
    const struct convert_entry *entry = convert_entries_find(&c->entries, key);
    return entry && convert_among(entry->text, "false|0");
}

/* The switch of a section that this key lies in, and that is off; NULL for none. */
static const char *section_off(const struct convert *c, const char *key)
{
    static const char *const switches[] = {".enabled", ".enable", ".enable_checkpoint",
                                           ".shared_parameters.enabled", ".enable_profiling"};
    for (const char *dot = strchr(key, '.'); dot; dot = strchr(dot + 1, '.'))
        for (size_t i = 0; i < sizeof switches / sizeof *switches; i++)
            if (strcmp(dot, switches[i]) != 0 && is_off(c, key, (size_t)(dot - key), switches[i]))
                return switches[i] + 1;
    return NULL;
}

/* Whether the value is one with which a key changes nothing; a switch that is off is. */
static bool is_neutral(const struct convert_entry *entry, const char *off)
{
    double value;
    const char *dot = strrchr(entry->key, '.');
    if (dot && convert_among(dot, ".enabled|.enable") && convert_among(entry->text, "false|0"))
        return true;
    if (!*entry->text) /* "", [] or {} */
        return true;
    if (convert_among(entry->text, off))
        return true;
    if (!convert_number(entry->text, &value))
        return false;
    const char *at;
    size_t length;
    while (ls_word_next(&off, &at, &length)) {
        char *end;
        double neutral = strtod(at, &end);
        if (end == at + length && value == neutral)
            return true;
    }
    return false;
}

/* Whether rows lie in that section. */
static bool is_section(const struct convert_project *project, const char *key)
{
    size_t length = strlen(key);
    char theirs[LS_CONVERT_KEY_BYTES];
    for (const struct ls_convert_rule *rule = project->rules; rule->theirs; rule++)
        for (int i = 0; ls_convert_rule_key(rule, i, theirs); i++)
            if (strncmp(theirs, key, length) == 0 && theirs[length] == '.')
                return true;
    return false;
}

/* Arguments that an if of a script may have added; the text has the variable that would tell. */
static void doubted(struct convert *c, const struct convert_entry *entry)
{
    char why[TEXT_BYTES];
    const char *cause = entry->text + 1;
    bool known = *cause == '$';
    snprintf(
        why, sizeof why, "arguments of an if whose condition is not known: %s%s%swrite them out",
        known ? "give " : "", known ? cause + 1 : "", known ? "=VALUE beside the file, or " : "");
    item_add(c, LS_CONVERT_UNKNOWN, entry->key, "", "", why);
}

/* Whether the list has that NAME=VALUE. */
static bool is_listed(const char *list, const char *word)
{
    for (const char *at = list; (at = strstr(at, word)); at++)
        if (at == list || at[-1] == ' ')
            return true;
    return false;
}

/* Whether the text has a $(command) or `command`. */
static bool has_command(const char *text)
{
    for (const char *at = text; (at = strpbrk(at, "$`")); at++)
        if (*at == '`' || (at[1] == '(' && at[2] != '('))
            return true;
    return false;
}

/* The variables of a text join the list, as NAME=VALUE. False, and none do, if there are none, or
 * none that would tell all of it. */
static bool list_variables(const char *text, char *list, size_t bytes)
{
    bool any = false;
    if (has_command(text))
        return false;
    for (const char *at = strchr(text, '$'); at; at = strchr(at + 1, '$')) {
        char name[128];
        const char *begin = at + 1 + (at[1] == '{');
        size_t length = 0;
        while (isalnum((unsigned char)begin[length]) || begin[length] == '_')
            length++;
        snprintf(name, sizeof name, "%.*s=VALUE", (int)ls_min((int64_t)length, 100), begin);
        any |= length > 0;
        if (length > 0 && !is_listed(list, name))
            ls_string_add(list, bytes, " ", "%s", name);
    }
    return any;
}

static void unknown(struct convert *c, const struct convert_project *project,
                    const struct convert_entry *entry)
{
    const char *key = entry->key;
    char near[LS_CONVERT_KEY_BYTES] = "", given[512] = "", why[TEXT_BYTES];
    bool found = convert_nearest(project, key, near);
    if (project->flags && list_variables(key, given, sizeof given))
        snprintf(why, sizeof why, "set elsewhere: give %s beside the file, or write it out", given);
    else if (is_section(project, key))
        snprintf(why, sizeof why, "a section: expected keys with values, such as %s", near);
    else
        snprintf(why, sizeof why, "no such key is known%s", ls_meant(found ? near : NULL, "").text);
    item_add(c, LS_CONVERT_UNKNOWN, key, "", "", why);
}

/* By its row alone; what is READ waits for the project. */
static void give_fate(struct convert *c, struct convert_entry *entry)
{
    const struct ls_convert_rule *rule = entry->rule;
    const char *why = rule && *rule->why ? rule->why : "nothing like it is needed here";
    if (rule->kind == LS_RULE_COPY)
        convert_keep(c, rule->ours, entry->key, "%s", entry->text);
    else if (rule->kind == LS_RULE_DROP)
        convert_drop(c, entry->key, "%s", why);
    else if (rule->kind == LS_RULE_LOSE && is_neutral(entry, rule->off))
        convert_drop(c, entry->key, "as it is here");
    else if (rule->kind == LS_RULE_LOSE)
        convert_lose(c, entry->key, rule->lacks, "%s", why);
}

/* The variables of an argument that must be given join those of others. */
static void require_variables(struct convert *c, const struct convert_entry *entry)
{
    bool variables = list_variables(entry->text, c->variables, sizeof c->variables);
    const char **first = variables ? &c->unset : &c->command;
    if (!*first)
        *first = entry->key;
}

/* All variables that must be given, in one message; then what is not run. */
static void refuse_unset(struct convert *c)
{
    const char *key = c->unset ? c->unset : c->command;
    if (!key)
        return;
    const char *text = convert_entries_find(&c->entries, key)->text;
    if (c->unset)
        convert_fail(c, key, "%.200s is set elsewhere: give %s beside the file, or write it out",
                     text, c->variables);
    else
        convert_fail(c, key, "%.200s is not run: write out what it gives", text);
}

/* Whether the argument says what is trained on, but names no tokens. */
static bool is_no_corpus(const char *key)
{
    return convert_among(key, "--split|--mock-data");
}

/* Whether it counts that the argument is there, whatever its value. */
static bool is_mere_presence(const struct convert *c, const struct convert_entry *entry)
{
    bool told = convert_has(c, "data.train") || convert_has(c, "data.blend");
    return convert_among(entry->rule->ours, "log.tensorboard|model.from") ||
           (told && is_no_corpus(entry->key));
}

/* An argument with a variable that the script does not set: a path is left to the reader, and how
 * many ranks there are too. */
static void give_variable_fate(struct convert *c, const struct convert_entry *entry)
{
    char ours[128];
    size_t length = strcspn(entry->rule->ours, ",");
    LS_ASSERT(length < sizeof ours);
    memcpy(ours, entry->rule->ours, length);
    ours[length] = '\0';
    bool path =
        convert_among(ours, "data.train|data.valid|data.tokenizer|train.out|train.resume") &&
        !is_no_corpus(entry->key);
    if (!path && strcmp(ours, "parallel.dp") != 0)
        require_variables(c, entry);
    convert_drop(c, entry->key, "%.200s is not known", entry->text);
    if (path && !convert_has(c, ours))
        convert_advise(c, "%s: %s is %.200s there", ours, entry->key, entry->text);
}

/* Null, auto, and sections that are off have their fate before all else. */
static void give_early_fate(struct convert *c, const struct convert_project *project,
                            struct convert_entry *entry)
{
    entry->rule = convert_rule_of(project, entry->key);
    const char *off = project->flags ? NULL : section_off(c, entry->key);
    const char *ours = entry->rule ? entry->rule->ours : "";
    bool automatic = !project->flags && strcmp(entry->text, "auto") == 0 && *ours;
    bool variable =
        project->flags && strpbrk(entry->text, "$`") && *ours && !is_mere_presence(c, entry);
    bool none = entry->kind == CONVERT_EMPTY || entry->kind == CONVERT_NULL;
    bool empty = none && is_section(project, entry->key);
    if (entry->rule && !off && entry->kind != CONVERT_NULL && !automatic && !variable && !empty)
        return;
    entry->hidden = true;
    if (empty)
        convert_drop(c, entry->key, "an empty section");
    else if (project->flags && entry->text[0] == CONVERT_DOUBTED)
        doubted(c, entry);
    else if (project->flags && entry->key[0] == '$')
        convert_advise(c,
                       "%s (line %d): arguments that the script is called with are not known: add "
                       "those that you give it",
                       entry->key, entry->line);
    else if (project->flags && entry->key[0] != '-' && !entry->rule)
        convert_advise(c,
                       "%.200s (line %d) is not read: give the variables that it sets beside the "
                       "file, NAME=VALUE",
                       entry->key, entry->line);
    else if (!entry->rule)
        unknown(c, project, entry);
    else if (variable)
        give_variable_fate(c, entry);
    else if (off)
        convert_drop(c, entry->key, "its section is off (%s)", off);
    else if (entry->kind == CONVERT_NULL)
        convert_drop(c, entry->key, "null: the default there");
    else
        item_add(c, LS_CONVERT_AUTO, entry->key, "", "", ours);
}

static void translate(struct convert *c, const struct convert_project *project)
{
    for (size_t i = 0; i < c->entries.count; i++)
        give_early_fate(c, project, &c->entries.at[i]);
    refuse_unset(c);
    for (size_t i = 0; i < c->entries.count; i++)
        if (!c->entries.at[i].hidden)
            give_fate(c, &c->entries.at[i]);
    if (!c->status)
        project->derive(c);
    for (size_t i = 0; i < c->entries.count; i++) {
        const struct convert_entry *entry = &c->entries.at[i];
        if (!entry->hidden && !convert_entries_find(&c->entries, entry->key)->told)
            convert_drop(c, entry->key, "%s",
                         *entry->rule->why ? entry->rule->why : "follows from other keys");
    }
}

static void check_preset(struct convert *c)
{
    c->status = ls_config_preset_check(c->options->preset, c->error);
    if (c->status)
        ls_error_prefix(c->error, "--model = %.100s", c->options->preset);
}

/* What the caller says wins over the source. */
static void add_words(struct convert *c)
{
    const struct ls_convert_options *options = c->options;
    if (options->preset)
        check_preset(c);
    if (options->preset)
        convert_keep(c, "model.preset", "--model", "%s", options->preset);
    for (size_t i = 0; i < options->word_count; i++) {
        char key[128];
        size_t length = strcspn(options->words[i], "=");
        snprintf(key, sizeof key, "%.*s", (int)ls_min((int64_t)length, 120), options->words[i]);
        convert_keep(c, key, "command line", "%s",
                     options->words[i] + length + (options->words[i][length] == '='));
    }
}

/* ---- results -------------------------------------------------------------------------------- */

size_t ls_convert_losses(const struct ls_convert *result)
{
    size_t losses = 0;
    for (size_t i = 0; i < result->count; i++)
        losses +=
            result->items[i].fate == LS_CONVERT_LOST || result->items[i].fate == LS_CONVERT_UNKNOWN;
    return losses;
}

/* Says how many, and the first; the items have all. */
static int refuse_losses(const struct convert *c, struct ls_error *error)
{
    const struct ls_convert *result = c->result;
    size_t losses = ls_convert_losses(result), i = 0;
    if (losses == 0 || c->options->allow_loss)
        return LS_OK;
    while (result->items[i].fate != LS_CONVERT_LOST && result->items[i].fate != LS_CONVERT_UNKNOWN)
        i++;
    const struct ls_convert_item *first = &result->items[i];
    char place[32] = "";
    if (first->line)
        snprintf(place, sizeof place, ":%d", first->line);
    return ls_error_set(error, LS_ECONFIG,
                        "%.200s%s: %.200s: %.300s (%s cannot be kept: change the file, or give "
                        "--allow-loss (in Python: allow_loss=True) to leave out what is named)",
                        c->name, place, first->theirs, first->why,
                        ls_counted((int64_t)losses, "key").text);
}

int ls_convert_text(struct ls_convert *result, enum ls_convert_project project, const char *name,
                    const char *text, size_t bytes, const struct ls_convert_options *options,
                    struct ls_error *error)
{
    const struct convert_project *of = convert_project_of(project);
    struct convert c = {.result = result, .options = options, .name = name, .error = error};
    *result = (struct ls_convert){.project = project};
    c.status = of->read(&c.entries, name, text, bytes, options, error);
    if (!c.status)
        translate(&c, of);
    if (!c.status)
        add_words(&c);
    if (!c.status)
        c.status = refuse_losses(&c, error);
    if (!c.status)
        c.status = convert_write(&c);
    convert_entries_release(&c.entries);
    return c.status;
}

int ls_convert_file(struct ls_convert *result, enum ls_convert_project project, const char *path,
                    const struct ls_convert_options *options, struct ls_error *error)
{
    char *text;
    size_t bytes;
    *result = (struct ls_convert){.project = project};
    if (ls_path_ends(path, ".py"))
        return ls_error_set(error, LS_ECONFIG,
                            "%.200s: a program in Python, which is not run: expected %s", path,
                            project == LS_CONVERT_MEGATRON     ? "the script that calls it"
                            : project == LS_CONVERT_TORCHTITAN ? "its values as TOML"
                                                               : "its values as JSON");
    int status = ls_file_read(path, FILE_BYTES_MAX, LS_ECONFIG, &text, &bytes, error);
    if (!status)
        status = ls_convert_text(result, project, path, text, bytes, options, error);
    free(text);
    return status;
}

void ls_convert_release(struct ls_convert *result)
{
    for (size_t i = 0; i < result->count; i++)
        item_release(&result->items[i]);
    free(result->items);
    free(result->text);
    *result = (struct ls_convert){0};
}
