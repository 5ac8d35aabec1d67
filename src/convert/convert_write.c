/* The configuration that a conversion gives: its keys with where each comes from, then what was
 * left out and why. What is written is read back before anyone gets it. */
#include "convert/convert_private.h"

#include <lockstep/base/file.h>

#include <stdlib.h>
#include <string.h>

enum { LINE = 98 };

/* The last item that gives our key a value; NULL for none. */
static const struct ls_convert_item *giver(const struct ls_convert *result, const char *ours)
{
    for (size_t i = result->count; i > 0; i--)
        if (strcmp(result->items[i - 1].key, ours) == 0)
            return &result->items[i - 1];
    return NULL;
}

/* ---- the configuration ---------------------------------------------------------------------- */

static int blame(const struct convert *c, const struct ls_convert_item *item)
{
    ls_error_unplace(c->error);
    ls_error_prefix(c->error, "%.200s", *item->theirs ? item->theirs : "convert");
    return item->line ? ls_error_at(c->error, c->name, item->line, 0)
                      : ls_error_prefix(c->error, "%.200s", c->name);
}

static int set_all(const struct convert *c, struct ls_config *config)
{
    int status = LS_OK;
    ls_config_defaults(config);
    for (size_t i = 0; i < c->result->count && !status; i++) {
        const struct ls_convert_item *item = &c->result->items[i];
        char assignment[2 * LS_CONFIG_VALUE_BYTES];
        if (!*item->key)
            continue;
        snprintf(assignment, sizeof assignment, "%s=%s", item->key, item->value);
        status = ls_config_set(config, assignment, c->error);
        if (status)
            blame(c, item);
    }
    return status;
}

/* What a run would say of this configuration, were it started now; "" for nothing. A vocabulary is
 * the tokenizer's, and what model.from is stands there: neither is looked for here. */
static void what_lacks(const struct ls_config *config, char *why, size_t bytes)
{
    struct ls_error error = {0};
    struct ls_config copy = *config;
    struct ls_layout layout;
    *why = '\0';
    if (*config->model_keys.from)
        return;
    if (copy.model_keys.vocab == 0)
        copy.model_keys.vocab = 50257;
    int status = ls_config_resolve(&copy, 0, &error);
    if (!status)
        status = ls_config_layout(&copy, 0, &layout, &error);
    ls_error_unplace(&error);
    if (status)
        snprintf(why, bytes, "%s", error.text);
}

/* ---- the text ------------------------------------------------------------------------------- */

/* Comment lines of text, its words wrapped; first begins the first one, rest the others. */
static void comment(FILE *file, const char *first, const char *rest, const char *text)
{
    char shown[4 * LS_CONFIG_VALUE_BYTES];
    ls_escape(text, strlen(text), "", shown, sizeof shown);
    int column = fprintf(file, "# %s", first);
    for (const char *at = shown; *at; at += strspn(at, " ")) {
        int length = (int)strcspn(at, " ");
        if (at > shown && column + length + 1 > LINE)
            column = fprintf(file, "\n# %s%.*s", rest, length, at);
        else
            column += fprintf(file, "%s%.*s", at > shown ? " " : "", length, at);
        at += length;
    }
    fputc('\n', file);
}

static void write_items(FILE *file, const struct ls_convert *result, enum ls_convert_fate fate,
                        enum ls_convert_fate or, const char *title)
{
    bool any = false;
    for (size_t i = 0; i < result->count; i++) {
        const struct ls_convert_item *item = &result->items[i];
        if (item->fate != fate && item->fate != or)
            continue;
        if (!any)
            fprintf(file, "\n# %s\n", title);
        any = true;
        char text[LS_CONFIG_VALUE_BYTES], line[32] = "";
        if (item->line)
            snprintf(line, sizeof line, " (line %d)", item->line);
        snprintf(text, sizeof text, "%s%s%s%s%s", item->theirs, line, *item->theirs ? ": " : "",
                 fate == LS_CONVERT_AUTO ? "auto there; here the default of " : "", item->why);
        comment(file, "  ", "      ", text);
    }
}

