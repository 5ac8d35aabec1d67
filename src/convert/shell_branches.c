/* Which lines of a script run: the branches of its if, and of its case.
 *
 * A condition is one of [ A = B ], [ A != B ], [ A -eq B ] and its like, [ -z A ], [ -n A ], true
 * and false, with test or [[ in place of [, with ! before it, and several of them between && and
 * ||; [ A ] is [ -n A ]. Others, and those of a variable that is not known, are open: what such a
 * branch sets is not known.
 */
#include "convert/convert_private.h"

#include <ctype.h>
#include <string.h>

static enum convert_truth opposite(enum convert_truth a)
{
    return a == CONVERT_OPEN ? a : a == CONVERT_TRUE ? CONVERT_FALSE : CONVERT_TRUE;
}

static enum convert_truth both(enum convert_truth a, enum convert_truth b)
{
    if (a == CONVERT_FALSE || b == CONVERT_FALSE)
        return CONVERT_FALSE;
    return a == CONVERT_TRUE && b == CONVERT_TRUE ? CONVERT_TRUE : CONVERT_OPEN;
}

static enum convert_truth either(enum convert_truth a, enum convert_truth b)
{
    return opposite(both(opposite(a), opposite(b)));
}

/* ---- conditions ----------------------------------------------------------------------------- */

/* A condition under way. */
struct test {
    const char *const *words; /* without the brackets */
    size_t count;
    bool bracket; /* no command: between [ and ], [[ and ]], or behind test */
    bool doubled; /* in [[ ]], where a variable without a text is a word all the same */
    char *cause;  /* [64]: of a word that is not known */
};

/* Whether the word is known; otherwise it is the cause if it is a variable alone. */
static bool is_known(const struct test *t, const char *word)
{
    const char *name = word + 1 + (word[0] == '$' && word[1] == '{');
    size_t length = 0;
    if (!strpbrk(word, "$`"))
        return true;
    while (isalnum((unsigned char)name[length]) || name[length] == '_')
        length++;
    if (word[0] == '$' && length > 0 && length < 60 && !name[length + (name[length] == '}')])
        snprintf(t->cause, 64, "$%.*s", (int)length, name);
    return false;
}

static enum convert_truth compare_numbers(const char *a, const char *how, const char *b)
{
    double x, y;
    if (!convert_number(a, &x) || !convert_number(b, &y))
        return CONVERT_OPEN;
    bool is = strcmp(how, "-eq") == 0   ? x == y
              : strcmp(how, "-ne") == 0 ? x != y
              : strcmp(how, "-gt") == 0 ? x > y
              : strcmp(how, "-ge") == 0 ? x >= y
              : strcmp(how, "-lt") == 0 ? x < y
                                        : x <= y;
    return is ? CONVERT_TRUE : CONVERT_FALSE;
}

static enum convert_truth compare(const struct test *t)
{
    const char *a = t->words[0], *how = t->words[1], *b = t->words[2];
    bool equal = convert_among(how, "=|==");
    if (!convert_among(how, "=|==|!=|-eq|-ne|-gt|-ge|-lt|-le") || strpbrk(b, "*?[")) /* a pattern */
        return CONVERT_OPEN;
    if (!is_known(t, a) || !is_known(t, b))
        return CONVERT_OPEN;
    if (how[0] == '-')
        return compare_numbers(a, how, b);
    return (strcmp(a, b) == 0) == equal ? CONVERT_TRUE : CONVERT_FALSE;
}

static enum convert_truth is_empty(const struct test *t, const char *word)
{
    if (!*word)
        return CONVERT_TRUE;
    return is_known(t, word) ? CONVERT_FALSE : CONVERT_OPEN;
}

/* -z, -n, -f: in [[ ]] the word behind it is a variable without a text if it is missing. */
static bool is_operator(const char *word)
{
    return word[0] == '-' && word[1] && !word[2];
}

