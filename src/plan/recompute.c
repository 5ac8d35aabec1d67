/* memory.recompute: what each block gives up between its forward and its backward. */
#include "plan/plan_private.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

/* One clause, "POLICY" or "POLICY@STAGES", and where it stands. */
struct clause {
    const char *text, *whole; /* text: of `length` characters in whole */
    size_t length;
};

static int refuse(const struct clause *clause, struct ls_error *error, const char *why)
{
    bool alone = !clause->whole[clause->length];
    int shown = alone ? 0 : (int)ls_min((int64_t)clause->length, 100);
    const char *between = alone ? "" : clause->length ? ": " : "a part is empty: ";
    return ls_error_refuse(error, LS_ELAYOUT, "memory.recompute", clause->whole, "%.*s%s%s", shown,
                           clause->text, between, why);
}

/* The next number of *text; false if there is none. */
static bool number_next(const char **text, const char *end, int64_t *number)
{
    if (*text == end || !isdigit((unsigned char)**text))
        return false;
    *number = 0;
    for (; *text < end && isdigit((unsigned char)**text); (*text)++)
        if (*number < INT32_MAX) /* beyond it is too large, whatever it is */
            *number = *number * 10 + (**text - '0');
    return true;
}

/* "0-3,7": sets those of chosen[count]. NULL, or why not. */
static const char *list_read(const char *text, const char *end, const char *what, int64_t count,
                             bool *chosen, char why[160])
{
    for (;;) {
        const char *digits = text;
        int64_t first, last;
        if (!number_next(&text, end, &first))
            return "expected a list such as 0-3,7";
        last = first;
        if (text < end && *text == '-' && (digits = ++text, !number_next(&text, end, &last)))
            return "expected a number after the dash";
        if (last < first)
            return "a range ends before it begins";
        if (last >= count) {
            snprintf(why, 160, "there is no %s %.*s: they are 0 to %ld", what,
                     (int)ls_min(text - digits, 40), digits, (long)count - 1);
            return why;
        }
        for (int64_t i = first; i <= last; i++)
            chosen[i] = true;
        if (text == end)
            return NULL;
        if (*text++ != ',')
            return "expected a list such as 0-3,7";
    }
}

/* ---- policies -------------------------------------------------------------------------------- */

/* A policy as it is applied to the blocks of a stage. */
struct policy {
    enum ls_recompute each; /* of every block */
    int64_t segment;        /* blocks that are made again together; 0: sqrt of a stage's blocks */
    const bool *blocks;     /* [layers] those it is of; NULL: all */
};

static bool is_word(const struct clause *clause, size_t length, const char *word)
{
    return length == strlen(word) && !strncmp(clause->text, word, length);
}

static int policy_read(const struct clause *clause, size_t length, int64_t layers, bool *blocks,
                       struct policy *policy, struct ls_error *error)
{
    const char *text = clause->text, *end = text + length;
    char why[160];
    *policy = (struct policy){.each = LS_RECOMPUTE_FULL, .segment = 1};
    if (is_word(clause, length, "none"))
        policy->each = LS_RECOMPUTE_NONE;
    else if (is_word(clause, length, "selective"))
        policy->each = LS_RECOMPUTE_SELECTIVE;
    else if (is_word(clause, length, "sqrt"))
        policy->segment = 0;
    else if (length > 6 && !strncmp(text, "every:", 6)) {
        text += 6;
        if (!number_next(&text, end, &policy->segment) || text != end || policy->segment < 1)
            return refuse(clause, error, "expected every:K with a number of blocks from 1");
    } else if (length > 0 && isdigit((unsigned char)*text)) {
        policy->blocks = blocks;
        const char *wrong = list_read(text, end, "block", layers, blocks, why);
        if (wrong)
            return refuse(clause, error, wrong);
    } else if (!is_word(clause, length, "full")) {
        return refuse(clause, error,
                      "expected none, full, selective, sqrt, every:K or a list of blocks such as "
                      "0-3,7");
    }
    return LS_OK;
}

static int64_t root(int64_t n)
{
    int64_t r = 1;
    while (r * r < n)
        r++;
    return r;
}

static void stage_apply(const struct policy *policy, struct ls_layout *layout, int64_t stage)
{
    int64_t first = ls_max(layout->stage_first[stage], 1);
    int64_t end = ls_min(layout->stage_first[stage + 1], layout->model.layers + 1);
    int64_t segment = policy->segment ? policy->segment : root(end - first);
    for (int64_t layer = first; layer < end; layer++) {
        if (policy->blocks && !policy->blocks[layer - 1])
            continue;
        bool joins = policy->each == LS_RECOMPUTE_FULL && (layer - first) % segment;
        layout->recompute[layer] = joins ? LS_RECOMPUTE_JOIN : policy->each;
    }
}

/* ---- clauses --------------------------------------------------------------------------------- */

static int clause_apply(const struct clause *clause, struct ls_layout *layout,
                        struct ls_error *error)
{
    bool stages[LS_LAYOUT_LAYERS_MAX + 2] = {false}, blocks[LS_LAYOUT_LAYERS_MAX] = {false};
    const char *at = memchr(clause->text, '@', clause->length);
    size_t length = at ? (size_t)(at - clause->text) : clause->length;
    struct policy policy;
    char why[160];
    int status = policy_read(clause, length, layout->model.layers, blocks, &policy, error);
    if (status)
        return status;
    const char *wrong = NULL;
    if (at)
        wrong =
            list_read(at + 1, clause->text + clause->length, "stage", layout->stages, stages, why);
    if (wrong)
        return refuse(clause, error, wrong);
    for (int64_t s = 0; s < layout->stages; s++)
        if (!at || stages[s])
            stage_apply(&policy, layout, s);
    return LS_OK;
}

int plan_recompute(const struct ls_layout_keys *keys, struct ls_layout *layout,
                   struct ls_error *error)
{
    const char *text = keys->recompute;
    int status = LS_OK;
    memset(layout->recompute, 0, sizeof layout->recompute);
    layout->partition_activations = keys->partition_activations;
    while (!status) {
        struct clause clause = {.text = text, .whole = keys->recompute};
        clause.length = strcspn(text, ";");
        status = clause_apply(&clause, layout, error);
        text += clause.length;
        if (*text++ != ';')
            return status;
    }
    return status;
}