/* "optimizer.params.lr, line 12" */
static void origin(const struct ls_convert_item *item, char *text, size_t bytes)
{
    char shown[512], line[32] = "";
    ls_escape(item->theirs, strlen(item->theirs), "", shown, sizeof shown);
    if (item->line)
        snprintf(line, sizeof line, ", line %d", item->line);
    snprintf(text, bytes, "%s%s%s", item->fate == LS_CONVERT_ASSUMED ? "default there: " : "",
             shown, line);
}

static void write_keys(FILE *file, const struct ls_convert *result, const struct ls_config *config)
{
    size_t count, group = 0;
    const struct ls_config_key *keys = ls_config_keys(&count);
    const char *last = "";
    for (size_t i = 0; i < count; i++) {
        const struct ls_convert_item *item = giver(result, keys[i].name);
        char value[LS_CONFIG_VALUE_BYTES], from[640];
        if (!item)
            continue;
        if (group == 0 || strncmp(last, keys[i].name, group) != 0) {
            group = strcspn(keys[i].name, ".") + 1;
            last = keys[i].name;
            fprintf(file, "%.*s:\n", (int)group - 1, last);
        }
        ls_config_value(config, &keys[i], value, sizeof value);
        origin(item, from, sizeof from);
        int width = fprintf(file, "  %s: %s", keys[i].name + group, value);
        fprintf(file, "%*s# %s\n", width < 34 ? 34 - width : 2, "", from);
    }
}

struct writing {
    const struct convert *c;
    const struct ls_config *config;
};

static int write_text(const void *context, FILE *file, struct ls_error *error)
{
    const struct writing *writing = context;
    const struct ls_convert *result = writing->c->result;
    const struct convert_project *project = convert_project_of(result->project);
    char head[1024], why[1024];
    (void)error;
    snprintf(head, sizeof head, "Converted from %.700s (%s) by `lockstep convert`.",
             writing->c->name, project->title);
    comment(file, "", "", head);
    comment(file, "", "", project->remark);
    write_keys(file, result, writing->config);
    write_items(file, result, LS_CONVERT_LOST, LS_CONVERT_UNKNOWN,
                "LEFT OUT ALTHOUGH RESULTS CHANGE (--allow-loss):");
    write_items(file, result, LS_CONVERT_AUTO, LS_CONVERT_AUTO, "Chosen here:");
    write_items(file, result, LS_CONVERT_DROPPED, LS_CONVERT_DROPPED,
                "Left out, with no effect on results:");
    write_items(file, result, LS_CONVERT_ADVICE, LS_CONVERT_ADVICE, "To do:");
    what_lacks(writing->config, why, sizeof why);
    if (*why) {
        fputs("\n# A run would refuse it as it stands:\n", file);
        comment(file, "  ", "      ", why);
    }
    return LS_OK;
}

/* The text gives the values that it was made of. */
static int read_back(const struct convert *c, const struct ls_config *config, const char *text,
                     size_t bytes)
{
    size_t count;
    const struct ls_config_key *keys = ls_config_keys(&count);
    struct ls_config again;
    ls_config_defaults(&again);
    int status = ls_config_load_text(&again, "converted.yaml", text, bytes, c->error);
    for (size_t i = 0; i < count && !status; i++) {
        char one[LS_CONFIG_VALUE_BYTES], other[LS_CONFIG_VALUE_BYTES];
        const struct ls_convert_item *item = giver(c->result, keys[i].name);
        ls_config_value(config, &keys[i], one, sizeof one);
        ls_config_value(&again, &keys[i], other, sizeof other);
        if (strcmp(one, other) != 0) {
            status = ls_error_set(c->error, LS_ECONFIG, "%s = %.300s cannot be written to a file",
                                  keys[i].name, one);
            if (item)
                blame(c, item);
        }
    }
    return status;
}

int convert_write(struct convert *c)
{
    size_t bytes;
    struct ls_config config;
    int status = set_all(c, &config);
    if (!status)
        status = ls_text_write(write_text, &(struct writing){c, &config}, &c->result->text, &bytes,
                               c->error);
    if (!status)
        status = read_back(c, &config, c->result->text, bytes);
    if (status) {
        free(c->result->text);
        c->result->text = NULL;
    }
    return status;
}