static enum convert_truth truth_of_brackets(const struct test *t)
{
    const char *how = t->count > 0 ? t->words[0] : "";
    if (t->count == 3)
        return compare(t);
    if (t->count < 2 && !(t->doubled && is_operator(how)))
        return opposite(is_empty(t, how));
    if (t->count > 2 || (strcmp(how, "-z") != 0 && strcmp(how, "-n") != 0))
        return CONVERT_OPEN;
    enum convert_truth empty = is_empty(t, t->count > 1 ? t->words[1] : "");
    return how[1] == 'z' ? empty : opposite(empty);
}

static enum convert_truth truth_of(struct test t)
{
    bool negated = t.count > 0 && strcmp(t.words[0], "!") == 0;
    enum convert_truth truth = CONVERT_OPEN;
    t.words += negated;
    t.count -= negated;
    if (t.bracket)
        truth = truth_of_brackets(&t);
    else if (t.count == 1 && strcmp(t.words[0], "true") == 0)
        truth = CONVERT_TRUE;
    else if (t.count == 1 && strcmp(t.words[0], "false") == 0)
        truth = CONVERT_FALSE;
    return negated ? opposite(truth) : truth;
}

void convert_branches_test(struct convert_branches *b, const char *const *words, size_t count,
                           char joined)
{
    char beyond[64];
    bool first = count > 0 && convert_among(words[0], "[|[[|test");
    bool pattern = b->doubled && !b->joined; /* behind its | */
    b->doubled |= first && strcmp(words[0], "[[") == 0;
    struct test t = {words + first, count - first, first || b->doubled, b->doubled,
                     b->depth > 0 && b->depth <= CONVERT_BRANCHES ? b->cause[b->depth - 1]
                                                                  : beyond};
    if (t.bracket && t.count > 0 && convert_among(t.words[t.count - 1], "]|]]")) {
        b->doubled = false;
        t.count--;
    }
    enum convert_truth truth = pattern ? CONVERT_OPEN : truth_of(t);
    b->condition = b->joined == '&'   ? both(b->condition, truth)
                   : b->joined == '|' ? either(b->condition, truth)
                                      : truth;
    b->joined = joined;
}

/* ---- branches ------------------------------------------------------------------------------- */

/* Another branch begins, which runs if none before it did and the condition holds. */
static void branch(struct convert_branches *b, enum convert_truth condition)
{
    b->testing = false;
    if (b->depth == 0 || b->depth > CONVERT_BRANCHES)
        return;
    b->runs[b->depth - 1] = both(opposite(b->ran[b->depth - 1]), condition);
    b->ran[b->depth - 1] = either(b->ran[b->depth - 1], condition);
}

static void begin(struct convert_branches *b, enum convert_truth runs)
{
    if (b->depth < CONVERT_BRANCHES) {
        b->ran[b->depth] = CONVERT_FALSE;
        b->runs[b->depth] = runs;
        b->cause[b->depth][0] = '\0';
    }
    b->depth++;
}

bool convert_branches_word(struct convert_branches *b, const char *word)
{
    bool test = strcmp(word, "if") == 0 || strcmp(word, "elif") == 0;
    if (strcmp(word, "if") == 0)
        begin(b, CONVERT_TRUE);
    else if (strcmp(word, "then") == 0)
        branch(b, b->condition);
    else if (strcmp(word, "else") == 0)
        branch(b, CONVERT_TRUE);
    else if (strcmp(word, "case") == 0)
        begin(b, CONVERT_OPEN);
    else if (convert_among(word, "fi|esac"))
        b->depth -= b->depth > 0;
    else if (!test && !convert_among(word, "do|{"))
        return false;
    b->testing |= test;
    b->joined = '\0';
    b->doubled = false;
    if (test)
        b->condition = CONVERT_OPEN;
    return strcmp(word, "case") != 0;
}

enum convert_truth convert_branches_run(const struct convert_branches *b, const char **cause)
{
    enum convert_truth run = b->depth > CONVERT_BRANCHES ? CONVERT_OPEN : CONVERT_TRUE;
    if (cause)
        *cause = "";
    for (int i = 0; i < b->depth && i < CONVERT_BRANCHES; i++) {
        run = both(run, b->runs[i]);
        if (cause && b->runs[i] == CONVERT_OPEN)
            *cause = b->cause[i];
    }
    return run;
}
